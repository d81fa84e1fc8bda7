"""Folding of batch norms and AESPA activations into the weights: the network that encrypted inference runs.

A batch norm behind a convolution scales its rows. An AESPA activation is (scale (x + shift))^2; behind a layer it is
folded in the same way. Behind a residual, x = f + g, the shift goes into one layer's bias and the scale into every
summand. If a summand is itself a square, g = u^2, the square root of the scale goes into u, and the layers that read g
divide by it::

    scale (f + u^2) = (scale f) + (sqrt(scale) u)^2         W g = (W / scale) (sqrt(scale) u)^2

Hence the activations are processed from the last to the first. A batch norm of tokens or vectors that follows no linear
layer scales and shifts the columns of those behind it, W (s x + t) = (W s) x + W t. A polynomial attention becomes its
pieces (:mod:`privcirnet.nn.attention`). A max pool goes before the ReLU that it follows, which then has fewer values.
All of this is exact. Circulant weights stay circulant as long as scales are
shared by blocks, which :func:`privcirnet.passes.convert.circulant_` ensures. The divisor of an average pooling becomes
a power of two (:mod:`privcirnet.nn.windows`).

Source: PrivCirNet (NeurIPS 2024), Section 3.4 for batch norms. Folding through residuals is ours. AESPA's own code
keeps three coefficients for each channel, which costs another plaintext product.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from privcirnet.errors import Errors, RuleError
from privcirnet.nn import neighbours
from privcirnet.nn.activations import Aespa, Square
from privcirnet.nn.agreement import EXACT, agree, check_traced, exact_value, some_of
from privcirnet.nn.attention import PolynomialAttention, SoftmaxAttention
from privcirnet.nn.checks import check_module, value_of_one
from privcirnet.nn.exact_functions import DecomposedSoftmax
from privcirnet.nn.example import FUSED, IMAGE, example_for
from privcirnet.nn.graph import UNTRACEABLE, WeightedLayer, module_of, trace
from privcirnet.nn.materialize import with_plain_weights
from privcirnet.nn.norm import Affine, TokenBatchNorm, as_batch_norm, is_frozen_norm
from privcirnet.nn.quantizers import check_unquantized
from privcirnet.nn.tracing import CASTS, UNTRIED
from privcirnet.nn.windows import average_of, divisor_of, power_beside
from privcirnet.passes.compose import compose_
from privcirnet.passes.decompose import SHAPE, arguments, decompose_, epsilon_of, unfold_norm_, unfold_softmax_
from privcirnet.passes.folding import fold_norm_, fold_norm_before_, scale_input_, scale_inputs_, scale_outputs_
from privcirnet.passes.surgery.edit import TRAIN
from privcirnet.passes.surgery.norms import inside
from privcirnet.passes.surgery.polynomial import exact_graph

_NORMS = nn.LayerNorm | nn.RMSNorm | nn.GroupNorm
"""Norms that leave values as they are where all are scaled alike, but for their epsilon."""


def fuse(model: nn.Module, composed: Collection[str] = ()) -> fx.GraphModule:
    """Return the network for inference, with every batch norm and AESPA folded into the layers around it.

    Circulant layers stay circulant, with their rows scaled. The convolutions get a bias, and the batch norms disappear.
    AESPA activations become squares, and polynomial attentions become their pieces. All other modules keep their names.
    An activation inside a batch norm (timm's BatchNormAct2d) stays in its place.

    Operations that depend on the size of the images, as averages over whole maps, are left to
    :func:`privcirnet.quantize`, which gets images, unless :func:`privcirnet.polynomial_` made the network for one size.
    Where no batch norm can be folded without knowing the size, nothing is: quantize then folds them.

    Args:
        model: A network; left as it was.
        composed: Names of layers that are composed with the layer before them (:mod:`privcirnet.passes.compose`).

    Returns:
        A graph module in evaluation mode that shares nothing with `model`.

    Raises:
        RuleError: The network cannot be traced without images, computes what its modules do not say, or is quantized
            already; or a layer cannot be composed with the one before it. If the size is known: see :func:`fuse_at`.

    >>> fuse(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()))
    Sequential(
      (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
      (2): ReLU()
    )
    """
    copied = _copied(model)
    if IMAGE in _meta(copied) and (example := example_for(copied)) is not None:
        return _fused(copied, _graph_at(copied, example), example, composed, sized=True)
    try:
        return _fused(copied, _traced(copied), example_for(copied), composed, sized=False)
    except RuleError as error:
        check_unquantized(model, error.rule)
        if composed:
            raise
    copied = _copied(model)
    graph = _traced(copied)
    graph.meta[FUSED] = False
    if (example := example_for(copied)) is not None:
        check_traced(graph, copied, example)
    return graph


def fuse_at(model: nn.Module, images: Tensor, composed: Collection[str] = ()) -> fx.GraphModule:
    """Return the network that runs encrypted on images of one size: modules that run exactly, with norms folded.

    All operations that have an exact form become modules with it, which changes no value: functions, averages over
    whole maps, convolutions that are not square, attention (:func:`privcirnet.passes.surgery.exact_graph`).

    Args:
        model: A network, fused or not; left as it was.
        images: Some, (N, C, H, W) or (N, F): on two of them the result is compared with the network.
        composed: As for :func:`fuse`.

    Returns:
        A graph module in evaluation mode that shares nothing with `model`, for images of this size only.

    Raises:
        RuleError: The network does not take the images, cannot be traced or computes what its modules do not say, an
            operation has no exact form, a batch norm does not directly follow a convolution or has no running
            statistics, one of tokens feeds other than linear layers, an attention other than layers, an AESPA follows
            neither a layer nor a sum of layers and squares, a convolution feeds more than what is folded into it,
            either is used twice, what is folded into a circulant layer is not shared by its blocks, weights are
            quantized already, or a layer cannot be composed with the one before it. Of several norms the first error,
            which stands for all.
    """
    copied = _copied(model)
    value_of_one(copied, images)
    kind, sample = next(copied.parameters(), images).dtype, some_of(images).double()
    copied = copied.double()
    with _in_double_precision():
        fused = _fused(copied, _graph_at(copied, sample), sample, composed, sized=True)
    return fused.to(kind)


@contextmanager
def _in_double_precision() -> Iterator[None]:
    """Let new constants, such as those of a rewritten network, be as exact as its comparison.

    Yields:
        Nothing.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _WithoutCasts():
            yield
    finally:
        torch.set_default_dtype(before)


class _WithoutCasts(TorchFunctionMode):
    """A mode in which real values keep their precision: a network's own ``x.float()`` would not fit its weights."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **kwargs or {})
        if getattr(function, "__name__", "") not in CASTS or not args[0].is_floating_point():
            return result
        return args[0] if result.is_floating_point() else result


def is_fused(network: nn.Module) -> TypeGuard[fx.GraphModule]:
    """Return whether a network is one of :func:`fuse_at`, or of :func:`fuse` for a known size of images."""
    return isinstance(network, fx.GraphModule) and bool(network.meta.get(FUSED))


def _meta(model: nn.Module) -> Mapping[str, Any]:
    return getattr(model, "meta", {})


def _copied(model: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode, with plain weights and torch's batch norms in place of frozen ones."""
    check_module(model)
    copied = copy.deepcopy(with_plain_weights(model)).eval()
    for name, module in list(copied.named_modules()):
        if is_frozen_norm(module):
            copied.set_submodule(name, as_batch_norm(module))
    return copied


def _traced(copied: nn.Module) -> fx.GraphModule:
    try:
        return trace(copied)
    except RuleError as error:
        if error.rule not in (UNTRACEABLE, UNTRIED):
            raise
        remedy = f"{error.remedy}; or give quantize(model, images), which traces it at their size"
        raise RuleError(error.rule, got=error.got, remedy=remedy) from error


def _graph_at(copied: nn.Module, images: Tensor) -> fx.GraphModule:
    """Return a network, some of whose modules it shares, as a graph of modules that run exactly."""
    if IMAGE in _meta(copied):
        return trace(copied, images)
    exact, changes = exact_graph(copied, images)
    changed = any(change.effect == TRAIN for change in changes)  # norms beside circulant layers: folding names them
    return trace(copied if changed else exact, images)


def _fused(
    copied: nn.Module, graph: fx.GraphModule, images: Tensor | None, composed: Collection[str], *, sized: bool
) -> fx.GraphModule:
    """Return a traced network with its norms folded, compared with the network on some images, if there are any.

    Args:
        sized: whether the size of the images is that of all that the network will get.
    """
    kind = next(graph.parameters(), torch.empty(0)).dtype
    graph.meta[FUSED] = sized
    if images is None:
        return _folded_(graph.double(), composed).to(kind)
    values = check_traced(graph, copied, images)
    if sized:
        for node in graph.graph.nodes:
            if node.name in values:
                node.meta[SHAPE] = tuple(values[node.name].shape[1:])
        _size_pools_(graph)
        graph.meta[IMAGE] = tuple(images.shape[1:])
    expected = exact_value(copied, images)
    if not agree(exact_value(_folded_(graph.double(), composed), images), expected, EXACT):
        rule, got = "a fused network must compute what the network does", f"other values of {type(copied).__name__}"
        raise RuleError(rule, got=got, remedy="report this network")
    return graph.to(kind)


def _folded_(fused: fx.GraphModule, composed: Collection[str]) -> fx.GraphModule:
    """Fold what can be folded in a traced network, in place; in double precision the result is that of the network."""
    calls = Counter(node.target for node in fused.graph.nodes if node.op == "call_module")
    for node in list(fused.graph.nodes):
        if isinstance(module_of(fused, node), nn.Identity):
            _skip_(fused, node)
    _fold_pools_before_norms_(fused, calls)
    errors = Errors()
    for node in list(fused.graph.nodes):
        with errors.collected():
            _fold_norm_(fused, node, calls)
    errors.check()
    _fold_squares_(fused, calls)
    _fold_pools_(fused, calls)
    _pool_first_(fused)
    fused.graph.lint()
    fused.recompile()
    return compose_(fused, composed) if composed else fused


def _size_pools_(fused: fx.GraphModule) -> None:
    """Let averages over whole maps say the size of these, on which steps of integers depend."""
    for node in fused.graph.nodes:
        pool = module_of(fused, node)
        if isinstance(pool, nn.AdaptiveAvgPool2d) and pool.output_size in (1, (1, 1)):
            fused.set_submodule(str(node.target), average_of(node.all_input_nodes[0].meta[SHAPE][-2:]))


def _fold_norm_(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> None:
    """Fold what a node calls, if it is a batch norm or an attention, into the layers beside it."""
    if node.target in (nn.functional.batch_norm, torch.batch_norm):
        raise _cannot_fold(node, "a batch norm must be a module", "use nn.BatchNorm2d")
    match module := module_of(fused, node):
        case TokenBatchNorm() | nn.BatchNorm1d():
            _fold_channels_last_(fused, node, module, calls)
            _drop_norm_(fused, node, module)
        case Affine():
            _fold_scale_(fused, node, module.scale, module.shift, calls)
            _drop_norm_(fused, node, module)
        case _BatchNorm():
            fold_norm_(_conv_before(fused, node, calls), module, str(node.target))
            _drop_norm_(fused, node, module)
        case PolynomialAttention():
            _fold_scale_(fused, node, module.scale, 0.0, calls)
            decompose_(fused, node, module.pieces(separate=len(arguments(node)) > 1))
        case SoftmaxAttention():
            unfold_softmax_(fused, node, module, calls)
        case nn.Softmax() if len(node.meta.get(SHAPE, ())) == 2 and any(user.op != "output" for user in node.users):
            decompose_(fused, node, DecomposedSoftmax(node.meta[SHAPE][0]))
        case nn.LayerNorm() | nn.RMSNorm() | nn.GroupNorm() | nn.InstanceNorm2d():
            unfold_norm_(fused, node, module, calls)
        case _:
            pass


def _fold_channels_last_(fused: fx.GraphModule, node: fx.Node, norm: _BatchNorm, calls: Mapping[Any, int]) -> None:
    """Fold a batch norm of tokens or vectors into the linear layer before it, or into those behind it."""
    place = neighbours.place_of(fused, node)
    if place is None and isinstance(norm, nn.BatchNorm1d):
        raise _cannot_fold(node, neighbours.VECTORS, neighbours.FLATTEN)
    if place and not place.behind:
        _check_single_use(node, [*place.layers], "batch norm", calls)
        fold_norm_(_layer_of(fused, place.layers[0]), norm, str(node.target))
        return
    for name, layer in _layers_behind(fused, node, calls).items():
        fold_norm_before_(layer, norm, name)


def _fold_scale_(fused: fx.GraphModule, node: fx.Node, scale: float, shift: float, calls: Mapping[Any, int]) -> None:
    """Fold one scale and shift of all values into the layer before them, or the scale alone into those behind."""
    place = neighbours.place_of(fused, node)
    if place is None:
        rule = "values must be scaled and shifted right behind a layer, or scaled right before layers"
        raise _cannot_fold(node, rule, "use polynomial_, which puts a layer there")
    if any(calls[layer_node.target] > 1 for layer_node in (node, *place.layers)):
        rule = "a scale or an attention and the layers it is folded into must be used once"
        raise _cannot_fold(node, rule, "give each use its own module")
    for layer_node in place.layers:
        layer, name = _layer_of(fused, layer_node), str(layer_node.target)
        if place.behind:
            scale_input_(layer, scale, name)
        else:
            ones = layer.weight.new_ones(layer.weight.shape[0])
            scale_outputs_(layer, scale * ones, shift / scale * ones, name)


def _fold_squares_(fused: fx.GraphModule, calls: Mapping[Any, int]) -> None:
    """Replace every AESPA by a plain square, from the last activation to the first."""
    pending: dict[fx.Node, Tensor] = {}
    for node in reversed(fused.graph.nodes):
        module = module_of(fused, node)
        if isinstance(module, Aespa):
            coefficients = module.coefficients(module.running_var.double(), module.running_square_var.double())
            scale, shift = (value.detach().repeat_interleave(module.block_size) for value in coefficients)
        elif node in pending:
            scale, shift = torch.ones_like(pending[node]), torch.zeros_like(pending[node])
        else:
            continue
        terms = _checked_summands(fused, node, calls)
        scale = scale * pending.pop(node, torch.ones_like(scale))
        for index, layer in enumerate(terms.layers):
            own_shift = shift if index == 0 else torch.zeros_like(shift)
            scale_outputs_(_layer_of(fused, layer), scale, own_shift, str(layer.target))
        for square in terms.squares:
            _check_readers(fused, square, terms)
            pending[square] = pending.get(square, torch.ones_like(scale)) * scale.sqrt()
            for reader in neighbours.readers(fused, square):
                scale_inputs_(_layer_of(fused, reader), 1 / scale, str(reader.target))
        if isinstance(module, Aespa):
            fused.set_submodule(str(node.target), Square())


def _fold_pools_before_norms_(fused: fx.GraphModule, calls: Mapping[Any, int]) -> None:
    """Make divisors of averages that norms alone read powers of two; a norm of s x has s^2 times the epsilon."""
    for node in fused.graph.nodes:
        pool = module_of(fused, node)
        if not isinstance(pool, nn.AvgPool2d) or calls[node.target] > 1 or not (divisor := divisor_of(pool)):
            continue
        behind = neighbours.layers_behind(fused, node, _NORMS)
        if not behind or any(calls[reader.target] > 1 for reader in behind):
            continue
        pool.divisor_override = power = power_beside(divisor)
        for norm in (module_of(fused, reader) for reader in behind):
            assert isinstance(norm, _NORMS)
            norm.eps = epsilon_of(norm) * (divisor / power) ** 2


def _put_layer_behind_(fused: fx.GraphModule, node: fx.Node, factor: float) -> bool:
    """Put a depthwise convolution that scales all values behind an average; return whether its map's size is known."""
    shape = node.all_input_nodes[0].meta.get(SHAPE, ())
    if len(shape) != 3:
        return False
    layer = nn.Conv2d(shape[0], shape[0], 1, groups=shape[0], bias=False, dtype=torch.float64).requires_grad_(False)
    nn.init.constant_(layer.weight, factor)
    fused.add_submodule(name := f"{node.target}_factor", layer.train(fused.training))
    with fused.graph.inserting_after(node):
        behind = fused.graph.call_module(name, (node,))
    node.replace_all_uses_with(behind, delete_user_cb=lambda user: user is not behind)
    return True


def _fold_pools_(fused: fx.GraphModule, calls: Mapping[Any, int]) -> None:
    """Make the divisors of average poolings powers of two where only linear layers read the result."""
    for node in list(fused.graph.nodes):
        pool = module_of(fused, node)
        if not isinstance(pool, nn.AvgPool2d) or calls[node.target] > 1:
            continue
        divisor, layers = divisor_of(pool), neighbours.layers_behind(fused, node)
        power = power_beside(divisor or 1)
        if divisor in (None, power):
            continue
        if not layers or any(calls[layer.target] > 1 for layer in layers):
            if divisor and _put_layer_behind_(fused, node, power / divisor):
                pool.divisor_override = power
            continue
        pool.divisor_override = power
        for reader in layers:
            scale_input_(_layer_of(fused, reader), power / divisor, str(reader.target))


def _pool_first_(fused: fx.GraphModule) -> None:
    """Let max pools take the largest of values before a ReLU, not behind it."""
    for node in list(fused.graph.nodes):
        if not isinstance(module_of(fused, node), nn.MaxPool2d):
            continue
        before = node.all_input_nodes[0]
        if isinstance(module_of(fused, before), nn.ReLU | nn.ReLU6) and len(before.users) == 1:
            source = before.all_input_nodes[0]
            node.replace_all_uses_with(before)
            node.replace_input_with(before, source)
            before.replace_input_with(source, node)
            node.append(before)


def _cannot_fold(node: fx.Node, rule: str, remedy: str) -> RuleError:
    return RuleError(rule, got=f"{str(node.target)!r} after {str(node.all_input_nodes[0].target)!r}", remedy=remedy)


def _layer_of(fused: fx.GraphModule, node: fx.Node) -> WeightedLayer:
    layer = module_of(fused, node)
    assert isinstance(layer, WeightedLayer)
    return layer


def _layers_behind(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> dict[str, nn.Linear]:
    """Return the linear layers, by name, that read a node's channels; raise if anything else does."""
    readers = {str(user.target): module_of(fused, user) for user in neighbours.channel_readers(fused, node)}
    layers = {name: module for name, module in readers.items() if isinstance(module, nn.Linear)}
    if len(layers) != len(readers):
        unsupported = ", ".join(name for name in readers if name not in layers)
        rule = "a batch norm of tokens must feed only linear layers"
        raise RuleError(rule, got=f"{str(node.target)!r} before {unsupported}", remedy="reorder the layers")
    if any(calls[name] > 1 for name in (node.target, *layers)):
        rule = "a batch norm and the layers behind it must be used once"
        raise RuleError(rule, got=repr(str(node.target)), remedy="give each use its own module")
    return layers


def _conv_before(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> nn.Conv1d | nn.Conv2d:
    """Return the convolution that a batch norm's node can be folded into."""
    place = neighbours.place_of(fused, node)
    before = place.layers[0] if place else node.all_input_nodes[0]
    layer = module_of(fused, before)
    if not isinstance(layer, nn.Conv1d | nn.Conv2d):
        raise _cannot_fold(node, "a batch norm must directly follow a convolution", "reorder the layers")
    _check_single_use(node, [before], "batch norm", calls)
    return layer


def _check_single_use(node: fx.Node, before: list[fx.Node], kind: str, calls: Mapping[Any, int]) -> None:
    if any(len(source.users) > 1 for source in before):
        raise _cannot_fold(node, f"a convolution must feed only its {kind}", f"use the output of its {kind}")
    if any(calls[call.target] > 1 for call in [node, *before] if call.op == "call_module"):
        rule = f"a convolution and its {kind} must be used once"
        raise _cannot_fold(node, rule, "give each use its own module")


def _checked_summands(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> neighbours.Summands:
    """Return what an activation's scale and shift can be folded into."""
    terms = neighbours.summands(fused, node)
    if terms.others or not terms.layers:
        rule = "AESPA must directly follow a convolution, or a sum of convolutions and squares"
        raise _cannot_fold(node, rule, "reorder the layers")
    _check_single_use(node, [*terms.layers, *terms.between], "AESPA", calls)
    return terms


def _check_readers(fused: fx.GraphModule, square: fx.Node, terms: neighbours.Summands) -> None:
    strangers = set(neighbours.uses(fused, square)) - set(terms.between) - set(neighbours.readers(fused, square))
    if strangers:
        rule = "a square that is added before an AESPA must feed only that sum and layers"
        raise RuleError(
            rule, got=f"{square.name!r} feeds {', '.join(map(str, strangers))}", remedy="reorder the layers"
        )


def _drop_norm_(fused: fx.GraphModule, node: fx.Node, norm: nn.Module) -> None:
    """Remove a folded batch norm from the graph, but keep the modules that it ran afterwards."""
    if after := inside(norm):
        rest = nn.Sequential()
        for name, child in after.items():
            rest.add_module(name, child)
        fused.set_submodule(str(node.target), rest.eval())
        return
    _skip_(fused, node)
    fused.delete_submodule(str(node.target))


def _skip_(fused: fx.GraphModule, node: fx.Node) -> None:
    """Remove a node that does nothing from the graph."""
    node.replace_all_uses_with(node.all_input_nodes[0])
    fused.graph.erase_node(node)
