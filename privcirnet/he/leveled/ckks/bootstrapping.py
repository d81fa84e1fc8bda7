"""Bootstrapping: a ciphertext that has used up its levels gets new ones.

Maths (Cheon, Han, Kim, Kim and Song, 2018; with the cosine of Han and Ki, 2020): values move to the coefficients
(StoC), so that the polynomial at level 0 has coefficients S_0 m. Read modulo the whole chain it has coefficients
S_0 m + q_0 I with small integers I (ModRaise), which move to the slots (CtoS), divided by K q_0. There

    sin(2 pi K t) = sin(2 pi S_0 m / q_0) ~ 2 pi S_0 m / q_0,        t = (S_0 m / q_0 + I) / K in [-1, 1],

is a polynomial: cos((2 pi K t - pi / 2) / 2^r) interpolated, then cos 2 a = 2 cos^2 a - 1 r times (EvalMod). Real and
imaginary parts go separate ways in between.

K: I is (c0 + c1 s) / q_0 rounded, a sum of up to 1 + 2 n / 3 numbers that are uniform in [-1/2, 1/2), for the uniform
ternary secret that everything else has. It is subgaussian with variance (1 + 2 n / 3) / 12, so that one of n integers
is over K with probability 2 n exp(-K^2 / (2 variance)) at most. No sparse secret is needed; a sparse one would need a
smaller K and fewer doublings.

Error: sin x - x is x^2 / 6 of x = 2 pi S_0 m / q_0, so values are made small first, by StoC: |x| <= 2^-ratio_bits. What
is left is an integer factor, which takes no level.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from privcirnet.he.leveled.ckks import chebyshev, fourier
from privcirnet.he.leveled.ckks.embedding import Reals
from privcirnet.he.leveled.ckks.machine import Machine
from privcirnet.he.leveled.ckks.parameters import CkksParameters
from privcirnet.he.leveled.ckks.transform import LinearMap

V = TypeVar("V")


@dataclass(frozen=True)
class Bootstrapping:
    """How values are refreshed whose slots have real and imaginary parts in [-1, 1].

    Attributes:
        parameters: CKKS.
        to_coefficients: levels of StoC.
        to_slots: levels of CtoS.
        ratio_bits: -log2 of the largest |x|.
        failure_bits: a bootstrapping goes wrong with probability 2^-failure_bits at most.
        degree: of the interpolation, 2^k - 1.
    """

    parameters: CkksParameters
    to_coefficients: int = 3
    to_slots: int = 3
    ratio_bits: int = 12
    failure_bits: int = 30
    degree: int = 63

    @cached_property
    def multiples(self) -> int:
        """K."""
        n = self.parameters.ring_degree
        variance = (1 + 2 * n / 3) / 12
        return math.ceil(math.sqrt(2 * variance * math.log(2 * n * 2.0**self.failure_bits)))

    @cached_property
    def doublings(self) -> int:
        """r: the interpolated cosine's argument stays under 2^-1.5 of the degree, where its error is under 2^-40."""
        return max(0, math.ceil(math.log2(2 * math.pi * (self.multiples + 1) * 2**1.5 / self.degree)))

    @property
    def levels(self) -> int:
        """Levels between those of the raised ciphertext and of the result."""
        return self.to_slots + chebyshev.levels_of(self.degree) + self.doublings

    @property
    def shrink(self) -> float:
        """What values are multiplied by before they are raised."""
        ratio = self.parameters.data_primes[0] / self.parameters.scales[0]
        return ratio / (2 * math.pi * 2**self.ratio_bits)

    @cached_property
    def cosine(self) -> Reals:
        """Chebyshev coefficients of cos((2 pi K t - pi / 2) / 2^r)."""
        k, r = self.multiples + 1, self.doublings
        return chebyshev.interpolated(lambda t: np.cos((2 * np.pi * k * t - np.pi / 2) / 2**r), self.degree)

    @cached_property
    def _maps(self) -> tuple[list[LinearMap], list[LinearMap]]:
        """StoC and CtoS, with the factors that belong to them; half of CtoS's is for the real and imaginary parts."""
        slots, parameters = self.parameters.slots, self.parameters
        scale = parameters.scales[-1] / parameters.data_primes[0] / (self.multiples + 1) / 2
        first = fourier.to_cins(slots, slots, self.to_coefficients, self.shrink)
        return first, fourier.from_cins(slots, slots, self.to_slots, scale)

    def __call__(self, machine: Machine[V], value: V) -> V:
        """Return a value with new levels.

        Args:
            machine: that runs it.
            value: of at least ``to_coefficients`` levels.
        """
        machine.layer = f"{machine.layer} StoC"
        first, second = self._maps
        for linear in first:
            value = machine.map(value, linear)
        value = machine.raised(value, self.multiples)
        machine.layer = machine.layer.replace("StoC", "CtoS")
        for linear in second:
            value = machine.map(value, linear)
        machine.layer = machine.layer.replace("CtoS", "EvalMod")
        other = machine.conjugate(value)
        parts = machine.add(value, other), machine.times_i(machine.subtract(other, value))
        real, imaginary = (self._sine(machine, machine.bounded(part, 1.0)) for part in parts)
        whole = machine.bounded(machine.add(real, machine.times_i(imaginary)), 2.0 ** (1 - self.ratio_bits))
        return machine.times(whole, 2**self.ratio_bits)

    def _sine(self, machine: Machine[V], value: V) -> V:
        """sin(2 pi K t)."""
        found = chebyshev.Polynomial(machine, value, self.degree)(self.cosine)
        for _ in range(self.doublings):
            found = machine.bounded(found, 1.0 + 2.0**-10)
            square = machine.multiply(found, found)
            found = machine.add_plain(machine.add(square, square), -1.0)
        return found
