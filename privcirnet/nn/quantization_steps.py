"""The steps of a fake-quantized graph: the step of every value, and how the quantizers' steps are set.

Real value = integer x 2^log_step. A linear layer adds its weights' log step. A square doubles the log step, a product
of two values adds theirs, and a pool subtracts. A quantizer sets it; it can only coarsen, because it becomes a
truncation. Summands of a residual need one step, so the quantizers that feed one sum share the coarsest of theirs. A
pool behind one makes its summand finer; the others are then brought to that step by a power of two. Calibration, guard
bits and learning (:func:`learn_steps_`) propose steps; :func:`settle_steps` enforces these rules.
"""

import copy
import functools
import math
from typing import cast

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.exact_functions import Centered, TableFunction
from privcirnet.nn.functional.quantize import SMALLEST, binary_steps, log_step_for
from privcirnet.nn.graph import module_of
from privcirnet.nn.moves import Concat, HeadProduct
from privcirnet.nn.quantizers import ActivationQuantizer, Quantizer, WeightQuantizer, quantizer_of
from privcirnet.nn.supported_modules import has_table, is_polynomial, row_of
from privcirnet.nn.windows import pool_window

MAX_LOG_STEP = 32
"""Limit for steps; only a residual whose branch is coarser than its stream exceeds it, without end."""
MOST_EXPONENT = 16
"""Largest exponent: a row of weights counts as at least 2^-16 times as large as the largest."""
LOGIT_BITS = 10
"""Bits for which the last layer's results, which nothing rounds, count as if they had a step."""

EXP_REACH = 7.9
"""Opposite of the number below which exp is zero: 2^-11, beside a largest one of 1."""


def exp_reach(bits: int) -> float:
    """Return the reach of an exponential of so many bits: the opposite of where it rounds to zero, or further."""
    return max(EXP_REACH, bits * math.log(2))


def weighted_modules(graph: fx.GraphModule) -> list[nn.Linear | nn.Conv2d]:
    """Return the linear layers and convolutions that a graph calls, in order."""
    return [m for _, m in called_modules(graph) if isinstance(m, nn.Linear | nn.Conv2d)]


def called_modules(graph: fx.GraphModule) -> list[tuple[fx.Node, nn.Module]]:
    """Return the modules that a graph calls with their nodes, in order."""
    return [(n, graph.get_submodule(str(n.target))) for n in graph.graph.nodes if n.op == "call_module"]


@torch.no_grad()
def calibrate(graph: fx.GraphModule, largest: dict[str, float], input_log_step: int) -> None:
    """Set every step from the largest values that the fused network gave on images.

    Each output's weights are as fine as their bits allow. But a layer's sums count the finest of these steps. So it is
    no finer than keeps them within the most bits that any layer's would have, were its outputs alike and its weights
    no finer than the sums' rounding can tell: finer weights take no room in the plain modulus. A residual's branch
    counts as if it were as large as the step of its sum is for. In a network of polynomials, whose truncations are
    random, every bit of a sum makes failures likelier: there a layer's outputs have one step.

    Args:
        graph: graph with quantizers; changed in place.
        input_log_step: log2 of the images' step.

    Raises:
        RuleError: a value is not finite, or the rules of :func:`settle_steps` cannot be kept.
    """
    layers = [(node, m) for node, m in called_modules(graph) if isinstance(m, nn.Linear | nn.Conv2d)]
    weight_steps = {node: _wanted_weight_steps(module) for node, module in layers}
    for node, module in layers:
        _set_weight_steps(module, weight_steps[node], int(weight_steps[node].min()))
    for node, module in called_modules(graph):
        if isinstance(module, ActivationQuantizer):
            module.log_step.fill_(_wanted_step(graph, node, largest, input_log_step))
    settle_steps(graph, input_log_step)
    incoming, bits, room = incoming_steps(graph, input_log_step), dict[fx.Node, float](), 0.0
    for node, module in layers:
        step, min_size = _step_that_counts(graph, node, _weight_quantizer(module).bits, largest)
        source = node.all_input_nodes[0]
        values = source if source.name in largest else source.all_input_nodes[0]  # quantizers came later
        terms = module.weight[0].numel() * max(largest[values.name], 2.0 ** incoming[node])
        size = math.log2(max(largest[node.name], SMALLEST))
        room = max(room, size - incoming[node] - max(int(weight_steps[node].max()), step - math.log2(terms)))
        bits[node] = max(size, min_size) - incoming[node]
    random = is_polynomial(graph)
    for node, module in layers:
        if _weight_quantizer(module).bits > 1:  # of one bit it is all that an output's weights are
            within = max(math.ceil(bits[node] - room), int(weight_steps[node].max()) if random else -math.inf)
            _set_weight_steps(module, weight_steps[node], int(weight_steps[node].clamp(min=within).min()))
    settle_steps(graph, input_log_step)


def _step_that_counts(
    graph: fx.GraphModule, node: fx.Node, weight_bits: int, largest: dict[str, float]
) -> tuple[int, float]:
    """Return log2 of the step to which a layer's results are rounded, and of the least size that this step is for."""
    behind = [module_of(graph, user) for reader in node.users for user in (reader, *reader.users)]
    if quantizers := [module for module in behind if isinstance(module, ActivationQuantizer)]:
        finest = min(quantizers, key=lambda quantizer: int(quantizer.log_step))
        return int(finest.log_step), int(finest.log_step) + min(finest.bits, weight_bits) - 2
    return log_step_for(largest[node.name], LOGIT_BITS), -math.inf


def _wanted_weight_steps(module: nn.Module) -> Tensor:
    """Return log2 of the finest step with which the weights of each row of blocks fit their bits, (rows,)."""
    structures = cast(parametrize.ParametrizationList, module.parametrizations["weight"])  # type: ignore[index]
    *before, _ = structures
    weight = functools.reduce(lambda weight, step: step(weight), before, cast(Tensor, structures.original))
    quantizer = _weight_quantizer(module)
    rows = weight.abs().flatten(1).split(quantizer.block_size)
    if quantizer.bits == 1:
        return binary_steps(torch.stack([row.mean() for row in rows]))
    largest = torch.stack([row.max() for row in rows])
    steps = torch.tensor([log_step_for(row, quantizer.bits) for row in largest.tolist()])
    return steps.clamp(min=int(steps.max()) - MOST_EXPONENT).where(largest.cpu() > 0, steps.max())


def _set_weight_steps(module: nn.Module, steps: Tensor, finest: int) -> None:
    """Give a layer's rows of blocks their own steps, none finer than a limit."""
    quantizer = _weight_quantizer(module)
    quantizer.log_step.fill_(finest)
    quantizer.exponents.copy_((steps - finest).clamp(min=0))


def _weight_quantizer(module: nn.Module) -> WeightQuantizer:
    quantizer = quantizer_of(module)
    assert isinstance(quantizer, WeightQuantizer)
    return quantizer


def refine(graph: fx.GraphModule, guard_bits: int) -> fx.GraphModule:
    """Return a copy whose activations keep more fractional bits; weights and input stay as they are.

    A truncation on shares is off by up to one unit in the last place, at random. With guard bits that unit is
    2^-guard_bits of the step that the network was trained for.

    Args:
        graph: result of :func:`privcirnet.passes.quantize.quantize`, trained; left as it was.
        guard_bits: number of further bits, 0 or more; a step never becomes finer than the sum that it rounds.

    Raises:
        RuleError: the rules of :func:`settle_steps` cannot be kept.
    """
    refined = copy.deepcopy(graph)
    quantizers = [m for _, m in called_modules(refined) if isinstance(m, ActivationQuantizer)]
    input_log_step, before = int(quantizers[0].log_step), [int(quantizer.log_step) for quantizer in quantizers]
    for quantizer in quantizers[1:]:
        quantizer.log_step -= guard_bits
    settle_steps(refined, input_log_step)
    for quantizer, step in zip(quantizers, before, strict=True):
        quantizer.bits += step - int(quantizer.log_step)
    return refined


def settle_steps(graph: fx.GraphModule, input_log_step: int) -> None:
    """Make the steps keep the rules, and set the steps of biases.

    The summands of each sum get their coarsest step, and steps finer than their input's are raised.

    Args:
        graph: graph with quantizers; changed in place.
        input_log_step: log2 of the images' step.

    Raises:
        RuleError: a residual's branch is coarser than its stream, the image would have to be rescaled, or a
            summand does not come from a quantized activation.
    """
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
    """Return the log step of the values that enter each node; of a sum the finest, of a product the sum of both.

    Args:
        input_log_step: log2 of the images' step.
    """
    outgoing: dict[fx.Node, int] = {}
    incoming: dict[fx.Node, int] = {}
    for node in graph.graph.nodes:
        if isinstance(module_of(graph, node), HeadProduct):
            step = sum(outgoing[source] for source in factors(node))
        else:
            step = min((outgoing[source] for source in node.all_input_nodes), default=input_log_step)
        incoming[node] = step
        outgoing[node] = _step_after(graph, node, step)
    return incoming


def factors(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """Return the two values that a product's node multiplies, which may be one and the same."""
    left, right = node.args
    assert isinstance(left, fx.Node)
    assert isinstance(right, fx.Node)
    return left, right


def _step_after(graph: fx.GraphModule, node: fx.Node, step: int) -> int:  # noqa: PLR0911
    module = module_of(graph, node)
    match module:
        case ActivationQuantizer():
            return int(module.log_step)
        case nn.Linear() | nn.Conv2d():
            quantizer = quantizer_of(module)
            assert quantizer is not None
            return step + int(quantizer.log_step)
        case Square():
            return 2 * step
        case Centered():
            return step - module.bits
        case TableFunction():  # whatever the quantizer behind it says
            return -MAX_LOG_STEP
        case nn.AvgPool2d():
            return step - pool_window(module, str(node.target))[1]
        case _ if has_table(module) and _is_last(graph, node):
            return -MAX_LOG_STEP
        case _:
            return step


def _is_last(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node's value is returned, at most rounded and moved."""
    users = [(user, module_of(graph, user)) for user in node.users]
    return all(
        user.op == "output" or ((isinstance(m, ActivationQuantizer) or row_of(m).keeps_step) and _is_last(graph, user))
        for user, m in users
    )


def _raise_too_fine_steps(graph: fx.GraphModule, groups: list[list[fx.Node]], input_log_step: int) -> bool:
    """Raise the steps of groups that are finer than their input's (a truncation can only coarsen)."""
    incoming = incoming_steps(graph, input_log_step)
    raised = False
    for group in groups:
        incoming_step = max(incoming[node] for node in group)
        if int(activation_quantizer(graph, group[0]).log_step) < incoming_step:
            if incoming_step > MAX_LOG_STEP:
                raise RuleError(
                    "a residual's branch must not be coarser than what it is added to",
                    got=f"steps over 2^{MAX_LOG_STEP} at {', '.join(node.name for node in group)}",
                    remedy="make the weights of the branch smaller",
                )
            _set_steps(graph, group, incoming_step)
            raised = True
    return raised


def _wanted_step(graph: fx.GraphModule, node: fx.Node, largest: dict[str, float], input_log_step: int) -> int:
    """Return the finest step with which the largest value that counts fits the quantizer's bits."""
    source, behind = node.all_input_nodes[0], rectifiers(graph, node)
    if source.op == "placeholder":
        return input_log_step
    counts, quantizer = (
        max(largest[rectifier.name] for rectifier in behind or [source]),
        activation_quantizer(graph, node),
    )
    if quantizer.clips == "exp":
        (exponential,) = node.users
        behind_it = [module_of(graph, user) for user in exponential.users]
        counts = min(counts, exp_reach(max(m.bits for m in behind_it if isinstance(m, ActivationQuantizer))))
    return log_step_for(counts, quantizer.bits, signed=has_sign(graph, node))


def has_sign(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a quantizer's node has both signs: a square has one, a ReLU makes negative values zero."""
    low, high = activation_quantizer(graph, node).ends
    source = module_of(graph, node.all_input_nodes[0])
    return low < 0 < high and not (isinstance(source, Square | TableFunction) or rectifiers(graph, node))


def rectifiers(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """Return the ReLUs that read a node, or none if anything else does."""
    relus = [user for user in node.users if isinstance(module_of(graph, user), nn.ReLU | nn.ReLU6)]
    return relus if len(relus) == len(node.users) else []


def _set_steps(graph: fx.GraphModule, group: list[fx.Node], step: int) -> None:
    for node in group:
        activation_quantizer(graph, node).log_step.fill_(step)


def activation_quantizer(graph: fx.GraphModule, node: fx.Node) -> ActivationQuantizer:
    """Return the quantizer that a node calls."""
    module = graph.get_submodule(str(node.target))
    assert isinstance(module, ActivationQuantizer)
    return module


def groups_of(graph: fx.GraphModule) -> list[list[fx.Node]]:
    """Return the quantizers' nodes in groups; those that feed one sum are together, because they must share a step.

    Raises:
        RuleError: a summand does not come from a quantized activation.
    """
    quantizers = [n for n, m in called_modules(graph) if isinstance(m, ActivationQuantizer)]
    group_of: dict[fx.Node, list[fx.Node]] = {node: [node] for node in quantizers}
    for node in graph.graph.nodes:
        if len(node.all_input_nodes) < 2 or isinstance(module_of(graph, node), HeadProduct):
            continue
        merged = {id(g): g for source in node.all_input_nodes for o in origins(graph, source) for g in [group_of[o]]}
        union = [member for group in merged.values() for member in group]
        for member in union:
            group_of[member] = union
    unique = {id(group): group for group in group_of.values()}
    return list(unique.values())


def origins(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """Return the quantizers whose step a summand has, but for the pools between: one, of a concatenation several."""
    module = module_of(graph, node)
    if isinstance(module, ActivationQuantizer):
        return [node]
    if not node.all_input_nodes or not (
        module is None or row_of(module).keeps_step or isinstance(module, nn.AvgPool2d | Concat)
    ):
        raise RuleError(
            "summands of a residual must come from a quantized activation",
            got=f"{node.name} ({type(module).__name__ if module is not None else node.op})",
            remedy="add only what the network computed",
        )
    sources = node.all_input_nodes if isinstance(module, Concat) else node.all_input_nodes[:1]
    return [origin for source in sources for origin in origins(graph, source)]


def learn_steps_(graph: fx.GraphModule) -> fx.GraphModule:
    """Return the same network, its steps learnable except that of its input. Build the optimizer afterwards.

    In training, activations are clipped to the range of their quantizer's bits; results of a square and inputs of a
    ReLU have no sign. Encrypted inference clips nothing. A finer step is at least as exact, but costs bits of the plain
    modulus. Hence the gradient of a step balances what is clipped against what is rounded away
    (:func:`privcirnet.nn.functional.quantize.quantize_learned`). In evaluation and in the integer network larger
    activations are kept.

    The parameters serve only training. The steps in use are the quantizers' ``log_step``; the rules of this module
    settle them after every optimizer step. :func:`fix_steps_` leaves a network in the form of a calibrated one.

    Source: Trained Quantization Thresholds (Jain et al., MLSys 2020). Departures: activations are rounded at random, as
    the protocol truncates; quantizers that feed the same sum share a parameter.

    Args:
        graph: result of :func:`privcirnet.passes.quantize.quantize`, calibrated.
    """
    for module in weighted_modules(graph):
        quantizer = quantizer_of(module)
        assert isinstance(quantizer, WeightQuantizer)
        highest = 2 ** (quantizer.bits - 1) - 1
        if highest:  # of one bit there is nothing to learn but the signs
            quantizer.learn(_parameter(quantizer), (-highest, highest))
    for group in groups_of(graph):
        if any(node.all_input_nodes[0].op == "placeholder" for node in group):
            continue
        shared = _parameter(activation_quantizer(graph, group[0]))
        for node in group:
            quantizer = activation_quantizer(graph, node)
            highest = 2 ** (quantizer.bits - 1) - 1
            limits = (-highest, highest) if has_sign(graph, node) else (0, 2**quantizer.bits - 1)
            quantizer.learn(shared, quantizer.ends if quantizer.clips else limits)
    return graph


def _parameter(quantizer: Quantizer) -> nn.Parameter:
    return nn.Parameter(torch.tensor(float(quantizer.log_step), device=quantizer.log_step.device))


def learned_steps(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that steps are rounded from, each once; none for a network whose steps are fixed."""
    unique = {id(quantizer.learned): quantizer.learned for quantizer in _learners(model)}
    return [parameter for parameter in unique.values() if parameter is not None]


@torch.no_grad()
def follow_learned_steps_(model: nn.Module) -> None:
    """Set the steps to the learned ones, if any, as far as the graph's rules allow. Call it after each optimizer step.

    Raises:
        RuleError: a residual's branch became coarser than the stream that it is added to.
    """
    learners = _learners(model)
    if not learners:
        return
    rounded = torch.stack([q.learned for q in learners if q.learned is not None]).round().long()
    if torch.equal(rounded, torch.stack([q.log_step for q in learners])):
        return
    for quantizer, log_step in zip(learners, rounded.tolist(), strict=True):
        quantizer.log_step.fill_(log_step)
    assert isinstance(model, fx.GraphModule)
    first = next(module for module in model.modules() if isinstance(module, ActivationQuantizer))
    settle_steps(model, int(first.log_step))
    for quantizer in learners:  # a raised step must not drift further down
        if quantizer.learned is not None:
            quantizer.learned.clamp_(min=int(quantizer.log_step) - 0.5)


def fix_steps_(model: nn.Module) -> None:
    """End learning: the steps stay as they are, and their parameters are removed.

    Args:
        model: any network; one without learned steps is left as it is.
    """
    for quantizer in _learners(model):
        quantizer.learned = None


def _learners(model: nn.Module) -> list[Quantizer]:
    return [module for module in model.modules() if isinstance(module, Quantizer) and module.learned is not None]
