"""The bridge: a fake-quantized network becomes an integer program with proved bounds.

Every node of the network's graph becomes an integer operation (:mod:`privcirnet.lower.builder`): convolutions,
depthwise and grouped ones too, and linear layers with integer weights, activation quantizers as truncations, average
pooling as a sum whose division goes into the step, attention as products of two values. The weights keep their
circulant structure: only the first row of each block row is stored. What has no such operation is named before anything
is lowered.

The integer network does not depend on the encryption parameters, so they are chosen last, from the proved bounds
(:mod:`planning.fit`), and the layers are planned for them.
"""

from dataclasses import dataclass

from torch import fx

from privcirnet.errors import DoesNotFit
from privcirnet.he.params.sizes import message_bytes
from privcirnet.he.planning.chooser import ParameterChoice
from privcirnet.he.planning.fit import Fitted, Target, fit
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.lower.builder import Builder
from privcirnet.lower.supported import check_operations
from privcirnet.nn.steps import refine


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
    choice: ParameterChoice

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
    check_operations(graph, target.nonlinear)
    builder = Builder(graph, target, source, input_shape, input_log_step)
    for node in graph.graph.nodes:
        builder.visit(node)
    return fit(tuple(builder.nodes), builder.weights, target)
