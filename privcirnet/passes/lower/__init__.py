"""Lowering: a fake-quantized network becomes an integer program with proved bounds.

Every node of the network's graph becomes an integer operation (:mod:`privcirnet.passes.lower.builder`): convolutions,
depthwise and grouped ones too, and linear layers with integer weights, activation quantizers as truncations, average
pooling as a sum whose division goes into the step, attention as products of two values. The weights keep their
circulant structure: only the first row of each block row is stored. Modules without one are named before anything
is lowered.

The integer network does not depend on the encryption parameters. Lowering leaves its layers unplanned;
:mod:`privcirnet.he.planning.plan_program` chooses the parameters from its bounds, and plans the layers for them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from torch import fx, nn

from privcirnet.errors import DoesNotFit, RuleError, listed
from privcirnet.he.planning.parameter_choice import ParameterChoice
from privcirnet.he.planning.plan_program import Draft, PlannedProgram, Target, draft, fit_draft
from privcirnet.he.program.bounds import ObservedRange, real_name
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Network, Program
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.exact_functions import SubtractMax, TableFunction
from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.quantization_steps import refine
from privcirnet.nn.quantizers import ActivationQuantizer, WeightQuantizer
from privcirnet.nn.supported_modules import MODULES, Row, has_exact_form, runs_encrypted
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower.builder import ProgramBuilder
from privcirnet.passes.lower.layers import Numbers, Shape, quantized, real
from privcirnet.passes.quantize import with_quantizers
from privcirnet.passes.surgery.edit import WITHOUT_SOFTMAX

_SUPPORTED = (
    "Conv2d, Linear, BatchNorm2d (fused), Square, AESPA (fused), +, Concat, AvgPool2d, Flatten, Tokens, Take, "
    "TokenBatchNorm (fused), PolynomialAttention (fused); privcirnet.polynomial_ replaces others"
)
_EXACT = "or he.nonlinear=exact"


def check_operations(graph: fx.GraphModule, nonlinear: str) -> None:
    """Name everything that does not run encrypted, modules by their paths.

    Args:
        nonlinear: "exact" if activations that are no polynomials run by two-party computation; "real" in CKKS.
    """
    rule, wrong, remedies, more_remedies = (
        "every operation must be one that runs encrypted",
        list[str](),
        list[str](),
        set[str](),
    )
    for node in graph.graph.nodes:
        module = module_of(graph, node)
        if node.op in ("placeholder", "output") or is_sum(node) or runs_encrypted(module, nonlinear):
            continue
        kind = _kind_of(module)
        replacement = MODULES.get(kind, Row()).instead
        fallback = WITHOUT_SOFTMAX if isinstance(module, nn.Softmax | nn.LogSoftmax) else _SUPPORTED
        remedies.append(f"{replacement} instead of {kind.__name__}" if replacement else fallback)
        more_remedies |= {_EXACT} if has_exact_form(module) else set()
        wrong.append(f"{node.target} ({kind.__name__})" if module is not None else f"{node.name} ({node.target})")
    if wrong:
        errors = [RuleError(rule, got=name, remedy=f"use {use}") for name, use in zip(wrong, remedies, strict=True)]
        remedy = f"use {'; '.join([*dict.fromkeys(remedies), *more_remedies])}"
        raise RuleError(rule, got=listed(wrong), remedy=remedy).of(errors)


def _kind_of(module: nn.Module | None) -> type:
    """Return the class of a module, or of the module that it is a piece of."""
    if isinstance(module, SubtractMax) or (isinstance(module, TableFunction) and module.function != "rsqrt"):
        return SoftmaxAttention
    return nn.LayerNorm if isinstance(module, TableFunction) else type(module)


Drafts = Callable[[int], Draft]
"""Guard bits -> the integer network with that many, see :func:`drafts`."""


@dataclass(frozen=True)
class Lowered:
    """A program and how it came about.

    Attributes:
        fitted: the program, its bounds, the choice of its encryption parameters.
        guard_bits: see :func:`privcirnet.nn.quantization_steps.refine`.
        choice: choice of n and q, made with the least guard bits: more only use the room that is left.
    """

    fitted: PlannedProgram
    guard_bits: int
    choice: ParameterChoice

    @property
    def program(self) -> Program:
        """Program with weights."""
        return self.fitted.program


def lower(
    graph: fx.GraphModule, input_shape: Shape, levels: int | Input, input_log_step: int, target: Target
) -> Program:
    """Return the integer program of a fake-quantized network.

    Args:
        graph: result of :func:`privcirnet.passes.quantize.quantize`, trained.
        input_shape: (C, H, W) of an image.
        levels: pixels are integers in [0, levels], or in the range of an Input.
        input_log_step: real pixel = integer x 2^input_log_step.

    Returns:
        program with weights, bounds proved, parameters chosen.

    Raises:
        DoesNotFit: a bound or a modulus out of reach, too little noise budget.
        RuleError: an operation that is not supported, parameters that are not secure.
    """
    network_draft = _draft(graph, _source(levels), input_shape, input_log_step, target)
    return fit_draft(network_draft, target).program


def drafts(
    graph: fx.GraphModule, input_shape: Shape, levels: int | Input, input_log_step: int, target: Target
) -> Drafts:
    """Return the network's integer forms by guard bits, each built at its first request.

    They depend on the target's bounds and on what is exact, not on its profile: parameters and plans can be chosen
    again without lowering anything again.
    """

    @cache
    def draft_with(guard_bits: int) -> Draft:
        return _draft(refine(graph, guard_bits), _source(levels), input_shape, input_log_step, target)

    return draft_with


def refined(drafts: Drafts, target: Target, guard_bits: int, least_guard_bits: int = 0) -> Lowered:
    """Return the program with the most guard bits that its modulus has room for.

    Guard bits are fractional bits that activations keep beyond those of training, see
    :func:`privcirnet.nn.quantization_steps.refine`.

    Args:
        drafts: the network's integer forms by guard bits, from :func:`drafts`.
        guard_bits: largest number of guard bits.
        least_guard_bits: least number of guard bits, which the parameters are chosen for.

    Raises:
        RuleError: see :func:`lower`; there is no room even with the least guard bits, or something else is wrong.
    """
    plain = fit_draft(drafts(least_guard_bits), target)
    fixed = target.at(plain.choice.set)
    for bits in range(guard_bits, least_guard_bits, -1):
        try:
            return Lowered(fit_draft(drafts(bits), fixed), bits, plain.choice)
        except DoesNotFit:
            continue
    return Lowered(plain, least_guard_bits, plain.choice)


def _source(levels: int | Input) -> Input:
    return levels if isinstance(levels, Input) else Input(0, levels)


def _draft(graph: fx.GraphModule, source: Input, input_shape: Shape, input_log_step: int, target: Target) -> Draft:
    return draft(integer_network(graph, source, input_shape, input_log_step, target.nonlinear), target)


def integer_network(
    graph: fx.GraphModule, source: Input, input_shape: Shape, input_log_step: int, nonlinear: str
) -> Network:
    """Return an integer network, before bounds, parameters and plans.

    Args:
        source: range of the pixels.
        input_shape: (C, H, W) of an image.
        input_log_step: real pixel = integer x 2^input_log_step.

    Raises:
        RuleError: an operation that is not supported.
    """
    return _network(graph, source, input_shape, input_log_step, quantized, nonlinear)


def lower_real(model: nn.Module, input_shape: Shape) -> Network:
    """Return the network of a trained one in real numbers, for CKKS: batch norms and AESPA are folded away.

    Args:
        model: network with squares or AESPA, circulant or not; left as it was.
        input_shape: (C, H, H) of an image.

    Raises:
        RuleError: the network has something else.
    """
    return _network(fuse(model).double(), Input(0, 0), input_shape, 0, real, "real")


def _network(
    graph: fx.GraphModule, source: Input, shape: Shape, log_step: int, numbers: Numbers, nonlinear: str = ""
) -> Network:
    check_operations(graph, nonlinear)
    builder = ProgramBuilder(graph, source, shape, log_step, numbers)
    for node in graph.graph.nodes:
        builder.visit(node)
    return Network(tuple(builder.nodes.values()), builder.weights)


_LOG_STEP, _PIXELS = -7, Input(-128, 127)
"""Step of all activations and weights, and range of pixels: 8 bits of values up to 1."""
_MEAN = 0.1
"""Mean size of values whose largest is 1."""


def usual_draft(fused: fx.GraphModule, image: Shape, target: Target) -> Draft:
    """Return a fused network as an integer network with the bounds of usual values, before its own are known.

    Prices depend on shapes alone, and on bounds a little. Those of an untrained network say nothing of the trained one,
    so all values are what 8 bits usually hold.

    Args:
        image: (C, H, W).
        target: its own bounds do not matter.

    Raises:
        RuleError: a layer has no encrypted form.
    """
    graph = with_quantizers(fused)
    for module in graph.modules():
        if isinstance(module, ActivationQuantizer | WeightQuantizer):
            module.log_step.fill_(_LOG_STEP)
    network = integer_network(graph, _PIXELS, image, _LOG_STEP, target.nonlinear)
    observed = dict[str, ObservedRange]()
    for node in network.nodes:
        ends = (np.full(node.shape, value) for value in (-1.0, 1.0, _MEAN))
        observed.setdefault(real_name(node), ObservedRange(*ends))
    return draft(network, replace(target, seen=observed))
