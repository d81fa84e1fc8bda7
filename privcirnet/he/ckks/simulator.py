"""Simulation of a circuit before anything is encrypted: its levels, scales, keys, ranges and errors.

The error of a slot is followed as a variance, E |error|^2 in units of the message, by the usual average-case analysis
(Costache, Curtis, Hales, Murphy, Ogilvie and Player, 2022). A polynomial error with independent coefficients of
variance c has n c / S^2 in every slot at scale S. With errors of variance 10.5, a ternary secret (2/3) and roundings
(1/12):

* fresh: c = 10.5 + 1/12;
* a rescaling, or a division by P: c = (1 + 2 n / 3) / 12;
* a key switch: c = 10.5 n sum over digits of Q_d^2 / 12 / P^2, and a division's;
* a product: |x|^2 var(y) + |y|^2 var(x) + var(x) var(y), twice that of a square, whose errors are the same. |x| and |y|
  are bounds of the slots, or their root mean square where a circuit knows it; then the variance is an average over
  slots. A plaintext's is n / 12 / S^2, its rounding;
* a smooth function of several products (EvalMod): slope^2 var(x), and what the circuit says of the products' errors.

A slot's error is over six deviations with probability exp(-36) = 2^-52: that is what the precision in bits means.
tests/he/ckks/test_simulator.py holds it against ciphertexts.
"""

import math
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.ckks.context import Context, Names, stored_name
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.rlwe.parameters import FROM_EPHEMERAL, RELINEARIZATION, TO_EPHEMERAL, check_held, conjugation_element

_DEVIATIONS = 6


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimate of a value's scale, size and error.

    Attributes:
        scale: S, followed product by product.
        variance: variance of a slot's error, in units of the message.
        rms: root mean square of the slots, where it is known; else infinite.
    """

    level: int
    scale: float
    bound: float
    variance: float
    rms: float = math.inf

    @property
    def usual(self) -> float:
        """Size that the errors of a product's other factor are multiplied by: the root mean square, or the bound."""
        return min(self.bound, self.rms)

    @property
    def precision_bits(self) -> float:
        """Bits to which every slot is right, but for one in 2^52."""
        return -math.log2(_DEVIATIONS * math.sqrt(self.variance))

    def noise_bits(self, slots: int) -> int:
        """Return log2 of a bound, six deviations, on the error's coefficients as integers.

        Args:
            slots: slots of a ciphertext, n / 2.
        """
        return math.ceil(math.log2(_DEVIATIONS * self.scale * math.sqrt(self.variance / (2 * slots))))


@dataclass(frozen=True)
class Trace:
    """The last value of a layer.

    Attributes:
        level: level of that value.
        precision_bits: precision of that value.
        bound: bound of that value.
    """

    layer: str
    level: int
    precision_bits: float
    bound: float


_ERROR, _ROUNDING, _SECRET = 10.5, 1 / 12, 2 / 3
_DRIFT = 0.5


class LinearMapUse(NamedTuple):
    """A linear map that a circuit meets.

    Attributes:
        babies: baby steps, 0 among them if it is one.
        linear: returns the map as long as the circuit keeps it, then None.
    """

    layer: str
    level: int
    products: int
    rotations: int
    babies: int
    giants: int
    linear: Callable[[], LinearMap | None]


class Simulator:
    """A :class:`ckks.evaluator.CkksEvaluator` that counts.

    Attributes:
        maps: linear maps in the order in which they are met.
        counts: operations of each layer, by the names that :class:`CkksServer` counts them by, and "raised".
        course: traces of each stretch of a layer, in the order of time; a layer that is refreshed has two.

    Args:
        names: names of the keys that the server will have (:meth:`Context.named`); None: all, which ``keys``
            collects with the highest level that each is used at.
    """

    def __init__(self, parameters: CkksParameters, names: Names | None = None) -> None:
        self.layer, self.parameters, self._context = "", parameters, Context(parameters)
        self.maps: list[LinearMapUse] = []
        self.counts = defaultdict[str, Counter[str]](Counter)
        self.course: list[Trace] = []
        self.keys: dict[int, int] = {} if names is None else self._context.named(names)
        self._collects = names is None

    @property
    def total(self) -> Counter[str]:
        """Operations of all layers."""
        return sum(self.counts.values(), Counter[str]())

    def fresh(self, bound: float = 1.0, level: int | None = None) -> ErrorEstimate:
        """Return the estimate of a fresh ciphertext.

        Args:
            level: level that it is encrypted at; None: the top level.

        Raises:
            RuleError: the values do not fit the modulus.
        """
        parameters = self.parameters
        level = parameters.levels if level is None else level
        scale = parameters.scales[level]
        return self._checked(ErrorEstimate(level, scale, bound, self._slot(_ERROR + _ROUNDING, scale)))

    def add(self, first: ErrorEstimate, second: ErrorEstimate) -> ErrorEstimate:
        lhs, rhs = self._aligned(first, second)
        bound, variance = lhs.bound + rhs.bound, lhs.variance + rhs.variance
        return self._checked(replace(lhs, bound=bound, variance=variance, rms=math.inf))

    def subtract(self, first: ErrorEstimate, second: ErrorEstimate) -> ErrorEstimate:
        return self.add(first, second)

    def add_plain(self, value: ErrorEstimate, slots: npt.ArrayLike) -> ErrorEstimate:
        bound, variance = value.bound + _largest(slots), value.variance + self._slot(_ROUNDING, value.scale)
        return self._checked(replace(value, bound=bound, variance=variance, rms=math.inf))

    def multiply_plain(self, value: ErrorEstimate, slots: npt.ArrayLike) -> ErrorEstimate:
        self._spend(value)
        largest, rounding = _largest(slots), self._slot(_ROUNDING, self.parameters.factors[value.level])
        variance = largest**2 * value.variance + (value.bound**2 + value.variance) * rounding
        return self._rescaled(value, self.parameters.factors[value.level], value.bound * largest, variance)

    def combine(self, values: Sequence[ErrorEstimate], factors: Sequence[float]) -> ErrorEstimate:
        """Return the estimate of a sum of products; numbers are rounded to the scale of a factor."""
        self.counts[self.layer]["pmult"] += len(values)
        lowest, parameters = min(values, key=lambda value: value.level), self.parameters
        self._spend(lowest)
        bound = sum(abs(factor) * value.bound for value, factor in zip(values, factors, strict=True))
        variance = sum(factor**2 * value.variance for value, factor in zip(values, factors, strict=True))
        variance += sum((value.bound / (2 * parameters.factors[lowest.level])) ** 2 for value in values)
        return self._rescaled(lowest, parameters.factors[lowest.level], bound, variance)

    def multiply(self, first: ErrorEstimate, second: ErrorEstimate, gain: float = 1.0) -> ErrorEstimate:
        self.counts[self.layer]["multiply"] += 1
        lhs, rhs = self._aligned(first, second)
        self._spend(lhs)
        self.parameters.check_gain(lhs.level, gain, f" in layer {self.layer!r}")
        self._need({RELINEARIZATION}, lhs.level)
        variance = lhs.usual**2 * rhs.variance + rhs.usual**2 * lhs.variance + lhs.variance * rhs.variance
        variance *= 2 if first is second else 1  # both errors are the same
        variance += self._switch(lhs.level, lhs.scale * rhs.scale)
        return self._rescaled(lhs, rhs.scale / gain, lhs.bound * rhs.bound * gain, variance * gain**2)

    def rotate(self, value: ErrorEstimate, step: int) -> ErrorEstimate:
        return self._turned(value, "rotate", self._context.element(step))

    def conjugate(self, value: ErrorEstimate) -> ErrorEstimate:
        return self._turned(value, "conjugate", conjugation_element(self.parameters.ring_degree))

    def times_i(self, value: ErrorEstimate) -> ErrorEstimate:
        return value

    def times(self, value: ErrorEstimate, factor: int) -> ErrorEstimate:
        bound, variance, rms = value.bound * abs(factor), value.variance * factor**2, value.rms * abs(factor)
        return self._checked(replace(value, bound=bound, variance=variance, rms=rms))

    def raised(self, value: ErrorEstimate, multiples: float, ratio: float) -> ErrorEstimate:
        """Return the estimate of a raised value; a slot adds up n coefficients."""
        self.counts[self.layer]["raised"] += 1
        parameters, low = self.parameters, self._lowered(value, 0)
        scale, n, q, top = parameters.scales[-1], parameters.ring_degree, parameters.data_primes[0], parameters.levels
        variance = low.variance
        if parameters.ephemeral_weight:
            self._need({TO_EPHEMERAL}, 0)
            self._need({FROM_EPHEMERAL}, top)
            switched = _ERROR * n * (q / parameters.special_primes[0]) ** 2 * _ROUNDING
            variance += self._slot(switched + _ROUNDING * (1 + parameters.ephemeral_weight), low.scale)
        bound = low.bound * ratio + n * multiples * q / scale
        variance = variance * ratio**2
        if parameters.ephemeral_weight:
            variance += self._switch(top, scale) + self._division(scale)
        return self._checked(ErrorEstimate(top, scale, bound, variance))

    def bounded(self, value: ErrorEstimate, bound: float, rms: float = math.inf) -> ErrorEstimate:
        return self._noted(replace(value, bound=min(bound, value.bound), rms=min(rms, value.rms)))

    def smooth(
        self, value: ErrorEstimate, source: ErrorEstimate, slope: float, growth: float, error: float
    ) -> ErrorEstimate:
        product = self._switch(source.level, source.scale**2) + self._division(source.scale)
        local_error = self._division(value.scale) + error**2
        return self._noted(replace(value, variance=slope**2 * source.variance + growth**2 * product + local_error))

    def lowered(self, value: ErrorEstimate, level: int) -> ErrorEstimate:
        """Raise a RuleError where the value has fewer levels."""
        if level > value.level:
            got, remedy = f"{value.level} to {level} in layer {self.layer!r}", "use more spare levels"
            raise RuleError("a value is lowered, not raised", got=got, remedy=remedy)
        return self._lowered(value, level)

    def map(self, value: ErrorEstimate, linear: LinearMap) -> ErrorEstimate:
        """Return the estimate of a mapped value; rotations stay extended, so that only the sums are divided by P."""
        counts = linear.products, linear.rotations, len(linear.babies), len(linear.groups)
        self.maps.append(LinearMapUse(self.layer, value.level, *counts, weakref.ref(linear)))
        self.counts[self.layer] += Counter(rotate=linear.rotations, pmult=linear.products)
        self._spend(value)
        self._need(self._context.elements(linear.steps), value.level)
        sizes = np.abs(np.stack([np.asarray(diagonal) for diagonal in linear.diagonals.values()]))
        power, factor = float((sizes**2).sum(axis=0).max()), self.parameters.factors[value.level]
        term_variance = value.variance + self._switch(value.level, value.scale)
        variance = power * term_variance + len(sizes) * (value.usual**2 + term_variance) * self._slot(_ROUNDING, factor)
        giants, product = len(linear.groups), value.scale * factor
        variance += giants * self._switch(value.level, product) + (giants - 1) * self._division(product)
        return self._rescaled(
            value, factor, value.bound * float(sizes.sum(axis=0).max()), variance, linear.coefficients
        )

    def reply(self, value: ErrorEstimate) -> ErrorEstimate:
        """Return the estimate of a value that is sent back, at level 0; its layer is called "reply".

        Raises:
            RuleError: it does not fit the first prime.
        """
        self.layer = "reply"
        return self._checked(self._lowered(value, 0))

    def _turned(self, value: ErrorEstimate, name: str, element: int) -> ErrorEstimate:
        self.counts[self.layer][name] += 1
        self._need({element}, value.level)
        added = self._switch(value.level, value.scale) + self._division(value.scale)
        return replace(value, variance=value.variance + added)

    def _aligned(self, first: ErrorEstimate, second: ErrorEstimate) -> tuple[ErrorEstimate, ErrorEstimate]:
        level = min(first.level, second.level)
        return self._lowered(first, level), self._lowered(second, level)

    def _lowered(self, value: ErrorEstimate, level: int) -> ErrorEstimate:
        """Return a product with a constant near a prime, so that its rounding is 2^-s of the value."""
        if value.level == level:
            return value
        scale = self.parameters.scales[level]
        constant = scale / value.scale * self.parameters.data_primes[level + 1]
        lost = (value.bound / (2 * constant)) ** 2
        return replace(value, level=level, scale=scale, variance=value.variance + lost + self._division(scale))

    def _rescaled(
        self, value: ErrorEstimate, scale: float, bound: float, variance: float, coefficients: float = 0.0
    ) -> ErrorEstimate:
        """Return a product with something of a scale, divided by the level's prime."""
        new_scale = value.scale * scale / self.parameters.data_primes[value.level]
        return self._checked(
            ErrorEstimate(value.level - 1, new_scale, bound, variance + self._division(new_scale)), coefficients
        )

    def _slot(self, coefficient: float, scale: float) -> float:
        """Return the variance of a slot from that of coefficients."""
        return self.parameters.ring_degree * coefficient / scale**2

    def _division(self, scale: float) -> float:
        return self._slot(_ROUNDING * (1 + _SECRET * self.parameters.ring_degree), scale)

    def _switch(self, level: int, scale: float) -> float:
        """Return the variance that a key switch adds before its division."""
        parameters = self.parameters.at(level)
        p = math.prod(parameters.special_primes)
        digits = sum((math.prod(digit) / p) ** 2 for digit in parameters.digits(level))
        return self._slot(_ERROR * self.parameters.ring_degree * digits * _ROUNDING, scale)

    def _spend(self, value: ErrorEstimate) -> None:
        if value.level < 1:
            rule, remedy = "a product must find a level above 0", "use parameters with more levels"
            raise RuleError(rule, got=f"level 0 in layer {self.layer!r}", remedy=remedy)

    def _need(self, names: Collection[int], level: int) -> None:
        stored = {name: stored_name(self.parameters, name, level) for name in names}
        if self._collects:
            self.keys |= {key: max(level, self.keys.get(key, 0)) for key in stored.values()}
        available = [name for name, key in stored.items() if self.keys.get(key, -1) >= level]
        check_held(names, available, f" in layer {self.layer!r} at level {level}")

    def _checked(self, value: ErrorEstimate, coefficients: float = 0.0) -> ErrorEstimate:
        """Note a value, and refuse it if its scale has drifted or the modulus does not hold it.

        Coefficients are averages of slots, so that the bound of the slots is theirs too, if none is known.
        """
        parameters, where = self.parameters, f"in layer {self.layer!r} at level {value.level}"
        aim = parameters.aim(value.level)
        if abs(math.log2(value.scale) - aim) > _DRIFT:
            rule = f"a scale must stay within {_DRIFT} bits of 2^{aim}"
            got, remedy = f"2^{math.log2(value.scale):.2f} {where}", "use primes nearer to the scale"
            raise RuleError(rule, got=got, remedy=remedy)
        room = sum(map(math.log2, parameters.data_primes[: value.level + 1])) - 1 - math.log2(value.scale)
        largest = coefficients or value.bound
        if largest > 0 and math.log2(largest) >= room:
            rule, remedy = "a value must fit its modulus", "use a longer first prime, or smaller weights"
            raise RuleError(rule, got=f"{largest:.4g} for {2**room:.4g} {where}", remedy=remedy)
        return self._noted(value)

    def _noted(self, value: ErrorEstimate) -> ErrorEstimate:
        if self.course and self.course[-1].layer == self.layer:
            self.course.pop()
        self.course.append(Trace(self.layer, value.level, value.precision_bits, value.bound))
        return value


def _largest(slots: npt.ArrayLike) -> float:
    return float(np.abs(np.asarray(slots)).max())
