"""Translation of a fake-quantized graph into an integer program, node by node, exact activations and maxima included.

Layers are left unplanned: they have a shape and a block size, which is all that the network says of them.

Values of a map (N, C, H, W) are (C, H, W) in a program, tokens (N, T, C) are (C, T, 1), vectors (N, C) are (C, 1, 1).
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import torch
from torch import fx, nn

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import unplanned, unplanned_factor
from privcirnet.he.program import operations as op
from privcirnet.he.program.lookup_table import tabulated
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.rearrangement import Rearrangement
from privcirnet.nn.activations import Square
from privcirnet.nn.exact_functions import Centered, SubtractMax, SumChannels
from privcirnet.nn.graph import module_of
from privcirnet.nn.moves import Concat, HeadProduct, HeadTranspose, Rearrange, SliceChannels, Take, ToTokens, grid_of
from privcirnet.nn.quantization_steps import factors
from privcirnet.nn.quantizers import ActivationQuantizer
from privcirnet.nn.supported_modules import function_name, row_of
from privcirnet.nn.windows import pair, pool_window
from privcirnet.passes.lower.layers import Numbers, Shape, constants, linear_shape, quantized


class Rounding(NamedTuple):
    """log2 of the steps around an activation: of its input's integers, to which they are rounded before, and after.

    Attributes:
        ends: limits to which they are clipped before, None if they are not.
    """

    given: int
    before: int
    after: int
    ends: tuple[int, int] | None = None

    @property
    def bits(self) -> int:
        """Bits that go before."""
        return self.before - self.given


def _relu6(name: str, rounding: Rounding) -> op.Operation:
    top = 6 * 2.0**-rounding.before
    if not top.is_integer():
        got, remedy = f"step 2^{rounding.before} at {name}", "calibrate the network again, with more bits"
        raise RuleError("a ReLU6 must clip at a whole number of steps", got=got, remedy=remedy)
    return op.ExactReLU(rounding.bits, most=int(top))


def _table(function: str, name: str, rounding: Rounding) -> op.Operation:
    if rounding.ends is None:
        remedy = "quantize the network again"
        raise RuleError("what a table takes must be quantized and clipped before", got=name, remedy=remedy)
    return tabulated(function, *(rounding.bits, rounding.before, rounding.after), *rounding.ends)


COMPARED: dict[str, Callable[[str, Rounding], op.Operation]] = {
    "relu": lambda name, rounding: op.ExactReLU(rounding.bits),
    "relu6": _relu6,
}
"""(module's name, steps) -> operation of a function without a table, by its name in :mod:`nn.supported_modules`.

Its values have the step of its input.
"""


def exact_form(function: str, name: str, rounding: Rounding) -> op.Operation:
    """Return the operation of a function that runs exactly; ``name``: name of its module."""
    compared = COMPARED.get(function)
    return compared(name, rounding) if compared else _table(function, name, rounding)


def max_pool(module: nn.MaxPool2d, shape: Shape) -> op.MaxPool:
    """Return the operation of a max pool; ``shape``: shape (C, H, W) of its input."""
    kernel, stride, padding = map(pair, (module.kernel_size, module.stride, module.padding))
    rows, columns = (_windows(kernel[i], stride[i], padding[i], shape[1 + i], module.ceil_mode) for i in (0, 1))
    return op.MaxPool(kernel, stride, padding, (rows, columns))


def _windows(kernel: int, stride: int, padding: int, size: int, ceil_mode: bool) -> int:
    """Return how many windows torch takes along an axis: none begins behind the last value."""
    rest = size + 2 * padding - kernel
    count = (-(-rest // stride) if ceil_mode else rest // stride) + 1
    return count - (ceil_mode and (count - 1) * stride >= size + padding)


class ProgramBuilder:
    """Nodes and weights collected while walking a graph of supported operations.

    Args:
        input_shape: (C, H, W).
        input_log_step: real pixel = integer x 2^input_log_step.
        numbers: form of the weights.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        source: op.Input,
        input_shape: Shape,
        input_log_step: int,
        numbers: Numbers = quantized,
    ) -> None:
        self.graph, self.source, self._numbers = graph, source, numbers
        self.input_shape, self.input_log_step = input_shape, input_log_step
        self.nodes: dict[str, Node] = {}
        self.weights: dict[str, Weights] = {}
        self._lowered: dict[fx.Node, Node] = {}
        self._tokens: set[str] = set()
        self._rounded_behind: dict[fx.Node, int] = {}
        self._depths: dict[str, int] = {}

    def visit(self, node: fx.Node) -> None:
        """Lower one node; a node that does nothing stands for its input.

        Raises:
            RuleError: a module that does not fit its input or has no integer form with these arguments.
        """
        if node.op == "placeholder":
            pixels = Node(node.name, self.source, (), self.input_shape, self.input_log_step)
            self._keep(node, pixels)
        elif node.op != "output":
            self._visit_operation(node, [self._lowered[source] for source in node.all_input_nodes])

    def _visit_operation(self, node: fx.Node, inputs: list[Node]) -> None:
        module = module_of(self.graph, node)
        self._check_layout(node, module, inputs[0])
        match module:
            case nn.Conv2d() | nn.Linear():
                self._keep(node, self._linear(node, module, inputs[0]))
            case ActivationQuantizer():
                self._truncate(node, module, inputs[0])
            case Square():
                self._keep(node, self._node(node, op.Square(), inputs, 2 * inputs[0].log_step))
            case nn.AvgPool2d() | nn.AdaptiveAvgPool2d():
                pool = module if isinstance(module, nn.AvgPool2d) else nn.AvgPool2d(inputs[0].shape[1:])
                self._keep(node, self._pool(node, pool, inputs[0]))
            case _ if function := function_name(module):
                self._keep(node, self._function(node, function, inputs))
            case HeadProduct():
                self._keep(node, self._product(node, module, [self._lowered[source] for source in factors(node)]))
            case Concat():
                parts = self._alike([self._lowered[source] for source in node.args if isinstance(source, fx.Node)])
                self._keep(node, self._concat(node, parts))
            case None:
                self._keep(node, self._node(node, op.Add(), self._alike(self._unrounded(node, inputs))))
            case _ if row_of(module).kind == "nothing" or self._is_image(module, inputs[0]):
                self._lowered[node] = inputs[0]
            case _:
                self._keep(node, self._of_one_value(node, module, inputs[0]))

    def _keep(self, node: fx.Node, lowered: Node) -> None:
        self._lowered[node] = lowered
        self._append(lowered)
        match module_of(self.graph, node):
            case ToTokens():
                are_tokens = True
            case Take():
                are_tokens = False
            case Rearrange(after=after):
                are_tokens = len(after) == 2
            case _:
                are_tokens = not self._tokens.isdisjoint(lowered.inputs)
        if are_tokens:
            self._tokens.add(lowered.name)

    @staticmethod
    def _is_image(module: nn.Module, source: Node) -> bool:
        """Return whether a module gives signals (N, C, L) their row, which an image of a program has already."""
        in_order = isinstance(module, Rearrange) and (module.grid.offset, *module.grid.strides) in ((0, 1), (0,))
        return not source.inputs and in_order and module.after == source.shape

    def _append(self, lowered: Node) -> None:
        self.nodes[lowered.name] = lowered
        self._depths[lowered.name] = 1 + max((self._depths[name] for name in lowered.inputs), default=0)

    def _check_layout(self, node: fx.Node, module: nn.Module | None, source: Node) -> None:
        """Raise where torch would take the axes of tokens for those of a map, or the reverse."""
        of_maps, of_tokens = (nn.Conv2d, nn.AvgPool2d, nn.Flatten), (Take,)
        are_tokens = source.name in self._tokens
        linear_on_map = isinstance(module, nn.Linear) and not are_tokens and source.shape[1:] != (1, 1)
        if (isinstance(module, of_maps) and are_tokens) or (isinstance(module, of_tokens) and not are_tokens):
            got = f"{node.target} on {'tokens' if are_tokens else 'a map'}"
            remedy = "take a token first, or reorder the layers"
            raise RuleError("maps and tokens must not be mixed", got=got, remedy=remedy)
        if linear_on_map:
            got = f"{node.target} on {source.shape}"
            raise RuleError("a linear layer must follow a flatten or tokens", got=got, remedy="flatten first")

    def _node(self, node: fx.Node, operation: op.Operation, inputs: list[Node], log_step: int | None = None) -> Node:
        step = inputs[0].log_step if log_step is None else log_step
        names = tuple(source.name for source in inputs)
        return Node(node.name, operation, names, inputs[0].shape, step, str(node.target))

    def _unrounded(self, node: fx.Node, inputs: list[Node]) -> list[Node]:
        """Return summands. An exact ReLU that alone reads their sum rounds for one of them, with the same result.

        The others are whole numbers of its steps. Of two rounded summands, that with the longer path is left unrounded.
        """
        behind = [function_name(module_of(self.graph, user)) for user in node.users]
        alone = [self._lowered[source] for source in node.all_input_nodes if len(source.users) == 1]
        rounded = [term for term in alone if isinstance(term.operation, op.Truncate)]
        one_step = len({source.log_step for source in inputs}) == 1
        if not (rounded and one_step and behind in (["relu"], ["relu6"])):
            return inputs
        last = max(rounded, key=lambda term: self._depths[term.name])
        del self.nodes[last.name]
        self._rounded_behind[node] = last.log_step
        return [self.nodes[source.inputs[0]] if source is last else source for source in inputs]

    def _alike(self, inputs: list[Node]) -> list[Node]:
        """Return summands with one step, the finest: one behind a pool has a finer step than its quantizer's."""
        finest = min(source.log_step for source in inputs)
        return [source if source.log_step == finest else self._scaled(source, finest) for source in inputs]

    def _scaled(self, source: Node, log_step: int) -> Node:
        name, operation = f"{source.name}_at_{-log_step}", op.Scale(source.log_step - log_step)
        if name not in self.nodes:
            self._append(Node(name, operation, (source.name,), source.shape, log_step, source.module))
        return self.nodes[name]

    def _concat(self, node: fx.Node, parts: list[Node]) -> Node:
        shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        names = tuple(part.name for part in parts)
        return Node(node.name, op.Concat(len(parts)), names, shape, parts[0].log_step, str(node.target))

    def _of_one_value(self, node: fx.Node, module: nn.Module, source: Node) -> Node:
        log_step = source.log_step
        match module:
            case Centered():
                operation, log_step = op.Center(module.width), log_step - module.bits
            case SumChannels():
                operation = op.SumChannels(module.groups, source.shape[0] // module.groups)
                self.weights[node.name] = constants(module.bias, log_step, str(node.target))
            case SubtractMax():
                operation = op.SubtractMax(module.groups, source.shape)
            case Rearrange():
                operation = self._gather(node, module, source)
            case nn.MaxPool2d():
                operation = max_pool(module, source.shape)
            case _:
                operation = _rearrangement_of(module)
        if isinstance(module, ToTokens):
            self.weights[node.name] = constants(module.constants.T, source.log_step, str(node.target))
        shape = operation.shape_after([source.shape])
        return Node(node.name, operation, (source.name,), shape, log_step, str(node.target))

    def _gather(self, node: fx.Node, module: Rearrange, source: Node) -> op.AsStrided:
        """Return a move; the program counts places channels first, the network those of tokens channels last."""
        numbers = torch.arange(prod(source.shape))
        if source.name in self._tokens:
            numbers = numbers.view(source.shape[0], -1).T
        places = module(numbers.reshape(1, *module.before))[0]
        if places.ndim < 3:
            places = places.reshape(-1, module.after[-1]).T[..., None]
        grid = grid_of(places)
        if grid is None:
            got, remedy = f"{node.target} ({module.extra_repr()})", "move whole axes"
            raise RuleError("values must be moved along a grid of channels and places", got=got, remedy=remedy)
        channels, height, width = places.shape
        return op.AsStrided((channels, height, width), grid.offset, grid.sizes, grid.strides)

    def _truncate(self, node: fx.Node, module: ActivationQuantizer, source: Node) -> None:
        bits = int(module.log_step) - source.log_step
        if bits < 0:
            raise RuleError(
                "a quantizer can only coarsen",
                got=f"{node.name}: step 2^{int(module.log_step)} after 2^{source.log_step}",
                remedy="calibrate the network again",
            )
        if bits == 0 or self._rounds_itself(node):
            self._lowered[node] = source
        else:
            truncated = Node(
                node.name, op.Truncate(bits), (source.name,), source.shape, int(module.log_step), source.module
            )
            self._keep(node, truncated)

    def _rounds_itself(self, node: fx.Node) -> bool:
        """Return whether an exact activation, which rounds its input, alone follows a quantizer."""
        behind = [function_name(module_of(self.graph, user)) for user in node.users]
        return len(behind) == 1 and behind[0] is not None

    def _function(self, node: fx.Node, function: str, inputs: list[Node]) -> Node:
        """Return the node of an exact function, with the rounding of the quantizers before and behind it."""
        source, input_step = node.all_input_nodes[0], inputs[0].log_step
        quantizer, rounded = module_of(self.graph, source), self._rounded_behind.get(source, input_step)
        before = int(quantizer.log_step) if isinstance(quantizer, ActivationQuantizer) else rounded
        after = before if function in COMPARED else self._step_behind(node, before)
        rounding = Rounding(input_step, before, after, self._ends_before(node))
        operation = exact_form(function, str(node.target), rounding)
        return self._node(node, operation, inputs, rounding.after)

    def _ends_before(self, node: fx.Node) -> tuple[int, int] | None:
        """Return the limits to which the quantizer before a function clips, in its steps."""
        quantizer = module_of(self.graph, node.all_input_nodes[0])
        return quantizer.ends if isinstance(quantizer, ActivationQuantizer) and quantizer.clips else None

    def _step_behind(self, node: fx.Node, before: int) -> int:
        """Return log2 of the step of the quantizer behind a function."""
        behind = [module_of(self.graph, user) for user in node.users]
        return max(
            (int(module.log_step) for module in behind if isinstance(module, ActivationQuantizer)), default=before
        )

    def _pool(self, node: fx.Node, module: nn.AvgPool2d, source: Node) -> Node:
        (rows, columns), bits = pool_window(module, str(node.target))
        operation, log_step = op.SumPool(rows, None if columns == rows else columns), source.log_step - bits
        shape = operation.shape_after([source.shape])
        return Node(node.name, operation, (source.name,), shape, log_step, str(node.target))

    def _linear(self, node: fx.Node, module: nn.Conv2d | nn.Linear, source: Node) -> Node:
        name = str(node.target)
        shape = linear_shape(module, source.shape, name)
        b, self.weights[node.name], log_step = self._numbers(module, source.log_step, name)
        return Node(node.name, op.Linear(unplanned(shape, b)), (source.name,), shape.output_shape, log_step, name)

    def _product(self, node: fx.Node, module: HeadProduct, inputs: list[Node]) -> Node:
        left, right = (source.shape for source in inputs)
        shapes = LinearShape.product(left, right, module.heads), LinearShape.product(right, left, module.heads)
        operation = op.MatMul(*map(unplanned_factor, shapes))
        log_step, names = sum(source.log_step for source in inputs), tuple(source.name for source in inputs)
        bias = torch.zeros(module.heads) if module.bias is None else module.bias
        spread = bias.repeat_interleave(shapes[0].out_channels // module.heads)
        self.weights[node.name] = constants(spread, log_step, str(node.target))
        return Node(node.name, operation, names, shapes[0].output_shape, log_step, str(node.target))


def _rearrangement_of(module: nn.Module) -> Rearrangement:
    match module:
        case nn.Flatten():
            return op.Flatten()
        case ToTokens():
            return op.Tokens()
        case Take():
            return op.Take(module.place)
        case SliceChannels():
            return op.SliceChannels(module.first, module.count)
        case HeadTranspose():
            return op.Transpose(module.heads)
        case _:
            raise AssertionError(module)
