"""An integer network gets its encryption parameters and plans. This is the one place that plans a program's layers.

:func:`draft` proves the bounds of a network's values or takes the measured ones. :func:`fit_draft` plans its layers
under every candidate set (n, q), with a predicted time for each, chooses (n, q, t), and returns the program with the
plans for the chosen set. Plans depend on a layer's shape, its block size, the profile and the link only, and each is
made once (:data:`planned_layer`): neither guard bits nor other weights ask for it again.

Two ways to come by n and q. With a profile's own set, plans and predictions are exact for it. With ``auto`` the fastest
set that fits is taken, by the profile's times scaled to it (:func:`scaled`). A caller that wants exact plans there
measures a profile at the set and fits once more. Times are scaled by what operations do: a rotation transforms every
digit (one for each data prime) to every prime, n log n each; everything else on a ciphertext is n log n for each data
prime. Good enough to rank sets, not to promise seconds.

Composite operations become the primitives that they apply. With the interactive protocol each primitive that takes
messages is a node of its own. So an operation whose ``apply`` uses primitives that the protocol has, x^2 + a x for one,
needs no exchange: :func:`decompose_all` replaces it before parameters are chosen, and neither party ever meets it.
Bounds that it has of its own are kept (:class:`program.arithmetic.AssertRange`): those of a maximum are its inputs', of
which the sums that it comes to know nothing. What a client is given of the result is fixed here too, at export, never
by the client (:func:`classified`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv.parameters import MAX_PLAIN_BITS, ParameterSet
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.planning import parameter_choice
from privcirnet.he.planning.cost import for_one_use, online_cost, operation_cost
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.parameter_choice import Divisibility, ParameterCandidate, ParameterChoice, requirements
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import ONLINE, Profile
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program import operations as op
from privcirnet.he.program.arithmetic import Add, AssertRange, Linear, MulConstant, Plus, Square, SumPool, Truncate
from privcirnet.he.program.exact import ExactStep, exact
from privcirnet.he.program.operation import (
    NO_ROWS,
    BoundedFunction,
    Domain,
    Interval,
    Node,
    Operation,
    Planner,
    Weights,
)
from privcirnet.he.program.program import Network, Program, layers_of, squares_of


@dataclass(frozen=True)
class Target:
    """The target that a program is compiled for.

    Attributes:
        profile: operation times that plans are chosen by; its n and q are the program's, unless ``auto``.
        link: the network between the parties.
        failure_bits: an image has a wrong truncation with probability at most 2^-failure_bits; with
            measured bounds that is the mean over images like those.
        sets: n and q to choose from with ``auto``, otherwise to compare the profile's with.
        auto: take the fastest of ``sets`` that fits.
        seen: each node's real values on images, for measured bounds; None for proved ones.
        margin_bits: measured bounds: values of other images may exceed these 2^margin_bits times.
        truncation: "random", or "exact" by two-party computation (:mod:`program.exact`).
        nonlinear: treatment of activations that are no polynomials: "refused", or "exact" (:mod:`program.exact`), which
            needs exact truncations.
        answer: result for the client, one of :data:`program.program.ANSWERS`; "top1" needs exact truncations.
    """

    profile: Profile
    link: NetworkLink
    failure_bits: int = 18
    sets: tuple[ParameterSet, ...] = ()
    auto: bool = False
    seen: Mapping[str, bounds.ObservedRange] | None = None
    margin_bits: int = 2
    truncation: str = "random"
    nonlinear: str = "refused"
    answer: str = "logits"

    def at(self, parameters: ParameterSet) -> "Target":
        """Return the same target with one set, no choice, and the profile's times scaled to it."""
        return replace(self, profile=scaled(self.profile, parameters), sets=(), auto=False)


def scaled(profile: Profile, parameters: ParameterSet) -> Profile:
    """Return the profile's times as they would be at another set; at its own, the profile itself."""
    measured = profile.parameter_set
    if parameters == measured:
        return profile
    transforms = _transforms(parameters) / _transforms(measured)
    digits = len(parameters.coefficient_bits) / len(measured.coefficient_bits)
    factors = {"transform": 1.0, "rotate": transforms * digits} | dict.fromkeys(ONLINE, 1.0)
    seconds = {name: s * factors.get(name, transforms) for name, s in profile.seconds.items()}
    set_of = {"ring_degree": parameters.ring_degree, "coefficient_bits": parameters.coefficient_bits}
    return replace(profile, name=f"{profile.name}, scaled", seconds=seconds, **set_of)


def _transforms(parameters: ParameterSet) -> float:
    """Return the work of one transform of a ciphertext: n log n for each data prime."""
    return parameters.ring_degree * math.log2(parameters.ring_degree) * (len(parameters.coefficient_bits) - 1)


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
    """

    nodes: tuple[Node, ...]
    weights: Mapping[str, Weights]
    intervals: dict[str, bounds.Interval]
    sizes: bounds.Magnitudes
    kind: str


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
    return Draft(tuple(nodes), weights, intervals, sizes, kind)


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
    sets = [s for s in sets if wants.exact or s == profile_set or s not in parameter_choice.SHORT_SETS]
    profile = replace(target.profile, plain_bits=min(wants.plain_bits, MAX_PLAIN_BITS))
    factors = parameter_choice.divisibilities(wants) if target.truncation == "exact" else [Divisibility()]
    candidates = options(draft.nodes, profile, target.link, sets, factors)
    choice = parameter_choice.choose(wants, candidates, None if target.auto else profile_set)
    lengths = choice.chosen.option.divisibility.lengths
    planned = replan(draft.nodes, _priced(profile, choice.set, target.link), target.link, lengths)
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
class CheapestPlanner(Planner):
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
    planner = CheapestPlanner(profile, link, lengths)
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
    nodes: Sequence[Node],
    profile: Profile,
    link: NetworkLink,
    sets: Sequence[ParameterSet],
    factors: Sequence[Divisibility] = (Divisibility(),),
) -> tuple[ParameterCandidate, ...]:
    """Return every set once for each choice of factors of t - 1, with the program's layers as they are planned."""
    candidates = list[ParameterCandidate]()
    for divisibility in factors:
        bits = max(divisibility.bits, profile.plain_bits)
        priced_for = replace(profile, plain_bits=bits, plain_twos=divisibility.twos) if divisibility.bits else profile
        steps = [node for node in nodes if isinstance(node.operation, ExactStep)]
        exact_seconds = predicted_seconds(steps, priced_for, link)
        for parameters in dict.fromkeys(sets):
            priced = _priced(profile, parameters, link)
            candidate = _option([node for node in nodes if node not in steps], priced, link, divisibility)
            candidates.append(replace(candidate, seconds=candidate.seconds + exact_seconds))
    return tuple(candidates)


def _priced(profile: Profile, parameters: ParameterSet, link: NetworkLink) -> Profile:
    """Return the profile's times at a set; one for all t where bytes cost nothing, so that plans are made once."""
    rescaled = scaled(profile, parameters)
    return rescaled if link.counts else replace(rescaled, plain_bits=MAX_PLAIN_BITS)


def _option(nodes: Sequence[Node], profile: Profile, link: NetworkLink, factors: Divisibility) -> ParameterCandidate:
    try:
        planned = replan(nodes, profile, link, factors.lengths)
    except RuleError as problem:
        return ParameterCandidate(profile.parameter_set, (), math.inf, problem, divisibility=factors)
    of = layers_of(planned), predicted_seconds(planned, profile, link)
    rest = None, link.counts, squares_of(planned), profile.counted, factors
    return ParameterCandidate(profile.parameter_set, *of, *rest)


Bounds = dict[str, bounds.Interval]
"""Bounds of a network's values, by node."""


def classified(network: Network, intervals: Bounds) -> tuple[Network, Bounds]:
    """Return a network and its bounds with the class behind the logits, the first of those with the largest."""
    output, count, (low, high) = network.output, network.output.shape[0], intervals[network.output.name]
    if output.shape != (count, 1, 1) or count < 2:
        rule, remedy = "the class alone needs two logits or more", "use he.answer=logits"
        raise RuleError(rule, got=f"values of shape {output.shape}", remedy=remedy)
    largest = op.Top1(count, int(low.min()), int(high.max()))
    name = next(name for name in ("answer", "answer_", "answer__") if name not in intervals)
    node = Node(name, largest, (output.name,), largest.shape_after([output.shape]), 0)
    return Network((*network.nodes, node), network.weights), {**intervals, name: largest.interval(low, high)}


class Primitives(Domain[Node]):
    """The nodes that a network's operations come to; values are the nodes that have them.

    Attributes:
        nodes: nodes in order.
        weights: weights by name of the nodes that have some.

    Args:
        bounds: bounds that composite operations have of their own.
    """

    name, remedy = "a composite operation", "give it an exchange (protocol.schedule)"

    def __init__(self, bounds: Mapping[str, Interval]) -> None:
        self.nodes, self.weights, self._known = list[Node](), dict[str, Weights](), bounds

    def visit(self, node: Node, arguments: Sequence[Node], weights: Weights | None) -> Node:
        """Return the node itself, or if it is composite the last one of those that it comes to, by its name."""
        self.node = node
        if not node.operation.composite:
            return self._keep(node, weights)
        result = node.operation.pieces(self, arguments, weights)
        if node.name in self._known:
            low, high = self._known[node.name]
            result = self.step(AssertRange(int(low.min()), int(high.max())), result)
        elif self.nodes[-1] is not result or result in arguments:
            result = self.times(result, 1)
        last = self.nodes.pop()
        return self._keep(replace(last, name=node.name), self.weights.pop(last.name, None))

    def add(self, x: Node, y: Node) -> Node:
        return self._then(Add(), *map(self._own, (x, y)))

    def times(self, x: Node, factor: int) -> Node:
        return self._then(MulConstant(factor), x)

    def pool(self, x: Node, window: tuple[int, int]) -> Node:
        return self._then(SumPool(*window), x)

    def plus(self, x: Node, constants: np.ndarray) -> Node:
        bias = np.broadcast_to(constants, x.shape).reshape(x.shape[0], -1)
        if (bias != bias[:, :1]).any():
            self.refuse("constants that differ within a channel")
        return self._then(Plus(), x, weights=Weights(NO_ROWS, bias[:, 0].astype(np.int64)))

    def truncate(self, x: Node, bits: int) -> Node:
        return self._then(Truncate(bits), x)

    def linear(self, layer: Layer, x: Node, weights: Weights) -> Node:
        return self._then(Linear(layer), x, weights=weights)

    def square(self, x: Node) -> Node:
        return self._then(Square(), x)

    def product(self, operation: Any, x: Node, y: Node, weights: Weights) -> Node:
        return self._then(operation, x, y, weights=weights)

    def function(self, operation: BoundedFunction, x: Node) -> Node:
        if not isinstance(operation, Operation):
            self.refuse("a function that is no operation")
        return self._then(operation, x)

    def step(self, operation: Operation, *arguments: Node) -> Node:
        return self._then(operation, *map(self._own, arguments))

    def _own(self, x: Node) -> Node:
        """Return a summand in the step of this node: its integers are what counts."""
        return x if self.node and x.log_step == self.node.log_step else self.times(x, 1)

    def _then(self, operation: Operation, *inputs: Node, weights: Weights | None = None) -> Node:
        assert self.node is not None
        shape, name = operation.shape_after([x.shape for x in inputs]), f"{self.node.name}/{len(self.nodes)}"
        node = replace(self.node, name=name, operation=operation, inputs=tuple(x.name for x in inputs), shape=shape)
        return self._keep(node, weights)

    def _keep(self, node: Node, weights: Weights | None) -> Node:
        self.nodes.append(node)
        if weights is not None:
            self.weights[node.name] = weights
        return node


def decompose_all(network: Network, bounds: Mapping[str, Interval]) -> Network:
    """Return a network without composite operations.

    Args:
        bounds: bounds of the network's values, by node.

    Raises:
        RuleError: an operation uses a primitive that is no operation of its own, such as values in new places.
    """
    if not any(node.operation.composite for node in network.nodes):
        return network
    primitives = Primitives(bounds)
    primitives.values(network.nodes, network.weights)
    return Network(tuple(primitives.nodes), primitives.weights)
