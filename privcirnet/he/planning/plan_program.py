"""An integer network gets its encryption parameters and plans. This is the one place that plans a program's layers.

:func:`draft` proves the bounds of a network's values or takes the measured ones. :func:`fit_draft` plans its layers
under every candidate set (n, q), with a predicted time for each, chooses (n, q, t), and returns the program with the
plans for the chosen set. Plans depend on a layer's shape, its block size, the profile and the link only, and each is
made once (:data:`planned_layer`): neither guard bits nor other weights ask for it again.

Two ways to come by n and q. With a profile's own set, plans and predictions are exact for it. With ``auto`` the fastest
set that fits is taken, by the profile's times scaled to it (:func:`target.scaled`). A caller that wants exact plans
there measures a profile at the set and fits once more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv.parameters import MAX_PLAIN_BITS, ParameterSet
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.planning import chooser
from privcirnet.he.planning.chooser import ParameterChoice
from privcirnet.he.planning.cost import for_one_use, operation_cost
from privcirnet.he.planning.disclosure import classified
from privcirnet.he.planning.noise_budget import ParameterCandidate
from privcirnet.he.planning.online import online_cost
from privcirnet.he.planning.planner import SHORT, cheapest_layer
from privcirnet.he.planning.profile import NetworkLink, Profile
from privcirnet.he.planning.requirements import requirements
from privcirnet.he.planning.target import Target, scaled
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.composite import decompose_all
from privcirnet.he.program.exact import ExactStep, exact
from privcirnet.he.program.operation import Node, Planner, Weights
from privcirnet.he.program.program import Network, Program, layers_of, squares_of


@dataclass(frozen=True)
class PlannedProgram:
    """A program with parameters.

    Attributes:
        program: program with weights, its layers planned for its parameters.
        intervals: the bounds of its nodes, proved or measured.
        sizes: sizes of their values: the largest if proved, the mean if measured.
    """

    program: Program
    intervals: dict[str, bounds.Interval]
    sizes: bounds.Magnitudes
    choice: ParameterChoice


@dataclass(frozen=True)
class Draft:
    """An integer network with its bounds: all that the choice of parameters and plans depends on.

    Attributes:
        nodes: nodes, their layers planned for some parameters, or not yet.
        weights: weights by node name.
        intervals: the bounds of its nodes, proved or measured.
        sizes: sizes of their values: the largest if proved, the mean if measured.
        kind: "proved" or "measured".
        lengths: lengths of transforms, see :class:`planning.goal.Objective`.
    """

    nodes: tuple[Node, ...]
    weights: Mapping[str, Weights]
    intervals: dict[str, bounds.Interval]
    sizes: bounds.Magnitudes
    kind: str
    lengths: int = 0


def draft(network: Network, target: Target) -> Draft:
    """Return an integer network with its bounds, proved or measured as the target says; its profile does not matter.

    Raises:
        DoesNotFit: A bound is out of reach.
    """
    if target.seen is None:
        intervals, kind = bounds.prove(network), "proved"
    else:
        intervals, kind = bounds.measured(network.nodes, target.seen, target.margin_bits), "measured"
    answering = network
    if target.answer == "top1":
        answering, intervals = classified(network, intervals)
    whole = decompose_all(answering, intervals)
    nodes, weights = whole.nodes, whole.weights
    if whole is not answering:
        intervals = bounds.completed(whole, {} if target.seen is None else intervals)
    sizes: bounds.Magnitudes = bounds.largest_sizes(intervals)
    if target.seen is not None:
        sizes = {**sizes, **bounds.mean_sizes(network.nodes, target.seen)}
    if target.truncation == "exact":
        nodes = exact(nodes, intervals)
    lengths = SHORT if target.truncation == "exact" else 0  # the smaller t is, the fewer transfers a ReLU takes
    return Draft(tuple(nodes), weights, intervals, sizes, kind, lengths)


def plan_program(network: Network, target: Target) -> PlannedProgram:
    """Return the program of an integer network, with bounds, parameters (n, q, t) and planned layers.

    Raises:
        DoesNotFit: A bound or a modulus out of reach, too little noise budget; names what binds.
        RuleError: No parameters are secure, or the nodes do not form a program.
    """
    return fit_draft(draft(network, target), target)


def fit_draft(draft: Draft, target: Target) -> PlannedProgram:
    """Return :func:`fit`'s program of a network whose bounds are known."""
    wants = requirements(draft.nodes, draft.intervals, draft.sizes, target.failure_bits)
    profile_set = target.profile.parameter_set
    sets = target.sets if target.auto else (profile_set, *target.sets)
    sets = [s for s in sets if wants.exact or s == profile_set or s not in chooser.SHORT_SETS]
    profile = replace(target.profile, plain_bits=min(wants.plain_bits, MAX_PLAIN_BITS))
    candidates = options(draft.nodes, profile, target.link, sets, draft.lengths)
    choice = chooser.choose(wants, candidates, None if target.auto else profile_set)
    planned = replan(draft.nodes, _priced(profile, choice.set, target.link), target.link, draft.lengths)
    check_carried(planned, choice.parameters.plain_modulus)
    width = bounds.value_bits(draft.intervals[planned[-1].name])
    program = Program(planned, choice.parameters, draft.weights, draft.kind, target.answer, width)
    try:
        manifest.check(program)
    except RuleError as error:
        raise RuleError(error.rule, got=error.got, remedy="change the network or its calibration") from None
    return PlannedProgram(program, draft.intervals, draft.sizes, choice)


def check_carried(nodes: Sequence[Node], plain_modulus: int) -> None:
    """Raise unless exact steps are made for plain moduli of this length."""
    for node in nodes:
        if isinstance(step := node.operation, ExactStep) and (problem := step.unfit(plain_modulus)):
            rule, remedy = "exact steps must carry the plain modulus", "use he.bounds=measured, or fewer bits"
            raise DoesNotFit(rule, got=f"node {node.name}: {problem}", remedy=remedy)


planned_layer = lru_cache(maxsize=4096)(cheapest_layer)
""":func:`planner.cheapest_layer`, which depends on a layer's size alone and is asked for again with other weights."""


@dataclass(frozen=True)
class Planned(Planner):
    """A :class:`program.operation.Planner` of the fastest layers under a profile."""

    profile: Profile
    link: NetworkLink
    lengths: int = 0

    def layer(self, shape: LinearShape, block_size: int) -> Layer:
        return planned_layer(shape, block_size, self.profile, self.link, self.lengths)

    def factor(self, shape: LinearShape) -> SpectralLayer:
        """Return the layer of a factor, whose weights are encoded for every image."""
        return planned_layer(shape, 1, for_one_use(self.profile), self.link)


def replan(nodes: Sequence[Node], profile: Profile, link: NetworkLink, lengths: int = 0) -> tuple[Node, ...]:
    """Return the same nodes with the plans that are fastest under a profile; earlier plans do not matter.

    Raises:
        RuleError: A layer has no layout at the profile's ring degree.
    """
    planner = Planned(profile, link, lengths)
    return tuple(replace(node, operation=node.operation.planned(planner)) for node in nodes)


def predicted_seconds(nodes: Sequence[Node], profile: Profile, link: NetworkLink) -> float:
    """Return the predicted seconds of one image through every node that costs a round.

    Args:
        profile: seconds of operations at one (n, q).
    """
    return sum(operation_cost(node.operation, node.shape, profile, link).total for node in nodes)


def predicted_online(nodes: Sequence[Node], profile: Profile, link: NetworkLink) -> float:
    """Return the predicted seconds with an image, if everything encrypted was done before."""
    return sum(online_cost(node.operation, node.shape, profile, link).total for node in nodes)


def options(
    nodes: Sequence[Node], profile: Profile, link: NetworkLink, sets: Sequence[ParameterSet], lengths: int = 0
) -> tuple[ParameterCandidate, ...]:
    """Return every set once, with the program's layers as they are planned under it."""
    return tuple(
        _option(nodes, _priced(profile, parameters, link), link, lengths) for parameters in dict.fromkeys(sets)
    )


def _priced(profile: Profile, parameters: ParameterSet, link: NetworkLink) -> Profile:
    """Return the profile's times at a set; one for all t where bytes cost nothing, so that plans are made once."""
    rescaled = scaled(profile, parameters)
    return rescaled if link.counts else replace(rescaled, plain_bits=MAX_PLAIN_BITS)


def _option(nodes: Sequence[Node], profile: Profile, link: NetworkLink, lengths: int) -> ParameterCandidate:
    try:
        planned = replan(nodes, profile, link, lengths)
    except RuleError as problem:
        return ParameterCandidate(profile.parameter_set, (), math.inf, problem)
    seconds = predicted_seconds(planned, profile, link)
    of = layers_of(planned), seconds
    return ParameterCandidate(profile.parameter_set, *of, None, link.counts, squares_of(planned), profile.counted)
