"""The bridge: a fake-quantized network becomes an integer program with proved bounds.

Every node of the network's graph becomes an integer operation: convolutions, depthwise and grouped ones too, and linear
layers with integer weights, activation quantizers as truncations, average pooling as a sum whose division goes into the
step. The weights keep their circulant structure: only the first row of each block row is stored. What has no such
operation is named before anything is lowered.

The integer network does not depend on the encryption parameters, so they are chosen last, from the proved bounds
(:mod:`privcirnet.he.fitting`), and the layers are planned for them.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import fx, nn

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he import bounds, options
from privcirnet.he.chooser import Choice
from privcirnet.he.fitting import Fitted, Target, fit
from privcirnet.he.params import message_bytes
from privcirnet.he.program import (
    Add,
    Flatten,
    Input,
    Linear,
    Node,
    Operation,
    Program,
    SumPool,
    Truncate,
    Weights,
)
from privcirnet.he.program import Square as SquareOperation
from privcirnet.he.shape import LinearShape
from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.quantizers import ActivationQuantizer, quantizer_of
from privcirnet.nn.steps import pool_window, refine

_SUPPORTED = "Conv2d, Linear, BatchNorm2d (fused), Square, AESPA (fused), +, AvgPool2d, Flatten"
_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Lowered:
    """A program and how it came about.

    Attributes:
        fitted: the program, its bounds, the choice of its encryption parameters.
        guard_bits: see :func:`privcirnet.nn.steps.refine`.
        choice: of n and q, made with the least guard bits: more only use the room that is left.
    """

    fitted: Fitted
    guard_bits: int
    choice: Choice

    @property
    def program(self) -> Program:
        """With weights."""
        return self.fitted.program


def lower(
    graph: fx.GraphModule, input_shape: tuple[int, int, int], levels: int, input_log_step: int, target: Target
) -> Program:
    """The integer program of a fake-quantized network.

    Args:
        graph: from :func:`privcirnet.nn.quantize.quantize`, trained.
        input_shape: (C, H, W) of an image.
        levels: pixels are integers in [0, levels].
        input_log_step: real pixel = integer x 2^input_log_step.
        target: profile, link, security of truncation, encryption parameters to choose from.

    Returns:
        program with weights, bounds proved, parameters chosen.

    Raises:
        DoesNotFit: a bound or a modulus out of reach, too little noise budget.
        RuleError: an operation that is not supported, parameters that are not secure.
    """
    return _fitted(graph, Input(0, levels), input_shape, input_log_step, target).program


def lower_refined(  # noqa: PLR0913, PLR0917
    graph: fx.GraphModule,
    input_shape: tuple[int, int, int],
    levels: int,
    input_log_step: int,
    target: Target,
    guard_bits: int,
    least_guard_bits: int = 0,
) -> Lowered:
    """The program with the most guard bits (:func:`privcirnet.nn.steps.refine`) that its modulus has room for.

    Over a link where bytes cost time, only as many as leave replies as short as they are.

    Args:
        graph: as for :func:`lower`.
        input_shape: likewise.
        levels: likewise.
        input_log_step: likewise.
        target: likewise.
        guard_bits: at most this many.
        least_guard_bits: at least this many, which the parameters are chosen for.

    Returns:
        the program and how it came about.

    Raises:
        RuleError: see :func:`lower`; there is no room even with the least guard bits, or something else is wrong.
    """
    source = Input(0, levels)
    plain = _fitted(refine(graph, least_guard_bits), source, input_shape, input_log_step, target)
    fixed = target.at(plain.choice.set)
    for bits in range(guard_bits, least_guard_bits, -1):
        try:
            refined = _fitted(refine(graph, bits), source, input_shape, input_log_step, fixed)
        except DoesNotFit:
            continue
        if not target.link.counts or _bytes(refined) == _bytes(plain):
            return Lowered(refined, bits, plain.choice)
    return Lowered(plain, least_guard_bits, plain.choice)


def _bytes(fitted: Fitted) -> tuple[int, int]:
    return message_bytes(fitted.program.parameters)


def _fitted(
    graph: fx.GraphModule, source: Input, input_shape: tuple[int, int, int], input_log_step: int, target: Target
) -> Fitted:
    _check_operations(graph)
    builder = _Builder(graph, target, source, input_shape, input_log_step)
    for node in graph.graph.nodes:
        builder.visit(node)
    return fit(tuple(builder.nodes), builder.weights, target)


def _check_operations(graph: fx.GraphModule) -> None:
    """Name everything that does not run encrypted, modules by their paths."""
    wrong: list[str] = []
    for node in graph.graph.nodes:
        module = module_of(graph, node)
        if node.op in ("placeholder", "output") or is_sum(node) or _runs_encrypted(module):
            continue
        wrong.append(
            f"{node.target} ({type(module).__name__})" if module is not None else f"{node.name} ({node.target})"
        )
    if wrong:
        more = f" and {len(wrong) - _NAMED_AT_MOST} more" if len(wrong) > _NAMED_AT_MOST else ""
        raise RuleError(
            "every operation must be one that runs encrypted",
            got=", ".join(wrong[:_NAMED_AT_MOST]) + more,
            remedy=f"use {_SUPPORTED}",
        )


def _runs_encrypted(module: nn.Module | None) -> bool:
    match module:
        case nn.Conv2d() | nn.Linear() | ActivationQuantizer() | Square() | nn.AvgPool2d():
            return True
        case nn.Flatten(start_dim=1, end_dim=-1) | nn.Identity() | nn.Dropout():
            return True
        case _:
            return False


class _Builder:
    """Nodes and weights collected while walking the graph."""

    def __init__(
        self,
        graph: fx.GraphModule,
        target: Target,
        source: Input,
        input_shape: tuple[int, int, int],
        input_log_step: int,
    ) -> None:
        self.graph, self.target, self.source = graph, target, source
        self.input_shape, self.input_log_step = input_shape, input_log_step
        self.nodes: list[Node] = []
        self.weights: dict[str, Weights] = {}
        self._lowered: dict[fx.Node, Node] = {}

    def visit(self, node: fx.Node) -> None:
        """Lower one node; nodes that do nothing stand for their input."""
        if node.op == "placeholder":
            made = Node(node.name, self.source, (), self.input_shape, self.input_log_step)
            self._keep(node, made)
        elif node.op != "output":
            self._visit_operation(node, [self._lowered[source] for source in node.all_input_nodes])

    def _visit_operation(self, node: fx.Node, inputs: list[Node]) -> None:
        module = module_of(self.graph, node)
        match module:
            case nn.Conv2d() | nn.Linear():
                self._keep(node, self._linear(node, module, inputs[0]))
            case ActivationQuantizer():
                self._truncate(node, module, inputs[0])
            case Square():
                self._keep(node, self._node(node, SquareOperation(), inputs, 2 * inputs[0].log_step))
            case nn.AvgPool2d():
                self._keep(node, self._pool(node, module, inputs[0]))
            case nn.Flatten():
                self._keep(node, self._node(node, Flatten(), inputs))
            case None:
                self._keep(node, self._node(node, Add(), inputs))
            case nn.Identity() | nn.Dropout():
                self._lowered[node] = inputs[0]
            case _:
                raise AssertionError(module)

    def _keep(self, node: fx.Node, made: Node) -> None:
        self._lowered[node] = made
        self.nodes.append(made)

    def _node(self, node: fx.Node, operation: Operation, inputs: list[Node], log_step: int | None = None) -> Node:
        channels, height, width = inputs[0].shape
        shape = (channels * height * width, 1, 1) if isinstance(operation, Flatten) else inputs[0].shape
        step = inputs[0].log_step if log_step is None else log_step
        return Node(node.name, operation, tuple(source.name for source in inputs), shape, step, str(node.target))

    def _truncate(self, node: fx.Node, module: ActivationQuantizer, source: Node) -> None:
        bits = int(module.log_step) - source.log_step
        if bits < 0:
            raise RuleError(
                "a quantizer can only coarsen",
                got=f"{node.name}: step 2^{int(module.log_step)} after 2^{source.log_step}",
                remedy="calibrate the network again",
            )
        if bits == 0:
            self._lowered[node] = source
        else:
            self._keep(node, self._node(node, Truncate(bits), [source], int(module.log_step)))

    def _pool(self, node: fx.Node, module: nn.AvgPool2d, source: Node) -> Node:
        kernel, (channels, height, width) = pool_window(module, str(node.target)), source.shape
        shape = (channels, height // kernel, width // kernel)
        log_step = source.log_step - 2 * (kernel.bit_length() - 1)
        return Node(node.name, SumPool(kernel), (source.name,), shape, log_step, str(node.target))

    def _linear(self, node: fx.Node, module: nn.Conv2d | nn.Linear, source: Node) -> Node:
        shape, b = linear_shape(module, source.shape, str(node.target)), block_size_of(module)
        layer = options.planned_layer(shape, b, self.target.profile, self.target.link)
        made = Node(
            node.name,
            Linear(layer),
            (source.name,),
            shape.output_shape,
            source.log_step + _weight_log_step(module, str(node.target)),
            str(node.target),
        )
        self.weights[node.name] = _integer_weights(module, b, made.log_step - source.log_step, made.log_step)
        return made


def linear_shape(module: nn.Conv2d | nn.Linear, input_shape: tuple[int, int, int], name: str) -> LinearShape:
    """Dimensions of a layer on an input (C, H, W).

    Raises:
        RuleError: a convolution that is dilated, not square, or not padded with zeros.
    """
    channels, height, width = input_shape
    if isinstance(module, nn.Linear):
        if (channels, height, width) != (module.in_features, 1, 1):
            got = f"{name} on {input_shape}"
            raise RuleError("a linear layer must follow a flatten", got=got, remedy="flatten first")
        return LinearShape.gemm(1, channels, module.out_features)
    kernel, stride, padding = module.kernel_size, module.stride, module.padding
    square = kernel[0] == kernel[1] and stride[0] == stride[1] and not isinstance(padding, str)
    plain = module.dilation == (1, 1) and module.padding_mode == "zeros"
    if not (square and plain and padding[0] == padding[1]):
        raise RuleError(
            "a convolution must be square, with no dilation and zero padding",
            got=f"{name}: Conv2d({module.extra_repr()})",
            remedy="replace it by such a convolution",
        )
    sizes = module.out_channels, kernel[0], stride[0], int(padding[0]), module.groups
    return LinearShape(height, width, channels, *sizes)


def _weight_log_step(module: nn.Module, name: str) -> int:
    quantizer = quantizer_of(module)
    if quantizer is None:
        raise RuleError("weights must be quantized before lowering", got=name, remedy="run the qat stage of train.py")
    return int(quantizer.log_step)


@torch.no_grad()
def _integer_weights(module: nn.Conv2d | nn.Linear, b: int, weight_log_step: int, log_step: int) -> Weights:
    dense = module.weight.double() * 2.0**-weight_log_step
    rows = dense[::b].round().to(torch.int64)
    rows = rows.reshape(*rows.shape[:2], *(module.kernel_size if isinstance(module, nn.Conv2d) else (1, 1)))
    if module.bias is None:
        bias = torch.zeros(dense.shape[0], dtype=torch.int64)
    else:
        exact = module.bias.double() * 2.0**-log_step
        if exact.abs().max() >= 2.0**bounds.MAX_BOUND_BITS:
            raise DoesNotFit(
                f"a bias must be under 2^{bounds.MAX_BOUND_BITS} steps",
                got=f"{module.bias.abs().max().item():g} with a step of 2^{log_step}, weights of 2^{weight_log_step}",
                remedy="train the layer further if its weights are nearly zero, or use fewer squares in a row",
            )
        bias = exact.round().to(torch.int64)
    return Weights(np.ascontiguousarray(rows.numpy()), bias.numpy())
