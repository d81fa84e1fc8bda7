"""Quantization-aware training of a network: weights as parametrizations, activations as modules in the graph.

Batch norms are folded before (:func:`privcirnet.passes.fuse.fuse_at`), not after: in the integer network a batch
norm's factor can only be part of the weights, because the server cannot apply its secret factor to the client's share.
So the order is dense -> circulant -> fused -> fake-quantized -> integer program.

Quantizers go where the protocol truncates shares: after every linear layer but the last, every square and every product
of two values, and before and behind every function that has a table, such as GELU: the one before clips. Those of a
network's last function have more bits: its few results are what a user reads. If channels are taken from a linear
layer, as queries, keys and values are, each part has a quantizer of its own. A max pool behind a layer comes first: it
leaves fewer values to round. :mod:`privcirnet.nn.quantization_steps` sets their steps.

Residual streams are sums of sums, as every block of a transformer adds to what the blocks before it added up. All
summands of a stream share one step, the coarsest that any of them wants. In a vision transformer that is one step for
the whole network, so its summands get more bits than other activations. Layers read the stream as it is, and their sums
become larger by these bits, which costs room in the plain modulus. The stream is not truncated again before it is read,
and programs that do so are refused: the bounds on truncation are those of shares under a fresh mask, and shares of
truncated values are no longer uniform (docs/mathematics.md, "Truncation"). Convolutional networks are left as they are.
In a ResNet an activation ends every sum; MobileNetV2 adds up at most four convolutions before the next one begins anew.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from numbers import Integral

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.checks import check_batch, check_weights, value_of_one
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.exact_functions import Centered, Rounded, SubtractMax, SumChannels, TableFunction
from privcirnet.nn.example import FUSED
from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.materialize import give_own_class_, with_plain_weights
from privcirnet.nn.moves import HeadProduct, Rearrange, ScoreConstants, SliceChannels, ToTokens
from privcirnet.nn.quantization_steps import (
    activation_quantizer,
    calibrate,
    called_modules,
    exp_reach,
    groups_of,
    origins,
    weighted_modules,
)
from privcirnet.nn.quantizers import ActivationQuantizer, BiasQuantizer, Quantizer, WeightQuantizer, check_unquantized
from privcirnet.nn.supported_modules import function_name, has_table, row_of
from privcirnet.passes.difference import remember_, warn_of_losses
from privcirnet.passes.equalize import input_step_for, scale_channels_
from privcirnet.passes.fuse import fuse_at, is_fused
from privcirnet.passes.ranges import by_channel, peaks, typical_images

SUFFIX = "_quantizer"
STREAM_BITS = 10
"""Bits of residual streams, by default."""
NORMED_STREAM_BITS = 16
"""Bits of residual streams that layer norms read, each with a step of its own: from block to block values grow."""
LAST_BITS = 12, 16
"""Least bits of what a network's last function takes and gives, if it has a table."""
BITS = "bits"
"""Key of a graph's ``meta``: its bits of weights, activations and streams."""
_BITS = {"weight": (1, 8), "activation": (2, 16), "stream": (2, 20)}


def quantize(  # noqa: PLR0913
    model: nn.Module,
    images: Tensor,
    input_log_step: int | None = None,
    weight_bits: int = 8,
    activation_bits: int = 8,
    stream_bits: int = 0,
    *,
    quantile: float = 1.0,
    correct_biases: bool = True,
) -> fx.GraphModule:
    """Return a fake-quantized copy of a network, fused for the size of the images, its steps calibrated on them.

    Args:
        model: any network, fused or not (:mod:`privcirnet.passes.fuse`); left as it was.
        images: network inputs, (N, C, H, W). Images whose values explode in a row of squares are left out.
        input_log_step: log2 of the images' step; None to choose it from the images (:func:`input_step_for`).
        weight_bits: 1 to 8, times a power of two of each output; 1: signs.
        activation_bits: 2 to 16, for the values seen on ``images``; larger values later on are kept, not clipped.
        stream_bits: 2 to 20, for the summands of residual streams (:mod:`privcirnet.passes.quantize`), which never
            have fewer bits than other activations; 0: :data:`STREAM_BITS`, or :data:`NORMED_STREAM_BITS`.
        quantile: share of the images, in (0, 1], whose values these bits hold; with 1 the largest sets each step.
        correct_biases: whether biases take back what rounded weights shift their channels by on the images
            (:mod:`privcirnet.passes.quantize`).

    Returns:
        The quantized network: in the mode of a fused one, else in evaluation mode.

    Channels of images that are much smaller than the largest have finer steps, whose factors are in the weights of the
    layers that read them (:mod:`privcirnet.passes.equalize`), unless ``input_log_step`` is given.

    Warns:
        UserWarning: more than a tenth of 16 or more images have another class than before.

    Raises:
        RuleError: an operation has no exact form or cannot be folded, bits or shares are out of range, weights are
            quantized already, shared or not finite, a layer runs twice, summands cannot share a step, values are not
            finite, or the images are none or of another size.
    """
    bits = weight_bits, activation_bits, stream_bits
    graph = calibrated(model, images, input_log_step, bits, quantile, correct_biases)
    warn_of_losses(graph, "give more bits, or train it quantized", stacklevel=3)
    return graph


def calibrated(
    model: nn.Module,
    images: Tensor,
    input_log_step: int | None = None,
    bits: tuple[int, int, int] = (8, 8, 0),
    quantile: float = 1.0,
    correct_biases: bool = True,
) -> fx.GraphModule:
    """Return the quantized network of :func:`quantize`, without a warning; ``bits``: weights, activations, streams."""
    check_weights(model)
    _check_settings(bits, input_log_step, quantile)
    check_unquantized(model, "a network must be quantized once")
    check_batch(images)
    if not images.any():
        raise RuleError("images must show what values there are", got="nothing but zeros", remedy="give real ones")
    inputs = images.to(next(model.parameters(), images).device)
    fused = model if is_fused(model) else fuse_at(model, inputs)
    value_of_one(fused, inputs)
    graph = copy.deepcopy(fused)
    exponents = scale_channels_(graph, inputs) if input_log_step is None else None
    _put_quantizers_(graph, *bits)
    if exponents is not None:
        input_quantizer(graph).exponents = exponents.to(inputs.device)
    largest = _largest_values(fused, inputs, quantile)
    _set_far_(graph, largest)
    calibrate(graph, largest, input_step_for(inputs) if input_log_step is None else input_log_step)
    if correct_biases:
        correct_biases_(graph.eval(), fused, inputs)
    remember_(graph, fused, inputs)
    return graph.train(model.training if FUSED in getattr(model, "meta", {}) else fused.training)


def with_quantizers(
    fused: fx.GraphModule, weight_bits: int = 8, activation_bits: int = 8, stream_bits: int = 0
) -> fx.GraphModule:
    """Return a copy of a fused network with quantizers whose steps are 0, for a checkpoint or a caller to set.

    Args:
        fused: left as it was.
        weight_bits, activation_bits, stream_bits: see :func:`quantize`.

    Raises:
        RuleError: see :func:`quantize`.
    """
    _check_settings((weight_bits, activation_bits, stream_bits))
    graph = copy.deepcopy(with_plain_weights(fused))
    _put_quantizers_(graph, weight_bits, activation_bits, stream_bits)
    return graph.train(fused.training)


def _put_quantizers_(graph: fx.GraphModule, weight_bits: int, activation_bits: int, stream_bits: int) -> None:
    stream_bits = stream_bits or (NORMED_STREAM_BITS if _has(graph, (Centered, Rounded)) else STREAM_BITS)
    _check_layers(graph)
    _quantize_weights_(graph, weight_bits)
    _insert_quantizers(graph, activation_bits)
    like = next(graph.parameters(), torch.empty(0))
    for _, module in called_modules(graph):
        if isinstance(module, ActivationQuantizer):
            module.kind = module.kind.to(like)
    for node in stream_summands(graph):
        activation_quantizer(graph, node).bits = max(stream_bits, activation_bits)
    graph.meta[BITS] = weight_bits, activation_bits, stream_bits


def is_quantized(network: nn.Module) -> bool:
    """Return whether a network has quantizers, as :func:`quantize` returns it."""
    return any(isinstance(module, ActivationQuantizer) for module in network.modules())


def input_step(graph: fx.GraphModule) -> int:
    """Return log2 of the step of a quantized network's images, of several steps the coarsest."""
    return int(input_quantizer(graph).log_step)


def input_quantizer(graph: fx.GraphModule) -> ActivationQuantizer:
    """Return the quantizer of a network's images.

    Raises:
        RuleError: the network is not quantized.
    """
    for node, module in called_modules(graph) if isinstance(graph, fx.GraphModule) else ():
        if isinstance(module, ActivationQuantizer) and node.all_input_nodes[0].op == "placeholder":
            return module
    got, remedy = type(graph).__name__, "give quantize(model, images)"
    raise RuleError("a network must be quantized", got=got, remedy=remedy)


def check_calibrated(graph: fx.GraphModule) -> None:
    """Raise if a network is not quantized, or no step was ever set: it was quantized without images."""
    input_quantizer(graph)
    steps = [int(module.log_step) for module in graph.modules() if isinstance(module, Quantizer)]
    if not any(steps):
        remedy = "give quantize(model, images), or load a checkpoint of a quantized network"
        raise RuleError("a quantized network must have steps", got="a step of 1 everywhere", remedy=remedy)


def _quantize_weights_(graph: fx.GraphModule, bits: int) -> None:
    """Quantize weights and biases in place."""
    for module in weighted_modules(graph):
        give_own_class_(module)
        quantizer = WeightQuantizer(bits, outputs=len(module.weight), block_size=block_size_of(module))
        parametrize.register_parametrization(module, "weight", quantizer, unsafe=True)
        _quantize_bias_(module)
    for _, module in called_modules(graph):
        if isinstance(module, ToTokens | HeadProduct | SumChannels):
            give_own_class_(module)
            _quantize_bias_(module)


def _largest_values(fused: fx.GraphModule, images: Tensor, quantile: float) -> dict[str, float]:
    """Return the largest value of each node in a share of the images, without those that explode."""
    peak_values = peaks(fused, images)
    typical = typical_images(peak_values)
    rank = math.ceil(quantile * int(typical.sum()))
    return {name: values[typical].kthvalue(rank).values.item() for name, values in peak_values.items()}


def _set_far_(graph: fx.GraphModule, largest: Mapping[str, float]) -> None:
    """Let masked scores fall below all others by more than any exp tells from zero, were scores twice as large."""
    for node, module in called_modules(graph):
        if isinstance(module, ScoreConstants) and module.masked.any():
            scores, bias = largest[node.all_input_nodes[0].name], float(module.bias.detach().abs().max())
            reach = 4 * scores + 2 * bias + exp_reach(_BITS["activation"][1])
            module.far.fill_(2.0 ** math.ceil(math.log2(reach)))


def _has(graph: object, kind: tuple[type[nn.Module], ...]) -> bool:
    return isinstance(graph, nn.Module) and any(isinstance(module, kind) for module in graph.modules())


_MOST_LOG_STEP = 16
"""Of images: pixels have at most 16 bits."""


def _check_settings(widths: Sequence[int], input_log_step: int | None = None, quantile: float = 1.0) -> None:
    whole = input_log_step is None or (isinstance(input_log_step, Integral) and abs(input_log_step) <= _MOST_LOG_STEP)
    if not whole or not 0 < quantile <= 1:
        got = f"input_log_step={input_log_step!r}, quantile={quantile}"
        rule = f"input_log_step must be an integer in [-{_MOST_LOG_STEP}, {_MOST_LOG_STEP}] and quantile in (0, 1]"
        raise RuleError(rule, got=got, remedy="give the integer log2 of the images' step, or None, and 1")
    for (what, (low, high)), bits in zip(_BITS.items(), widths, strict=True):
        if what == "stream" and bits == 0:  # its default
            continue
        if not isinstance(bits, Integral) or not low <= bits <= high:
            raise RuleError(f"{what} bits must be in [{low}, {high}]", got=repr(bits), remedy=f"use {min(high, 8)}")


def _check_layers(fused: fx.GraphModule) -> None:
    visited: set[nn.Module] = set()
    for node, module in called_modules(fused):
        if isinstance(module, nn.Linear | nn.Conv2d) and module in visited:
            raise RuleError("a layer must run once an image", got=node.target, remedy="give each use its own layer")
        visited.add(module)


def _quantize_bias_(module: nn.Module) -> None:
    if module.bias is not None:
        parametrize.register_parametrization(module, "bias", BiasQuantizer(), unsafe=True)


def _insert_quantizers(graph: fx.GraphModule, bits: int) -> None:
    last = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    modules = dict(called_modules(graph))
    while isinstance(modules.get(last), nn.Flatten | nn.Identity | Rearrange):
        last = last.all_input_nodes[0]
    for node in list(graph.graph.nodes):
        if has_table(modules.get(node)) if node is last else _is_rounded(node, modules):
            name, min_bits = f"{node.name}{SUFFIX}", getattr(modules.get(node), "result_bits", 0)
            graph.add_submodule(name, ActivationQuantizer(max(bits, LAST_BITS[1] if node is last else min_bits)))
            with graph.graph.inserting_after(node):
                inserted = graph.graph.call_module(name, (node,))
            node.replace_all_uses_with(inserted, delete_user_cb=lambda user, new=inserted: user is not new)
    for node, module in called_modules(graph):
        if has_table(module):
            min_bits = (
                module.input_bits if isinstance(module, TableFunction) else LAST_BITS[0] if node is last else bits
            )
            quantizer = _quantizer_before(graph, node, min_bits)
            quantizer.bits, quantizer.clips = max(quantizer.bits, min_bits), str(function_name(module))
    graph.recompile()


def _quantizer_before(graph: fx.GraphModule, node: fx.Node, bits: int) -> ActivationQuantizer:
    """Return the quantizer of the input that a node alone reads, a new one if there is none."""
    source = node.all_input_nodes[0]
    existing = module_of(graph, source)
    if isinstance(existing, ActivationQuantizer):
        if len(source.users) == 1:
            return existing
        source = source.all_input_nodes[0]
    name, quantizer = f"{node.name}_input{SUFFIX}", ActivationQuantizer(bits)
    graph.add_submodule(name, quantizer)
    with graph.graph.inserting_before(node):
        node.args = (graph.graph.call_module(name, (source,)),)
    return quantizer


def _scored(node: fx.Node, modules: Mapping[fx.Node, nn.Module]) -> list[fx.Node]:
    """Return the readers of a node; behind constants that are added to scores, the readers of the sums."""
    readers: list[fx.Node] = []
    for user in node.users:
        constants = isinstance(modules.get(user), ScoreConstants)
        readers += [reader for rest in user.users for reader in rest.users] if constants else [user]
    return readers


def _is_rounded(node: fx.Node, modules: Mapping[fx.Node, nn.Module]) -> bool:
    """Return whether a quantizer goes behind a node."""
    match modules.get(node):
        case nn.Linear() | nn.Conv2d():
            return not all(isinstance(modules.get(user), SliceChannels | nn.MaxPool2d) for user in node.users)
        case SliceChannels() | nn.MaxPool2d():
            return isinstance(modules.get(node.all_input_nodes[0]), nn.Linear | nn.Conv2d)
        case Square() | HeadProduct():
            return not all(isinstance(modules.get(user), SumChannels | SubtractMax) for user in _scored(node, modules))
        case Centered() | Rounded():
            return True
        case nn.ReLU() | nn.ReLU6():  # what they give is on the grid already
            return False
        case module:
            return node.op == "placeholder" or function_name(module) is not None


IMAGES = 256
"""Largest number of images, which run together."""


@torch.no_grad()
def correct_biases_(graph: fx.GraphModule, fused: fx.GraphModule, images: Tensor) -> fx.GraphModule:
    """Return a quantized network with the biases of its layers corrected; a layer without one is left as it is.

    Rounded weights shift each channel by much the same amount in all images, and squares make shifts grow from layer to
    layer. A layer's mean error is added to its bias, from the first layer to the last, each with the layers before it
    corrected.

    Source: Data-Free Quantization through Weight Equalization and Bias Correction (Nagel et al., ICCV 2019, Section 4.2
    and Appendix D). Departure: a channel's shift is the median over images of its mean, not the mean, so that an image
    which explodes in a row of squares does not count.

    Args:
        graph: result of :func:`privcirnet.passes.quantize.quantize`, in evaluation mode; changed in place.
        fused: network that it was made from; left as it was.
        images: network inputs, (N, C, H, W).
    """
    means = _Means(fused)
    means.run(images[:IMAGES])
    _Corrector(graph, means.means).run(images[:IMAGES])
    return graph


class _Means(fx.Interpreter):
    """An interpreter that keeps each layer's channel means of each image, (N, C), by node name."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self._graph = graph
        self.means: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> object:
        result = super().run_node(n)
        layer = module_of(self._graph, n)
        if isinstance(layer, nn.Conv2d | nn.Linear) and isinstance(result, Tensor):
            self.means[n.name] = _means(layer, result)
        return result


class _Corrector(fx.Interpreter):
    """An interpreter that adds each layer's error to its bias and goes on with the corrected values."""

    def __init__(self, graph: fx.GraphModule, means: dict[str, Tensor]) -> None:
        super().__init__(graph)
        self._graph, self._wanted = graph, means

    def run_node(self, n: fx.Node) -> object:
        result, layer = super().run_node(n), module_of(self._graph, n)
        if not isinstance(layer, nn.Conv2d | nn.Linear) or not isinstance(result, Tensor) or layer.bias is None:
            return result
        off = (self._wanted[n.name] - _means(layer, result)).nan_to_num(0.0, 0.0, 0.0).median(0).values
        before = layer.bias.clone()
        layer.parametrizations["bias"].original.add_(off)  # type: ignore[index, union-attr]
        moved = layer.bias - before
        return result + (moved.view(-1, 1, 1) if isinstance(layer, nn.Conv2d) else moved)


def _means(layer: nn.Module, values: Tensor) -> Tensor:
    """Return the channel means of each image, (N, C)."""
    if isinstance(layer, nn.Linear):
        values = values.reshape(len(values), -1, values.shape[-1])
    return by_channel(values).mean(2)


def stream_summands(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the quantizers' nodes that feed residual streams: sums of sums with a linear layer among the summands.

    Raises:
        RuleError: a summand does not come from a quantized activation.
    """
    sums = (node for node in graph.graph.nodes if is_sum(node))
    chained = {origin for node in sums for s in node.all_input_nodes if _adds(graph, s) for origin in origins(graph, s)}
    groups = [group for group in groups_of(graph) if not chained.isdisjoint(group)]
    return [node for group in groups if any(_rounds_linear(graph, member) for member in group) for node in group]


def _rounds_linear(graph: fx.GraphModule, node: fx.Node) -> bool:
    return isinstance(module_of(graph, node.all_input_nodes[0]), nn.Linear)


def _adds(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node's values are a sum's, at most rearranged."""
    while not is_sum(node):
        module = module_of(graph, node)
        if row_of(module).limits or not row_of(module).keeps_step:
            return False
        node = node.all_input_nodes[0]
    return True
