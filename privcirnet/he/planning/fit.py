"""An integer network gets its encryption parameters: bounds proved or measured, (n, q, t) chosen, layers planned.

Two ways to come by n and q. With a profile's own set, plans and predictions are exact for it. With ``auto`` the fastest
set that fits is taken, by the profile's times scaled to it; a caller that wants exact plans there measures a profile at
the set and fits once more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from privcirnet.errors import RuleError
from privcirnet.he.planning import chooser, options
from privcirnet.he.planning.chooser import Choice
from privcirnet.he.planning.cost import Link, Profile
from privcirnet.he.planning.noise_budget import ParameterSet
from privcirnet.he.planning.requirements import requirements
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.program import Node, Program, Weights


@dataclass(frozen=True)
class Target:
    """What a program is made for.

    Attributes:
        profile: operation times that plans are chosen by; its n and q are the program's, unless ``auto``.
        link: the network between the parties.
        masks: "uniform" or "bounded", see :class:`program.program.Program`.
        failure_bits: uniform masks: an image has a wrong truncation with probability at most 2^-failure_bits; with
            measured bounds that is the mean over images like those.
        hiding_bits: bounded masks: statistical distance of an image's masked values at most 2^-hiding_bits.
        sets: n and q to choose from with ``auto``, otherwise to compare the profile's with.
        auto: take the fastest of ``sets`` that fits.
        seen: each node's real values on images, for measured bounds; None for proved ones.
        margin_bits: measured bounds: values of other images may exceed these 2^margin_bits times.
        nonlinear: of activations that are no polynomials: "refused", or "client-aided" (:mod:`revealed`).
    """

    profile: Profile
    link: Link
    masks: str = "uniform"
    failure_bits: int = 18
    hiding_bits: int = 40
    sets: tuple[ParameterSet, ...] = ()
    auto: bool = False
    seen: Mapping[str, bounds.Seen] | None = None
    margin_bits: int = 2
    nonlinear: str = "refused"

    @property
    def truncation_bits(self) -> int:
        """The one of ``failure_bits`` and ``hiding_bits`` that the masks are judged by."""
        return self.failure_bits if self.masks == "uniform" else self.hiding_bits

    def at(self, wanted: ParameterSet) -> "Target":
        """The same with one set, no choice, and the profile's times scaled to it."""
        return replace(self, profile=options.scaled(self.profile, wanted), sets=(), auto=False)


@dataclass(frozen=True)
class Fitted:
    """A program with parameters.

    Attributes:
        program: with weights, its layers planned for its parameters.
        intervals: the bounds of its nodes, proved or measured.
        sizes: of their values: the largest if proved, the mean if measured.
        choice: of the parameters.
    """

    program: Program
    intervals: dict[str, bounds.Interval]
    sizes: bounds.Sizes
    choice: Choice


def fit(nodes: Sequence[Node], weights: Mapping[str, Weights], target: Target) -> Fitted:
    """Prove the bounds of an integer network, or take the measured ones, choose (n, q, t), plan its layers for them.

    Raises:
        DoesNotFit: a bound or a modulus out of reach, too little noise budget; names what binds.
        RuleError: no parameters are secure, or the nodes do not form a program.
    """
    if target.seen is None:
        intervals = bounds.prove_nodes(nodes, weights)
        sizes: bounds.Sizes = bounds.largest_sizes(intervals)
    else:
        intervals = bounds.measured(nodes, target.seen, target.margin_bits)
        sizes = bounds.mean_sizes(nodes, target.seen)
    wants = requirements(nodes, intervals, sizes, target.masks, target.truncation_bits)
    own = options.set_of(target.profile)
    sets = target.sets if target.auto else (own, *target.sets)
    candidates = options.options(nodes, target.profile, target.link, sets)
    choice = chooser.choose(wants, candidates, None if target.auto else own)
    planned = options.replan(nodes, options.scaled(target.profile, choice.set), target.link)
    kind = "proved" if target.seen is None else "measured"
    program = Program(planned, choice.parameters, weights, target.masks, kind)
    try:
        manifest.check(program)
    except RuleError as error:
        raise RuleError(error.rule, got=error.got, remedy="change the network or its calibration") from None
    return Fitted(program, intervals, sizes, choice)
