"""The choice of (n, q, t) from a program's bounds: what it asks of t, the sets that carry it, and the reasons.

*What it asks.* Every value must stay under t / 2, and truncation must fail rarely enough (:class:`Requirements`). Both
ask for a large t. Source: docs/mathematics.md, "Truncation" and "What is always checked".

*What a set carries.* The noise budget falls with t: of the data primes' bits, t itself, the noise of the products (t
times a constant, :func:`bfv.noise.noise_bits`), the flooding and its range are spent. So a set carries t up to some
size, the program needs t from some size on, and the set fits if there is a prime in between that is 1 modulo 2n and
every transform length. The chosen t is the largest such: that makes truncation safer still. Where bytes cost time it is
the smallest, and where truncation is exact. Bits to spare then go into the flooding, which must hide the noise of a
whole image (:func:`ring.sampling.image_distance_bits`). Where a set does not fit, the limit that binds is named.

*The choice.* Every candidate is judged; among those that fit, the one with the least predicted time wins. The papers
fix (n, q, t) by hand; docs/mathematics.md, "Noise" and "Truncation", has what they must satisfy.
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv.noise import MIN_NOISE_BUDGET, flood_bits, square_noise_bits
from privcirnet.he.bfv.parameters import (
    DEFAULT_COEFFICIENT_BITS,
    DEFAULT_RING_DEGREE,
    MAX_PLAIN_BITS,
    WIDE_COEFFICIENT_BITS,
    WIDE_RING_DEGREE,
    Parameters,
    ParameterSet,
    coefficient_primes,
    reply_bits,
)
from privcirnet.he.layers import subring
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.profile import in_words
from privcirnet.he.program import bounds
from privcirnet.he.program.exact import exact_steps
from privcirnet.he.program.operation import Node
from privcirnet.he.ring import modular
from privcirnet.he.ring.sampling import FLOODING_BITS, IMAGE_DISTANCE_BITS, image_distance_bits
from privcirnet.he.rlwe.parameters import MAX_LOG_Q, check_security


@dataclass(frozen=True)
class Requirements:
    """Requirements of a program on t, for any n and q.

    Attributes:
        wrapping: :func:`bounds.wrapping_masks`.
        failure_bits: an image has a wrong truncation with probability at most 2^-failure_bits.
        exact: number that t must be greater than for exact steps.
        multiple: number that t - 1 must be a multiple of for them.
        twos: factors of two of t - 1 with which some take fewer transfers.
    """

    node: str
    largest: int
    wrapping: float
    failure_bits: float
    exact: int = 0
    multiple: int = 1
    twos: frozenset[int] = frozenset()

    @property
    def value_bits(self) -> int:
        """Least bits of t for every value to stay under t / 2, or t / 8 where a step is exact."""
        return max(2 * self.largest + 1, self.exact + 1).bit_length()

    @property
    def truncation_bits(self) -> int:
        """Least bits of t for truncation to fail rarely enough; may be more than any t has."""
        return next(bits for bits in itertools.count(1) if self.reached((1 << bits) - 1) >= self.failure_bits)

    @property
    def plain_bits(self) -> int:
        """Least bits of t for both."""
        return max(self.value_bits, self.truncation_bits)

    @property
    def needed_by(self) -> str:
        """The requirement with the larger t."""
        if self.value_bits >= self.truncation_bits:
            return f"value bound of {self.node}"
        return "truncation failure"

    def reached(self, t: int) -> float:
        """Return -log2 of an image's failure probability."""
        return math.log2(t) - math.log2(self.wrapping) if self.wrapping else math.inf

    def satisfied(self, t: int) -> bool:
        """Return whether t is large enough."""
        return max(2 * self.largest, self.exact) < t and self.reached(t) >= self.failure_bits


def requirements(
    nodes: Iterable[Node],
    intervals: Mapping[str, bounds.Interval],
    sizes: bounds.Magnitudes,
    failure_bits: float,
) -> Requirements:
    """Return the requirements of a program on t, from the bounds and sizes of its values."""
    nodes = tuple(nodes)
    node, largest = max(((n, bounds.largest(i)) for n, i in intervals.items()), key=lambda pair: pair[1])
    steps = exact_steps(nodes)
    exact = max((step.least_modulus for step in steps), default=0), max((step.divisor for step in steps), default=1)
    twos = frozenset(step.best_divisor.bit_length() - 1 for step in steps)
    return Requirements(node, largest, bounds.wrapping_masks(nodes, sizes), failure_bits, *exact, twos)


SHORT_PLAIN_BITS = 29
"""Bits of t that exact steps keep to where they can: a fast set carries them, and the smaller t is, the fewer bytes."""
SHORT_LENGTHS = (2**10 * 3**2 * 5 * 17, 2**10 * 3**2 * 5, 2**10 * 3**3, 2**10 * 5)


class Divisibility(NamedTuple):
    """Factors that t - 1 may have, and the bits that t has then.

    Attributes:
        lengths: number whose divisors are the lengths of transforms; 0: any.
        twos: factors of two; exact steps take fewer transfers with more.
        bits: least bits of t.
    """

    lengths: int = 0
    twos: int = 0
    bits: int = 0


def divisibilities(wants: Requirements) -> list[Divisibility]:
    """Return choices for exact steps, none of them worse than another: many lengths, many twos, or few bits.

    Layers of 32 x 32 to 2 x 2 pixels take 1 or 2 % longer with the first lengths, up to 10 % with others.
    """
    options = list[Divisibility]()
    for lengths in SHORT_LENGTHS:
        for twos in sorted({wants.multiple.bit_length() - 1, *wants.twos}):
            multiple = math.lcm(wants.multiple, lengths, 1 << max(twos, 14))
            for bits in range(max(wants.plain_bits, multiple.bit_length()), MAX_PLAIN_BITS + 1):
                with contextlib.suppress(RuleError):
                    modular.largest_prime(bits, multiple)
                    options.append(Divisibility(lengths, twos, bits))
                    break
    short = [option for option in options if option.bits <= SHORT_PLAIN_BITS] or options
    return [a for a in short if not any(a != b and _covers(b, a) for b in short)]


def _covers(a: Divisibility, b: Divisibility) -> bool:
    return a.lengths % b.lengths == 0 and a.twos >= b.twos and a.bits <= b.bits


STAGES = ("layout", "security", "value bound", "truncation", "transform lengths", "noise budget")
"""Limits that can bind, in the order of the checks."""


@dataclass(frozen=True)
class ParameterCandidate:
    """A set with the program's layers as they are planned under it.

    Attributes:
        layers: layers planned for n; empty where they do not fit it.
        problem: error of layers that do not fit n; None: they fit.
        thrifty: bytes cost time, so t is as small as it may be: each of its bits lengthens replies.
        squares: number of values of each of the program's squares.
        counted: whether its seconds are the papers' units.
        divisibility: factors of t - 1 that it is planned for.
    """

    parameters: ParameterSet
    layers: tuple[Layer, ...]
    seconds: float
    problem: RuleError | None = None
    thrifty: bool = False
    squares: tuple[int, ...] = ()
    counted: bool = False
    divisibility: Divisibility = field(default_factory=Divisibility)


@dataclass(frozen=True)
class NoiseBudget:
    """The spending of the data primes' bits. All but ``left`` and ``switched`` are spent.

    Attributes:
        modulus: bits of q without the special prime.
        plain: bits of t.
        noise: bits of the products' noise.
        flooding: bits of flooding over the noise of the layer with the most; where there is no room, the least.
        switched: bits left after the switch to the primes that a reply keeps, by its rounding alone.
        distance: -log2 of the statistical distance of an image's noise from one that does not depend on the weights.
    """

    modulus: int
    plain: int
    noise: int
    flooding: int
    switched: int
    distance: float

    @property
    def left(self) -> int:
        """Bits of noise budget in a reply before the switch, two for the range of flooding noise taken off."""
        return self.modulus - self.plain - self.noise - self.flooding - 2

    def __str__(self) -> str:
        spent = f"{self.modulus} - {self.plain} t - {self.noise} noise - {self.flooding} flooding - 2 range"
        return f"{self.left} = {spent}; an image is hidden to 2^-{self.distance:.1f}; switch leaves {self.switched}"


@dataclass(frozen=True)
class Verdict:
    """The judgement of a set: whether it fits, and the limit that binds.

    Attributes:
        parameters: set with the chosen t; with the smallest that the program needs if the budget does not carry it.
        binding: limit that binds where the set does not fit, e.g. "security: log q 240 > 218".
        stage: the entry of :data:`STAGES` that binds.
        error: refusal of the set, None where it fits.
    """

    option: ParameterCandidate
    parameters: Parameters | None = None
    budget: NoiseBudget | None = None
    binding: str = ""
    stage: str = ""
    error: RuleError | None = None

    @property
    def fits(self) -> bool:
        """True if the program runs with this set."""
        return self.error is None


def layers_noise_bits(layers: Iterable[Layer], parameters: Parameters) -> int:
    """Return log2 of a bound on the noise of any layer, or of a square, before flooding."""
    return max([square_noise_bits(parameters), *(layer.noise_bits(parameters) for layer in layers)])


def budget(layers: Iterable[Layer], parameters: Parameters, squares: Iterable[int] = ()) -> NoiseBudget:
    """Return where the bits of q go, for the layer with the most noise.

    Args:
        squares: number of values of each of the program's squares.
    """
    layers, flood = tuple(layers), flood_bits(parameters)
    modulus, noise = sum(parameters.coefficient_bits[:-1]), layers_noise_bits(layers, parameters)
    distance = image_distance_bits(replies(layers, squares, parameters), flood)
    plain, flooding = parameters.plain_bits, max(FLOODING_BITS, flood - noise)
    return NoiseBudget(modulus, plain, noise, flooding, switched_bits(parameters), distance)


def replies(layers: Iterable[Layer], squares: Iterable[int], parameters: Parameters) -> Iterator[tuple[int, int]]:
    """Yield for each layer and square the coefficients of c0 that the client sees, and the bits of their noise."""
    n = parameters.ring_degree
    for layer in layers:
        coefficients = layer.kept
        yield (
            layer.ciphertexts_out * n if coefficients is None else sum(map(len, coefficients)),
            layer.noise_bits(parameters),
        )
    for values in squares:
        yield sum(subring.sizes(values, n)), square_noise_bits(parameters)


def switched_bits(parameters: Parameters) -> int:
    """Return the bits of budget that a reply's rounding leaves, by six standard deviations.

    Each of n ternary secret coefficients, two thirds of them not zero, meets a rounding error in [-1/2, 1/2).
    """
    sent = reply_bits(parameters.coefficient_bits, parameters.plain_bits).second
    rounding = math.ceil(math.log2(6 * math.sqrt(parameters.ring_degree / 18)))
    return sent - parameters.plain_bits - rounding - 1


def judge(wants: Requirements, option: ParameterCandidate) -> Verdict:
    """Return whether a set fits; the first of :data:`STAGES` that fails binds."""
    refused = _refused_set(option) or _refused_bits(wants, option)
    if refused:
        return refused
    smallest = next((p for p in _parameters(wants, option) if wants.satisfied(p.plain_modulus)), None)
    if smallest is None:
        return _refused_lengths(wants, option)
    verdict = _with_budget(option, smallest)
    if not _carried(verdict):
        return _refused_noise(wants, verdict)
    larger = () if option.thrifty or wants.exact else _parameters(wants, option, smallest.plain_bits + 1)
    return [verdict, *(candidate for candidate in (_with_budget(option, p) for p in larger) if _carried(candidate))][-1]


def _parameters(wants: Requirements, option: ParameterCandidate, from_bits: int = 2) -> Iterator[Parameters]:
    """Yield parameters with the largest prime t of each length that carries all transform lengths, ascending."""
    n, bits = option.parameters.ring_degree, option.parameters.coefficient_bits
    multiple, primes = _multiple(wants, option), coefficient_primes(n, bits)
    for size in range(max(from_bits, multiple.bit_length()), MAX_PLAIN_BITS + 1):
        try:
            t = modular.largest_prime(size, multiple, primes)
        except RuleError:
            continue
        yield Parameters(n, bits, t)


def _multiple(wants: Requirements, option: ParameterCandidate) -> int:
    """Return the number that t - 1 must be a multiple of."""
    lengths = set[int]().union(*(layer.transform_lengths for layer in option.layers))
    return math.lcm(2 * option.parameters.ring_degree, wants.multiple, 1 << option.divisibility.twos, *lengths)


def _with_budget(option: ParameterCandidate, parameters: Parameters) -> Verdict:
    return Verdict(option, parameters, budget(option.layers, parameters, option.squares))


def _carried(verdict: Verdict) -> bool:
    budget = verdict.budget
    return budget is not None and budget.left >= MIN_NOISE_BUDGET and budget.distance >= IMAGE_DISTANCE_BITS


def _refused_set(option: ParameterCandidate) -> Verdict | None:
    """Return a refusal that has nothing to do with t."""
    n, bits = option.parameters.ring_degree, option.parameters.coefficient_bits
    if option.problem:
        return Verdict(option, binding=f"layout: {option.problem.got}", stage="layout", error=option.problem)
    try:
        check_security(n, bits)
        coefficient_primes(n, bits)
    except RuleError as error:
        limit = MAX_LOG_Q.get(n, 0)
        long = 0 < limit < sum(bits)
        binding = f"security: log q {sum(bits)} > {limit}" if long else f"security: {error.rule}, not {error.got}"
        return Verdict(option, binding=binding, stage="security", error=error)
    return None


def _refused_bits(wants: Requirements, option: ParameterCandidate) -> Verdict | None:
    """Return a refusal because no t is as large as the program needs."""
    if wants.value_bits > MAX_PLAIN_BITS:
        return _refuse(
            option,
            "value bound",
            f"value bound of {wants.node}: needs t of {wants.value_bits} bits, at most {MAX_PLAIN_BITS}",
            "every value must stay under t / 2",
            f"{wants.node} reaches 2^{math.log2(wants.largest):.1f}, t has at most {MAX_PLAIN_BITS} bits",
            "use fewer bits for weights and activations",
        )
    needed = wants.truncation_bits
    if needed > MAX_PLAIN_BITS:
        return _refuse(
            option,
            "truncation",
            f"{wants.needed_by}: needs t of {needed} bits, at most {MAX_PLAIN_BITS}",
            f"truncation must reach he.failure_bits = {wants.failure_bits}",
            f"{wants.reached((1 << MAX_PLAIN_BITS) - 1):.1f} with the largest plain modulus, {MAX_PLAIN_BITS} bits "
            f"({needed} needed)",
            "lower he.failure_bits or quant.activation_bits",
        )
    return None


def _refused_lengths(wants: Requirements, option: ParameterCandidate) -> Verdict:
    none = f"no t of at most {MAX_PLAIN_BITS} bits that is large enough is 1 mod {_multiple(wants, option)}"
    return _refuse(
        option,
        "transform lengths",
        f"transform lengths: {none}",
        "the plain modulus must be a prime with roots of unity for every transform length",
        none,
        "use layers with fewer different map sizes",
    )


def _refused_noise(wants: Requirements, verdict: Verdict) -> Verdict:
    assert verdict.parameters is not None
    assert verdict.budget is not None
    t, bits, distance = verdict.parameters.plain_bits, verdict.budget.left, verdict.budget.distance
    rule, got = f"every layer must leave {MIN_NOISE_BUDGET} bits of noise budget", f"{bits} bits"
    binding = f"noise budget: {bits} bits after {FLOODING_BITS}-bit flooding"
    if bits >= MIN_NOISE_BUDGET:
        rule, got = f"flooding must hide an image's noise to 2^-{IMAGE_DISTANCE_BITS}", f"2^-{distance:.1f}"
        binding = f"noise budget: an image is hidden to {got}"
    refusal = _refuse(
        verdict.option,
        "noise budget",
        binding,
        rule,
        f"{got} with {verdict.option.parameters} and the {t}-bit plain modulus that the {wants.needed_by} needs",
        "use fewer bits for weights and activations, lower he.failure_bits, or use another he.ring_degree",
    )
    return replace(refusal, parameters=verdict.parameters, budget=verdict.budget)


def _refuse(option: ParameterCandidate, stage: str, binding: str, rule: str, got: str, remedy: str) -> Verdict:
    return Verdict(option, binding=binding, stage=stage, error=DoesNotFit(rule, got=got, remedy=remedy))


WIDE = ParameterSet(WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS)
SHORT_SETS = (ParameterSet(8192, (45, 45, 45, 45)), ParameterSet(8192, (60, 60, 60)))
"""Sets for exact steps, whose t is short: as fast as the first with fewer bytes, and a third faster. A random
truncation would fail more often."""
SETS = (
    ParameterSet(DEFAULT_RING_DEGREE, DEFAULT_COEFFICIENT_BITS),
    ParameterSet(8192, (43, 43, 43, 43, 42)),
    ParameterSet(8192, (36, 36, 36, 36, 35, 35)),
    *SHORT_SETS,
    ParameterSet(16384, (60, 60, 60, 60)),
    WIDE,
    ParameterSet(16384, (49, 49, 49, 49, 49)),
)
"""Sets worth considering, all 128-bit. For one product they carry t of up to 48, 54, 57, 35, 28, 57, 60 and 60 bits;
the last also for sums of tens of thousands of products. n = 4096 has no room for flooding, n = 32768 no use."""


@dataclass(frozen=True)
class ParameterChoice:
    """A choice of parameters, and the alternatives.

    Attributes:
        verdicts: verdict of every candidate, the fastest first.
    """

    wants: Requirements
    verdicts: tuple[Verdict, ...]
    chosen: Verdict

    @property
    def set(self) -> ParameterSet:
        """The chosen n and q."""
        return self.chosen.option.parameters

    @property
    def parameters(self) -> Parameters:
        """The chosen n, q and t."""
        assert self.chosen.parameters is not None
        return self.chosen.parameters

    @property
    def cheapest(self) -> Verdict:
        """The fastest that fits."""
        return next(verdict for verdict in self.verdicts if verdict.fits)

    def reason(self) -> str:
        """Return the choice in one line."""
        if self.cheapest is not self.chosen:
            share = self.cheapest.option.seconds / self.chosen.option.seconds
            return f"{self.cheapest.option.parameters} would do in {share:.2f} of the time; he.ring_degree=0 chooses"
        faster = self.verdicts[: self.verdicts.index(self.chosen)]
        if not faster:
            return f"{self.set}: the fastest set, and it fits"
        nearest = max(faster, key=_closeness)
        return f"{self.set}: the fastest that fits; {nearest.option.parameters} does not ({nearest.binding})"

    def explain(self) -> list[str]:
        """Return a table in plain lines, one for each candidate, under what the program needs."""
        wants = self.wants
        needs = (
            f"needed: t of {wants.plain_bits} bits by {wants.needed_by} "
            f"(values {wants.value_bits}, truncation with he.failure_bits = {wants.failure_bits} "
            f"{wants.truncation_bits})"
        )
        header = ("set", "log q", "t", "noise budget", "failure_bits reached", "predicted", "verdict")
        rows = [header, *(_row(wants, verdict, verdict is self.chosen) for verdict in self.verdicts)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        return [needs, *lines]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"reason": self.reason(), "table": self.explain()}


def sets_for(ring_degree: int, coefficient_bits: Sequence[int] = ()) -> tuple[ParameterSet, ...]:
    """Return the sets that settings allow: the named one, the known ones of a ring degree, or all for n = 0."""
    if coefficient_bits:
        return (ParameterSet(ring_degree, tuple(coefficient_bits)),)
    sets = tuple(s for s in SETS if ring_degree in (0, s.ring_degree))
    if not sets:
        degrees = ", ".join(map(str, sorted({s.ring_degree for s in SETS})))
        raise RuleError(
            "he.ring_degree without he.coefficient_bits must be that of a known set",
            got=ring_degree,
            remedy=f"use {degrees}, or 0 to let the program's bounds choose",
        )
    return sets


def choose(
    wants: Requirements, options: Iterable[ParameterCandidate], fixed: ParameterSet | None = None
) -> ParameterChoice:
    """Return the fastest of some options that fits, for exact steps the shortest of the fastest; there must be one.

    Args:
        fixed: set to choose, which must be among the options; the others are judged for the explanation.

    Raises:
        DoesNotFit: none fits, or the fixed one does not; names what binds for the one that comes closest.
        RuleError: the fixed one is not secure, or its layers have no layout.
    """
    judged = (judge(wants, option) for option in options)
    # Without exact steps a longer modulus leaves room for a larger t.
    verdicts = tuple(sorted(judged, key=lambda v: (v.option.seconds, wants.exact and v.option.parameters.log_q)))
    eligible = [v for v in verdicts if fixed in (None, v.option.parameters)]
    fitting = [v for v in eligible if v.fits]
    if fitting:
        return ParameterChoice(wants, verdicts, fitting[0])
    closest = max(eligible, key=_closeness)
    assert closest.error is not None
    alternative = next((v.option.parameters for v in verdicts if v.fits), None)
    if alternative is None:
        raise closest.error
    raise type(closest.error)(
        closest.error.rule, got=closest.error.got, remedy=f"{alternative} would do: he.ring_degree=0 chooses it"
    )


def _closeness(verdict: Verdict) -> tuple[int, float]:
    """Return a key that is larger for a refused set closer to fitting."""
    return STAGES.index(verdict.stage), verdict.budget.left if verdict.budget else 0.0


def _row(wants: Requirements, verdict: Verdict, is_chosen: bool) -> tuple[str, ...]:
    option, parameters = verdict.option, verdict.parameters
    limit = MAX_LOG_Q.get(option.parameters.ring_degree, 0)
    result = "chosen" if is_chosen else "fits" if verdict.fits else verdict.binding
    return (
        str(option.parameters),
        f"{option.parameters.log_q} of {limit}",
        f"{parameters.plain_bits} bits" if parameters else "-",
        str(verdict.budget or "-"),
        f"{wants.reached(parameters.plain_modulus):.1f}" if parameters else "-",
        in_words(option.seconds, option.counted) if option.layers else "-",
        result,
    )
