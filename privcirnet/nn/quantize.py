"""Quantization-aware training of a fused network: weights as parametrizations, activations as modules in the graph.

Batch norms are folded before (nn.convert.fuse), not after: in the integer network a batch norm's factor can live only
in the weights, because the server's secret factor can't be applied to the client's share. So the ladder goes dense ->
circulant -> fused -> fake-quant -> integer program.

Where quantizers go is where truncations on shares go: after every linear layer but the last, and after every square.
Summands of a residual must have the same step, so the quantizers that feed one sum share the coarsest of theirs.
"""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.functional.quantize import log_step_for, quantize_activation, quantize_weight
from privcirnet.nn.activations import Square

SUFFIX = "_quantizer"
_PASSES_STEP = (nn.Identity, nn.Dropout, nn.Flatten)


class WeightQuantizer(nn.Module):
    """Parametrization: the weight on a power-of-two grid. Commutes with the circulant expansion bit for bit."""

    log_step: Tensor

    def __init__(self, bits: int, log_step: int = 0) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("log_step", torch.tensor(log_step))

    def forward(self, weight: Tensor) -> Tensor:
        """Quantized weight."""
        return quantize_weight(weight, int(self.log_step), self.bits)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The weight itself: a stacked parametrization needs one."""
        return weight


class BiasQuantizer(nn.Module):
    """Parametrization: the bias on the grid of its layer's sums."""

    log_step: Tensor

    def __init__(self, log_step: int = 0) -> None:
        super().__init__()
        self.register_buffer("log_step", torch.tensor(log_step))

    def forward(self, bias: Tensor) -> Tensor:
        """Rounded bias."""
        return quantize_activation(bias, int(self.log_step))

    def right_inverse(self, bias: Tensor) -> Tensor:
        """The bias itself."""
        return bias


class ActivationQuantizer(nn.Module):
    """Rescale of an activation: stochastic in training, as the protocol's truncation is, nearest in evaluation."""

    log_step: Tensor

    def __init__(self, log_step: int = 0) -> None:
        super().__init__()
        self.register_buffer("log_step", torch.tensor(log_step))

    def forward(self, x: Tensor) -> Tensor:
        """Rounded activation."""
        return quantize_activation(x, int(self.log_step), stochastic=self.training)

    def extra_repr(self) -> str:
        """The step."""
        return f"log_step={int(self.log_step)}"


def quantize(
    fused: fx.GraphModule,
    images: Iterable[Tensor] = (),
    input_log_step: int = 0,
    weight_bits: int = 8,
    activation_bits: int = 8,
) -> fx.GraphModule:
    """A fake-quantized copy of a fused network, its steps calibrated on images.

    Args:
        fused: from :func:`privcirnet.nn.convert.fuse`; left as it was.
        images: batches of network inputs; none to leave all steps at 0, for a checkpoint to fill in.
        input_log_step: step of the images.
        weight_bits: 2 to 8.
        activation_bits: of the values seen on ``images``; larger values later on are carried, not clipped.

    Raises:
        RuleError: bits out of range, or a layer kind that is not supported.
    """
    for what, bits in (("weight", weight_bits), ("activation", activation_bits)):
        if not 2 <= bits <= (8 if what == "weight" else 16):
            raise RuleError(f"{what} bits must be in [2, {8 if what == 'weight' else 16}]", got=bits, remedy="use 8")
    graph = copy.deepcopy(fused)
    for module in weighted_modules(graph):
        _give_own_class_(module)
        parametrize.register_parametrization(module, "weight", WeightQuantizer(weight_bits), unsafe=True)
        if module.bias is not None:
            parametrize.register_parametrization(module, "bias", BiasQuantizer(), unsafe=True)
    _insert_quantizers(graph)
    batches = list(images)
    if batches:
        _calibrate(graph, _largest_values(fused, torch.cat(batches)), input_log_step, activation_bits)
    return graph


def _give_own_class_(module: nn.Module) -> None:
    """Separate a copied module from its original: torch's generated class, which a deep copy shares, holds a property
    for each parametrization, so registering one more on the copy would break the original."""
    if parametrize.is_parametrized(module):
        cls = type(module)
        contents = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        module.__class__ = type(cls.__name__, cls.__bases__, contents)


def weighted_modules(graph: fx.GraphModule) -> list[nn.Linear | nn.Conv2d]:
    """Linear layers and convolutions that a graph calls, in order."""
    return [m for _, m in _called(graph) if isinstance(m, nn.Linear | nn.Conv2d)]


def _called(graph: fx.GraphModule) -> list[tuple[fx.Node, nn.Module]]:
    return [(n, graph.get_submodule(str(n.target))) for n in graph.graph.nodes if n.op == "call_module"]


def _insert_quantizers(graph: fx.GraphModule) -> None:
    last = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    modules = dict(_called(graph))
    for node in list(graph.graph.nodes):
        is_linear = isinstance(modules.get(node), nn.Linear | nn.Conv2d)
        is_source = node.op == "placeholder" or isinstance(modules.get(node), Square)
        if (is_linear or is_source) and node is not last:
            name = f"{node.name}{SUFFIX}"
            graph.add_submodule(name, ActivationQuantizer())
            with graph.graph.inserting_after(node):
                inserted = graph.graph.call_module(name, (node,))
            node.replace_all_uses_with(inserted, delete_user_cb=lambda user, new=inserted: user is not new)
    graph.recompile()


def _calibrate(
    graph: fx.GraphModule, largest: dict[str, float], input_log_step: int, bits: int
) -> None:
    """Set every step from the largest values that the fused network gave on the images."""
    for module in weighted_modules(graph):
        quantizer = module.parametrizations.weight[-1]
        biggest = module.parametrizations.weight.original.detach().abs().max().item()
        quantizer.log_step.fill_(log_step_for(biggest, quantizer.bits))
    groups = _groups(graph)
    for group in groups:
        _set_steps(graph, group, max(_wanted_step(graph, node, largest, input_log_step, bits) for node in group))
    while _raise_too_fine_steps(graph, groups, input_log_step):
        pass
    steps = incoming_steps(graph, input_log_step)
    for node, module in _called(graph):
        if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
            weight_step = int(module.parametrizations.weight[-1].log_step)
            module.parametrizations.bias[-1].log_step.fill_(steps[node] + weight_step)


def incoming_steps(graph: fx.GraphModule, input_log_step: int) -> dict[fx.Node, int]:
    """Log step of the values that enter each node."""
    outgoing: dict[fx.Node, int] = {}
    incoming: dict[fx.Node, int] = {}
    for node in graph.graph.nodes:
        step = max((outgoing[source] for source in node.all_input_nodes), default=input_log_step)
        incoming[node] = step
        outgoing[node] = _step_after(graph, node, step)
    return incoming


def _step_after(graph: fx.GraphModule, node: fx.Node, step: int) -> int:
    module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
    match module:
        case ActivationQuantizer():
            return int(module.log_step)
        case nn.Linear() | nn.Conv2d():
            return step + int(module.parametrizations.weight[-1].log_step)
        case Square():
            return 2 * step
        case nn.AvgPool2d():
            return step - 2 * (int(module.kernel_size).bit_length() - 1)
        case _:
            return step


def _raise_too_fine_steps(graph: fx.GraphModule, groups: list[list[fx.Node]], input_log_step: int) -> bool:
    """Raise the steps of groups that are finer than what they round (a truncation can only coarsen)."""
    incoming = incoming_steps(graph, input_log_step)
    raised = False
    for group in groups:
        least = max(incoming[node] for node in group)
        if int(graph.get_submodule(str(group[0].target)).log_step) < least:
            _set_steps(graph, group, least)
            raised = True
    return raised


def _wanted_step(
    graph: fx.GraphModule, node: fx.Node, largest: dict[str, float], input_log_step: int, bits: int
) -> int:
    source = node.all_input_nodes[0]
    if source.op == "placeholder":
        return input_log_step
    squared = isinstance(graph.get_submodule(str(source.target)), Square)
    return log_step_for(largest[source.name], bits, signed=not squared)


def _set_steps(graph: fx.GraphModule, group: list[fx.Node], step: int) -> None:
    for node in group:
        graph.get_submodule(str(node.target)).log_step.fill_(step)


@torch.no_grad()
def _largest_values(fused: fx.GraphModule, images: Tensor) -> dict[str, float]:
    """Largest absolute value of every node of a fused network, by node name."""
    largest: dict[str, float] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if isinstance(result, Tensor):
                largest[n.name] = result.abs().max().item()
            return result

    Recorder(fused).run(images)
    return largest


def _groups(graph: fx.GraphModule) -> list[list[fx.Node]]:
    """Quantizer nodes, those that feed one sum together (they must share a step)."""
    quantizers = [n for n, m in _called(graph) if isinstance(m, ActivationQuantizer)]
    group_of: dict[fx.Node, list[fx.Node]] = {node: [node] for node in quantizers}
    for node in graph.graph.nodes:
        if len(node.all_input_nodes) < 2:
            continue
        merged = {id(g): g for source in node.all_input_nodes for g in [group_of[_origin(graph, source)]]}
        union = [member for group in merged.values() for member in group]
        for member in union:
            group_of[member] = union
    unique = {id(group): group for group in group_of.values()}
    return list(unique.values())


def _origin(graph: fx.GraphModule, node: fx.Node) -> fx.Node:
    """A quantizer whose step a node has."""
    while True:
        module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, ActivationQuantizer):
            return node
        if module is not None and not isinstance(module, _PASSES_STEP):
            raise RuleError(
                "summands of a residual must come from a quantized activation",
                got=f"{node.name} ({type(module).__name__})",
                remedy="add before pooling",
            )
        node = node.all_input_nodes[0]
