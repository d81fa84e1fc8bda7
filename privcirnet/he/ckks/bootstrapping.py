"""Bootstrapping: a ciphertext that has used up its levels gets new ones.

Maths (Cheon, Han, Kim, Kim and Song, 2018; with the cosine of Han and Ki, 2020): values move to the coefficients
(StoC), so that the polynomial at level 0 has coefficients S_0 m. Read modulo the whole chain it has coefficients
S_0 m + q_0 I with small integers I (ModRaise), which move to the slots (CtoS), divided by q_0: they are
x = S_0 m / q_0 + I. Then

    sin(2 pi x) = sin(2 pi S_0 m / q_0) ~ 2 pi S_0 m / q_0

is a polynomial (EvalMod): with u = (x - 1/4) / R in [-1, 1] it is cos(2 pi R u), which is cos(2 pi R u / 2^r) with its
angle doubled r times. That is even in u, a function of w = 2 u^2 - 1, and interpolated as such: half the degree for one
square. All of these are computed twice as large, 2 cos 2 a = (2 cos a)^2 - 2, so that no factor doubles the error of a
square. Real and imaginary parts go separate ways in between.

K, the bound on I: :mod:`ckks.parameters` with a sparse secret. With the uniform ternary one a coefficient of I is
the sum of up to 1 + 2 n / 3 numbers that are uniform in [-1/2, 1/2), subgaussian with variance (1 + 2 n / 3) / 12,
so that one of n is over K with probability 2 n exp(-K^2 / (2 variance)) at most.

Error: sin x - x is x^3 / 6 of x = 2 pi S_0 m / q_0, so values are made small first, by StoC: |x| <= 1 / (2 gain), where
the gain is that of the chain's upper levels (:mod:`ckks.parameters`), which the last doubling leaves. It takes
no level. A ciphertext's own error grows: w is near -1 where x is near 0, and an error of 2 w there grows by 2 pi
R^2 gain. It is the largest part of the result's error, at n = 1024 that of the interpolation is.

Polynomials are evaluated in Chebyshev's basis, with few products and levels (after Paterson and Stockmeyer, 1973):
C_(a + b) = C_a C_b - C_|a - b| for C_a = 2 T_a, without a factor that would double the product's error. A polynomial of
degree under 2 g is q T_g + r with q and r of degree under g, by division in this basis; below a baby length it is a sum
of constants times T_1, T_2, ... Degree d = 2^k - 1 costs about 2 sqrt(d) + k products of ciphertexts and k + 1 levels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.polynomial import chebyshev

from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import Reals
from privcirnet.he.ckks.evaluator import CkksEvaluator, mapped
from privcirnet.he.ckks.linear_map import LinearMap, from_cins, to_cins
from privcirnet.he.ckks.parameters import CkksParameters, overflow_bound

V = TypeVar("V")


def interpolated(function: Callable[[Any], Any], degree: int) -> Reals:
    """Return the Chebyshev coefficients of the interpolation of a function at Chebyshev's points of [-1, 1].

    Returns:
        shape (degree + 1,).
    """
    return np.asarray(chebyshev.chebinterpolate(function, degree), dtype=np.float64)


def divided(coefficients: Reals, giant: int) -> tuple[Reals, Reals]:
    """Return (q, r) with a polynomial equal to q T_g + r: shapes (degree - g + 1,) and (g,).

    Args:
        coefficients: coefficients of the polynomial, of degree g to 2 g - 1.
        giant: g.
    """
    above, rest = coefficients[giant:], coefficients[:giant].copy()
    rest[giant - above.size + 1 :] -= above[:0:-1]  # 2 T_g T_i = T_(g + i) + T_(g - i)
    return np.concatenate([above[:1], 2 * above[1:]]), rest


def levels_of(degree: int) -> int:
    """Return the levels that a polynomial takes.

    Args:
        degree: at least 1.
    """
    return degree.bit_length() + 1


class Polynomial:
    """An evaluator of polynomials of one value, which share its Chebyshev polynomials.

    Args:
        value: 2 x, for x in [-1, 1].
        degree: largest degree of the polynomials.
    """

    def __init__(self, machine: CkksEvaluator[V], value: V, degree: int) -> None:
        self._machine, self._known = machine, {1: value}
        self._baby = 1 << -(-degree.bit_length() // 2)

    def __call__(self, coefficients: Reals) -> Any:
        """Return the value of a polynomial.

        Args:
            coefficients: in Chebyshev's basis, shape (degree + 1,), degree at least 1.
        """
        if len(coefficients) <= self._baby:
            return self._sum(coefficients)
        giant = 1 << (len(coefficients) - 1).bit_length() - 1
        quotient, rest = divided(coefficients, giant)
        if quotient.size == 1:
            product = self._machine.combine([self._power(giant)], [quotient[0] / 2])
        else:
            product = self._machine.multiply(self(quotient / 2), self._power(giant))
        return self._machine.add(product, self(rest)) if giant > 1 else self._machine.add_plain(product, rest[0])

    def _sum(self, coefficients: Reals) -> Any:
        powers = [self._power(i) for i in range(1, len(coefficients))]
        return self._machine.add_plain(self._machine.combine(powers, (coefficients[1:] / 2).tolist()), coefficients[0])

    def _power(self, index: int) -> Any:
        """Return C_index; one that is not a power of two comes from the largest power below."""
        if index not in self._known:
            high = 1 << (index - 1).bit_length() - 1
            machine, product = self._machine, self._machine.multiply(self._power(high), self._power(index - high))
            difference = 2 * high - index
            polynomial = (
                machine.subtract(product, self._power(difference)) if difference else machine.add_plain(product, -2.0)
            )
            self._known[index] = machine.bounded(polynomial, 2.0 + 2.0**-9)
        return self._known[index]


_INTERPOLATION_BITS, _MARGIN = 38, 2.0**-8
"""Bits of the interpolation's error, 2^-38 with angles doubled; the most that x may be away from an integer."""
ROOM = 1.0 + 2.0**-10
"""Factor of a bound that leaves room for errors."""
_GIANT = 5.0
"""Baby steps in the time of a giant step, measured at n = 65536."""


def parameters_for(ring_degree: int = 65536, spare: int = 5) -> CkksParameters:
    """Return parameters whose values can be refreshed to 20 bits: 1,736 bits at n = 65536, K = 12, two digits.

    The levels under the upper ones have keys of their own, with four special primes instead of ten.

    Args:
        spare: levels of a refreshed value beyond those of StoC.

    Raises:
        RuleError: not 128-bit secure.
    """
    upper = {"upper_levels": 12, "upper_bits": 58, "ephemeral_weight": 32}
    return CkksParameters(ring_degree, spare + 15, 48, 56, 11, **upper, low_levels=spare + 3, low_digit_primes=4)


def weighed(maps: Sequence[LinearMap]) -> list[LinearMap]:
    """Return maps whose baby and giant steps are chosen by their time at n = 65536."""
    return [replace(linear, giant=_GIANT) for linear in maps]


@dataclass(frozen=True)
class Bootstrapping:
    """Refreshing of values whose slots have real and imaginary parts in [-1, 1].

    Attributes:
        parameters: CKKS, whose upper levels are CtoS's and EvalMod's.
        failure_bits: a bootstrapping goes wrong with probability 2^-failure_bits at most.
        degree: degree of the interpolation, 2^k - 1.

    Raises:
        RuleError: the parameters have more or fewer upper levels than it takes.
    """

    parameters: CkksParameters
    to_coefficients: int = 3
    to_slots: int = 3
    failure_bits: int = 39
    degree: int = 15

    def __post_init__(self) -> None:
        if self.parameters.upper_levels != self.levels:
            rule, remedy = "the upper levels must be those of CtoS and EvalMod", f"use upper_levels={self.levels}"
            raise RuleError(rule, got=self.parameters.upper_levels, remedy=remedy)

    @cached_property
    def multiples(self) -> int:
        """K."""
        n, weight = self.parameters.ring_degree, self.parameters.ephemeral_weight
        if weight:
            return overflow_bound(n, weight, self.failure_bits)
        variance = (1 + 2 * n / 3) / 12
        return math.ceil(math.sqrt(2 * variance * math.log(2 * n * 2.0**self.failure_bits)))

    @property
    def spread(self) -> float:
        """Root mean square of I."""
        weight = self.parameters.ephemeral_weight or 2 * self.parameters.ring_degree / 3
        return math.sqrt((1 + weight) / 12)

    @property
    def radius(self) -> float:
        """R."""
        return self.multiples + 0.25 + _MARGIN

    @cached_property
    def doublings(self) -> int:
        """r, from the first term that the interpolation leaves out: 2 (a / 2)^e / e! for cos(a u), e = 2 degree + 2.

        Doubling an angle multiplies an error by 4 at most.
        """
        first = 2 * self.degree + 2

        def bits(r: int) -> float:
            return math.lgamma(first + 1) / math.log(2) - 1 - first * math.log2(math.pi * self.radius / 2**r) - 2 * r

        return next(r for r in range(64) if bits(r) > _INTERPOLATION_BITS)

    @property
    def levels(self) -> int:
        """Levels between those of the raised ciphertext and of the result."""
        return self.to_slots + 1 + levels_of(self.degree) + self.doublings

    @property
    def gain(self) -> float:
        """Factor of the last product."""
        return self.parameters.gain(self.parameters.levels - self.levels + 1)

    @property
    def shrink(self) -> float:
        """Factor of values before they are raised."""
        return self.parameters.data_primes[0] / self.parameters.scales[0] / (4 * math.pi * self.gain)

    @cached_property
    def cosine(self) -> Reals:
        """Chebyshev coefficients of 2 cos(2 pi R u / 2^r) as a function of w = 2 u^2 - 1."""
        angle = 2 * np.pi * self.radius / 2**self.doublings
        return interpolated(lambda w: 2 * np.cos(angle * np.sqrt((1 + w) / 2)), self.degree)

    @cached_property
    def forward(self) -> list[LinearMap]:
        """StoC."""
        slots = self.parameters.slots
        maps = weighed(to_cins(slots, slots, self.to_coefficients, self.shrink))
        return [*maps[:-1], replace(maps[-1], coefficients=self.shrink * ROOM)]

    @cached_property
    def back(self) -> list[LinearMap]:
        """CtoS: 2 x / R, and half of that for the sums that make real and imaginary parts."""
        slots, parameters = self.parameters.slots, self.parameters
        scale = parameters.scales[-1] / parameters.data_primes[0] / self.radius
        return weighed(from_cins(slots, slots, self.to_slots, scale))

    def __call__(self, machine: CkksEvaluator[V], value: V) -> V:
        """Return a value with new levels.

        Args:
            value: value of at least ``to_coefficients`` levels.
        """
        return _joined(machine, *self.both(machine, value))

    def refreshed(self, machine: CkksEvaluator[V], value: V) -> V:
        """Return a value with new levels, in slot encoding.

        Args:
            value: in coefficient encoding, times ``shrink``.
        """
        return _joined(machine, *self.parts(machine, value))

    def parts(self, machine: CkksEvaluator[V], value: V) -> tuple[V, V]:
        """Return the real and the imaginary parts of a value's slots, with new levels.

        Args:
            value: in coefficient encoding, times ``shrink``.
        """
        name = machine.layer.removesuffix(" StoC")
        value, conjugate = self._raised(machine, value, name)
        both = machine.add(value, conjugate), machine.times_i(machine.subtract(conjugate, value))
        real, imaginary = (self._sine(machine, part) for part in both)
        machine.layer = name
        return real, imaginary

    def both(self, machine: CkksEvaluator[V], value: V) -> tuple[V, V]:
        """Return the real and the imaginary parts of a value's slots, with new levels.

        Args:
            value: value of at least ``to_coefficients`` levels.
        """
        machine.layer = f"{machine.layer} StoC"
        return self.parts(machine, mapped(machine, value, self.forward))

    def real(self, machine: CkksEvaluator[V], value: V) -> V:
        """Return the real parts of a value's slots with new levels: with one EvalMod instead of two.

        Args:
            value: value of at least ``to_coefficients`` levels.
        """
        name = machine.layer
        machine.layer = f"{name} StoC"
        value = mapped(machine, value, self.forward)
        real = self._sine(machine, machine.add(*self._raised(machine, value, name)))
        machine.layer = name
        return real

    def _raised(self, machine: CkksEvaluator[V], value: V, name: str) -> tuple[V, V]:
        """Return the value that EvalMod takes, and its conjugate."""
        parameters = self.parameters
        machine.layer = f"{name} CtoS"
        value = machine.raised(value, self.multiples, parameters.scales[0] / parameters.scales[-1])
        rms = math.sqrt(parameters.ring_degree) * self.spread * parameters.data_primes[0] / parameters.scales[-1]
        for linear in self.back:
            value = machine.map(machine.bounded(value, math.inf, rms), linear)
            rms *= float(
                np.linalg.norm([diagonal[0] for diagonal in linear.diagonals.values()])
            )  # unitary but for that
        machine.layer = f"{name} EvalMod"
        return value, machine.conjugate(value)

    def _sine(self, machine: CkksEvaluator[V], value: V) -> V:
        """Return 2 gain sin(2 pi x) of 2 x / R, which are a part of the slots."""
        source = machine.add_plain(machine.bounded(value, 2.0), -0.5 / self.radius)
        value = machine.bounded(machine.add_plain(machine.multiply(source, source), -2.0), 2.0)
        cosine = Polynomial(machine, value, self.degree)(self.cosine)
        for doubling in reversed(range(self.doublings)):
            cosine, gain = machine.bounded(cosine, 2.0 * ROOM), 1.0 if doubling else self.gain
            cosine = machine.add_plain(machine.multiply(cosine, cosine, gain), -2.0 * gain)
        slope, growth = 2 * math.pi * self.radius * self.gain, 2 * math.pi * self.radius**2 * self.gain
        error = self.gain * 2.0**-_INTERPOLATION_BITS
        return machine.bounded(machine.smooth(cosine, source, slope, growth, error), ROOM)


def _joined(machine: CkksEvaluator[V], real: V, imaginary: V) -> V:
    """Return slots with these parts."""
    return machine.add(real, machine.times_i(imaginary))
