"""Steps of a fake-quantized graph: what every value's step is, and how the quantizers' steps are set.

Real value = integer x 2^log_step. A linear layer adds its weights' log step, a square doubles, a product of two values
adds theirs, a pool subtracts, and a quantizer sets; it can only coarsen, because it becomes a truncation. Summands of a
residual must have the same step, so the quantizers that feed one sum share the coarsest of theirs. Calibration, guard
bits and learning (nn.learned) say which steps they want; :func:`settle_steps` makes them keep these rules.
"""

import copy

import torch
from torch import fx, nn

from privcirnet.errors import RuleError
from privcirnet.functional.quantize import log_step_for
from privcirnet.nn.activations import Square
from privcirnet.nn.graph import module_of
from privcirnet.nn.quantizers import ActivationQuantizer, WeightQuantizer, quantizer_of
from privcirnet.nn.tokens import Channels, HeadProduct, HeadTranspose, Take, Tokens

MAX_LOG_STEP = 32
"""Steps over this come only from a residual whose branch is coarser than what it is added to, which never ends."""

_PASSES_STEP = (nn.Identity, nn.Dropout, nn.Flatten, Tokens, Take, Channels, HeadTranspose)


def weighted_modules(graph: fx.GraphModule) -> list[nn.Linear | nn.Conv2d]:
    """Linear layers and convolutions that a graph calls, in order."""
    return [m for _, m in called_modules(graph) if isinstance(m, nn.Linear | nn.Conv2d)]


def called_modules(graph: fx.GraphModule) -> list[tuple[fx.Node, nn.Module]]:
    """The modules that a graph calls with their nodes, in order."""
    return [(n, graph.get_submodule(str(n.target))) for n in graph.graph.nodes if n.op == "call_module"]


@torch.no_grad()
def calibrate(graph: fx.GraphModule, largest: dict[str, float], input_log_step: int, bits: int) -> None:
    """Set every step from the largest values that the fused network gave on the images."""
    for module in weighted_modules(graph):
        quantizer = quantizer_of(module)
        assert isinstance(quantizer, WeightQuantizer)
        stored = module.parametrizations["weight"].original  # type: ignore[index]
        quantizer.log_step.fill_(log_step_for(stored.abs().max().item(), quantizer.bits))
    for node, module in called_modules(graph):
        if isinstance(module, ActivationQuantizer):
            module.log_step.fill_(_wanted_step(graph, node, largest, input_log_step, bits))
    settle_steps(graph, input_log_step)


def refine(graph: fx.GraphModule, guard_bits: int) -> fx.GraphModule:
    """A copy whose activations keep ``guard_bits`` more fractional bits; weights and input stay as they are.

    A truncation on shares is off by up to one unit in the last place, at random. With guard bits that unit is
    2^-guard_bits of the step that the network was trained for.

    Args:
        graph: from :func:`quantize`, trained; left as it was.
        guard_bits: 0 or more; a step never becomes finer than the sum that it rounds.
    """
    refined = copy.deepcopy(graph)
    quantizers = [m for _, m in called_modules(refined) if isinstance(m, ActivationQuantizer)]
    input_log_step = int(quantizers[0].log_step)
    for quantizer in quantizers[1:]:
        quantizer.log_step -= guard_bits
    settle_steps(refined, input_log_step)
    return refined


def settle_steps(graph: fx.GraphModule, input_log_step: int) -> None:
    """Give the summands of each sum their coarsest step, raise steps finer than what they round, follow with biases."""
    groups = groups_of(graph)
    for group in groups:
        _set_steps(graph, group, max(int(activation_quantizer(graph, node).log_step) for node in group))
    while _raise_too_fine_steps(graph, groups, input_log_step):
        pass
    steps = incoming_steps(graph, input_log_step)
    for node, module in called_modules(graph):
        if isinstance(module, ActivationQuantizer) and node.all_input_nodes[0].op == "placeholder":
            _check_input_step(node, int(module.log_step), input_log_step)
        if bias := quantizer_of(module, "bias"):
            bias.log_step.fill_(_step_after(graph, node, steps[node]))


def _check_input_step(node: fx.Node, log_step: int, input_log_step: int) -> None:
    if log_step != input_log_step:
        raise RuleError(
            "the image can't be rescaled to the step of a sum",
            got=f"step 2^{log_step} for 2^{input_log_step} at {node.all_input_nodes[0].name}",
            remedy="put a convolution before the residual",
        )


def incoming_steps(graph: fx.GraphModule, input_log_step: int) -> dict[fx.Node, int]:
    """Log step of the values that enter each node; of a product the sum of both."""
    outgoing: dict[fx.Node, int] = {}
    incoming: dict[fx.Node, int] = {}
    for node in graph.graph.nodes:
        steps = [outgoing[source] for source in node.all_input_nodes]
        product = isinstance(module_of(graph, node), HeadProduct)
        step = sum(steps) if product else max(steps, default=input_log_step)
        incoming[node] = step
        outgoing[node] = _step_after(graph, node, step)
    return incoming


def _step_after(graph: fx.GraphModule, node: fx.Node, step: int) -> int:
    module = module_of(graph, node)
    match module:
        case ActivationQuantizer():
            return int(module.log_step)
        case nn.Linear() | nn.Conv2d():
            quantizer = quantizer_of(module)
            assert quantizer
            return step + int(quantizer.log_step)
        case Square():
            return 2 * step
        case nn.AvgPool2d():
            return step - 2 * (pool_window(module, str(node.target)).bit_length() - 1)
        case _:
            return step


def pool_window(pool: nn.AvgPool2d, name: str) -> int:
    """Return the side of a pooling window whose mean is a sum and a change of step.

    Raises:
        RuleError: windows that are not square, overlap, are padded, or whose area is not a power of two.
    """
    side = pool.kernel_size
    beside = pool.stride == side and pool.padding == 0 and not pool.ceil_mode and pool.divisor_override is None
    if not isinstance(side, int) or not beside or side & (side - 1):
        raise RuleError(
            "average pooling must have square windows side by side whose area is a power of two",
            got=f"{name}: {pool}",
            remedy="use a kernel of 2, 4 or 8 with the same stride",
        )
    return side


def _raise_too_fine_steps(graph: fx.GraphModule, groups: list[list[fx.Node]], input_log_step: int) -> bool:
    """Raise the steps of groups that are finer than what they round (a truncation can only coarsen)."""
    incoming = incoming_steps(graph, input_log_step)
    raised = False
    for group in groups:
        least = max(incoming[node] for node in group)
        if int(activation_quantizer(graph, group[0]).log_step) < least:
            if least > MAX_LOG_STEP:
                raise RuleError(
                    "a residual's branch must not be coarser than what it is added to",
                    got=f"steps over 2^{MAX_LOG_STEP} at {', '.join(node.name for node in group)}",
                    remedy="make the weights of the branch smaller",
                )
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
        activation_quantizer(graph, node).log_step.fill_(step)


def activation_quantizer(graph: fx.GraphModule, node: fx.Node) -> ActivationQuantizer:
    """The quantizer that a node calls."""
    module = graph.get_submodule(str(node.target))
    assert isinstance(module, ActivationQuantizer)
    return module


def groups_of(graph: fx.GraphModule) -> list[list[fx.Node]]:
    """Quantizer nodes, those that feed one sum together (they must share a step)."""
    quantizers = [n for n, m in called_modules(graph) if isinstance(m, ActivationQuantizer)]
    group_of: dict[fx.Node, list[fx.Node]] = {node: [node] for node in quantizers}
    for node in graph.graph.nodes:
        if len(node.all_input_nodes) < 2 or isinstance(module_of(graph, node), HeadProduct):
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
        module = module_of(graph, node)
        if isinstance(module, ActivationQuantizer):
            return node
        if not node.all_input_nodes or (module is not None and not isinstance(module, _PASSES_STEP)):
            raise RuleError(
                "summands of a residual must come from a quantized activation",
                got=f"{node.name} ({type(module).__name__ if module is not None else node.op})",
                remedy="add before pooling, and only what the network computed",
            )
        node = node.all_input_nodes[0]
