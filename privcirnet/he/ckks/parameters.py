"""CKKS parameters: a chain of primes with one exact scale for every level, and the digits of key switching.

A value at level l is a polynomial modulo q_0 ... q_l with scale S_l. A product is rescaled at once: divided by q_l it
is at level l - 1 with scale

    S_(l-1) = S_l^2 / q_l.

Every ciphertext of a level has that scale exactly (Kim, Papadimitriou and Polyakov, 2022, "reduced error"), so sums
never mix scales, and a plaintext factor has that scale as well. S_l stays near 2^s because q_l is chosen after S_l: it
is the prime nearest to S_l^2 / 2^s.

Two scales: the uppermost levels, which bootstrapping uses up, may have a longer scale 2^t. A product of ciphertexts
that leaves them has the scale S' = S_(B+1)^2 / q_(B+1), and is read at scale S_B instead: its slots are multiplied by
the *gain* S' / S_B, about 2^(t - s), for nothing. Plaintext factors of level B + 1 have the scale
S_B q_(B+1) / S_(B+1), so that there is no gain.

Digits (:mod:`rlwe.kernels.gadget`): a primes each, with k special primes whose product P is at least twice as large
as that of any digit. More primes in a digit make fewer key digits but a longer P; :func:`choose` weighs them.

The sparse secret that a ciphertext is under while its modulus is raised (Bossuat, Troncoso-Pastoriza and Hubaux, 2022):
at level 0 it is switched from s to s', which has h coefficients that are not zero, with one special prime p. Read
modulo the whole chain it is c0 + c1 s' = S_0 m + q_0 I. A coefficient of I is (c0 + c1 s') / q_0 rounded, and that is a
sum of h + 1 independent numbers that are uniform in [-1/2, 1/2): |I| > K as often as such a sum is over K + 1/2 (Irwin
and Hall). Then the ciphertext is switched back to s, under all primes.

Security: s' is in one key alone, with modulus q_0 p, 120 bits at most; all that is longer is under s. At n = 65536 and
h = 32 the paper's authors state 128 bits, for attacks that guess where s' is zero too. The table of 2024 has no sparse
secrets. Smaller rings have no such figure: h is for 65536 alone, and for toys.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from privcirnet.errors import RuleError
from privcirnet.he.ring import modular
from privcirnet.he.rlwe.parameters import MAX_LOG_Q, RlweParameters, check_modulus

SPECIAL_BITS = 60
"""Bits of each special prime: the most whose products' halves may be added four at a time."""
_SCALE_BITS, _FIRST_BITS = (25, 59), (30, 60)
_DRIFT, _SAME = 0.5, 1e-9


@dataclass(frozen=True)
class CkksParameters:
    """CKKS parameters, checked.

    Attributes:
        ring_degree: n, a power of two; a ciphertext has n / 2 complex slots.
        levels: L, rescalings that a fresh ciphertext allows.
        scale_bits: s, log2 of the scale.
        first_bits: bits of q_0: those of results, sign and scale included.
        digit_primes: a, primes in a digit of key switching.
        upper_bits: t, log2 of their scale.
        low_levels: levels that keys of their own serve, with digits and special primes as short as these levels need;
            0: there are none. See :attr:`low`.
        ephemeral_weight: h, coefficients that are not zero of the sparse secret that a ciphertext of level 0 is under
            while its modulus is raised; 0: there is none. See the module's text.

    Raises:
        RuleError: not 128-bit secure, out of range, or too few primes near the scale.
    """

    ring_degree: int
    levels: int
    scale_bits: int = 40
    first_bits: int = 54
    digit_primes: int = 1
    upper_levels: int = 0
    upper_bits: int = 0
    ephemeral_weight: int = 0
    low_levels: int = 0
    low_digit_primes: int = 0

    def __post_init__(self) -> None:
        self.check()
        check_modulus(self.ring_degree, self.log_q)
        check_weight(self.ring_degree, self.ephemeral_weight)

    def check(self) -> None:
        """Raise unless the chain of primes exists and holds its scale.

        Raises:
            RuleError: out of range, or too few primes near the scale.
        """
        for name, value, (low, high) in (
            ("scale_bits", self.scale_bits, _SCALE_BITS),
            ("first_bits", self.first_bits, (max(_FIRST_BITS[0], self.scale_bits + 1), _FIRST_BITS[1])),
            ("digit_primes", self.digit_primes, (1, self.levels + 1)),
            ("upper_levels", self.upper_levels, (0, self.levels)),
            ("low_levels", self.low_levels, (0, self.levels - self.upper_levels)),
            ("upper_bits", self.upper_bits, (self.scale_bits, _SCALE_BITS[1]) if self.upper_levels else (0, 0)),
        ):
            if not low <= value <= high:
                raise RuleError(f"{name} must be {low} to {high}", got=value, remedy="let parameters.choose pick it")
        for level, scale in enumerate(self.scales):
            if abs(math.log2(scale) - self.aim(level)) > _DRIFT:
                raise RuleError(
                    f"the scale must stay within {_DRIFT} bits of 2^{self.aim(level)}",
                    got=f"2^{math.log2(scale):.2f} at level {level}",
                    remedy="use a longer scale, which has more primes near it, or fewer levels",
                )

    def aim(self, level: int) -> int:
        """Return log2 of the scale that a level's is near."""
        return self.scale_bits if level <= self.levels - self.upper_levels else self.upper_bits

    @cached_property
    def _chain(self) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
        """Data primes q_0, ..., q_L, scales S_0, ..., S_L, and those of plaintext factors."""
        multiple, first = 2 * self.ring_degree, modular.largest_prime(self.first_bits, 2 * self.ring_degree)
        primes: list[int] = []
        scales, factors = [2.0 ** self.aim(self.levels)], list[float]()
        for level in range(self.levels, 0, -1):
            primes.append(_nearest(int(scales[-1] ** 2 / 2.0 ** self.aim(level)), multiple, {first, *primes}))
            natural, same = scales[-1] ** 2 / primes[-1], self.aim(level) == self.aim(level - 1)
            scales.append(natural if same else 2.0 ** self.aim(level - 1))
            factors.append(scales[-2] if same else scales[-2] * scales[-1] / natural)
        return (first, *reversed(primes)), tuple(reversed(scales)), (scales[-1], *reversed(factors))

    @property
    def data_primes(self) -> tuple[int, ...]:
        """The primes q_0, ..., q_L."""
        return self._chain[0]

    @property
    def scales(self) -> tuple[float, ...]:
        """The scales S_0, ..., S_L."""
        return self._chain[1]

    @property
    def factors(self) -> tuple[float, ...]:
        """The scale of a plaintext factor of each level: the level's own, but where products leave the upper levels."""
        return self._chain[2]

    def gain(self, level: int) -> float:
        """Return the factor of the product of two ciphertexts: 1, but at the last of the upper levels.

        Args:
            level: level of the ciphertexts, at least 1.
        """
        return self.scales[level] / self.factors[level]

    def check_gain(self, level: int, gain: float, where: str = "") -> None:
        """Raise unless a product states the factor that its slots are multiplied by.

        Args:
            level: level of the factors.

        Raises:
            RuleError: it states another.
        """
        if abs(gain / self.gain(level) - 1) > _SAME:
            rule, remedy = "a product that leaves the upper levels must state its gain", "use parameters.gain(level)"
            raise RuleError(rule, got=f"{gain:.6g} for {self.gain(level):.6g}{where} at level {level}", remedy=remedy)

    @cached_property
    def special_primes(self) -> tuple[int, ...]:
        """The fewest special primes whose product is twice that of the longest digit."""
        primes: list[int] = []
        while math.prod(primes) < 2 * max(map(math.prod, self.digits(self.levels))):
            used = frozenset({*primes, *self.data_primes})
            primes.append(modular.largest_prime(SPECIAL_BITS, 2 * self.ring_degree, used))
        return tuple(primes)

    @cached_property
    def low(self) -> "CkksParameters | None":
        """Parameters of the lower levels alone: the same primes and scales, fewer special primes.

        A key switch costs a row for each special prime. P is as long as a digit of the top level, so that at a quarter
        of the levels two thirds of a linear map are its rows.
        """
        if not self.low_levels:
            return None
        parameters = CkksParameters(
            self.ring_degree, self.low_levels, self.scale_bits, self.first_bits, self.low_digit_primes
        )
        data, special = self.data_primes[: parameters.levels + 1], self.special_primes[: len(parameters.special_primes)]
        if (parameters.data_primes, parameters.special_primes) != (data, special):
            raise ValueError("primes of lower levels must be the first ones of all")
        return parameters

    def at(self, level: int) -> "CkksParameters":
        """Return the parameters of the keys that serve a level."""
        return self.low if self.low and level <= self.low_levels else self

    @cached_property
    def rlwe(self) -> RlweParameters:
        """All primes, and the digits of key switching."""
        return RlweParameters(self.ring_degree, self.data_primes, self.special_primes, self.digit_primes)

    def digits(self, level: int) -> list[tuple[int, ...]]:
        """Return the data primes of each digit at a level; the last may have fewer."""
        data, a = self.data_primes[: level + 1], self.digit_primes
        return [data[start : start + a] for start in range(0, len(data), a)]

    @property
    def log_q(self) -> int:
        """Bits of all primes' product, which security depends on."""
        return math.prod(self.rlwe.primes).bit_length()

    @property
    def slots(self) -> int:
        """Complex slots, n / 2."""
        return self.ring_degree // 2

    @property
    def key_bytes(self) -> int:
        """Bytes of one key in memory; fewer than half of them travel."""
        return self.rlwe.loaded_key_bytes(self.levels + 1)

    @property
    def switch_rows(self) -> int:
        """Transforms of one key switch at the top level, and products of rows at a sixth each: its time, in units.

        A transform of n = 2^13 to 2^16 takes about as long as six rows of products.
        """
        data, special, digits = len(self.data_primes), len(self.special_primes), len(self.digits(self.levels))
        transforms = data + 2 * special + digits * (data + special) - data + 2 * data
        return transforms + 2 * digits * (data + special) // 6


def choose(
    ring_degree: int, levels: int, scale_bits: int = 40, first_bits: int = 54, *, keys: int = 1, keys_gb: float = 4.0
) -> CkksParameters:
    """Return the parameters whose key switch is quickest among those that are secure and whose keys fit in memory.

    Args:
        levels: L.
        scale_bits: s.
        first_bits: bits of q_0.

    Raises:
        RuleError: no number of digits is secure, or none of those that are fits the budget.
    """
    shortest = math.inf
    candidates: list[CkksParameters] = []
    for digit_primes in range(1, levels + 2):
        try:
            candidate = CkksParameters(ring_degree, levels, scale_bits, first_bits, digit_primes)
        except RuleError:
            if digit_primes == 1:
                raise
            continue
        shortest = min(shortest, keys * candidate.key_bytes / 1e9)
        if keys * candidate.key_bytes <= keys_gb * 1e9:
            candidates.append(candidate)
    if not candidates:
        rule, remedy = f"{keys} keys must fit keys_gb = {keys_gb:g}", "raise it, or take fewer rotations or levels"
        raise RuleError(rule, got=f"{shortest:.2f} GB", remedy=remedy)
    return min(candidates, key=lambda candidate: candidate.switch_rows)


def levels_of(ring_degree: int, scale_bits: int = 40, first_bits: int = 54) -> int:
    """Return the most levels that 128 bits of security allow, with digits of one prime.

    Args:
        scale_bits: s.
        first_bits: bits of q_0.

    Raises:
        RuleError: not even one level fits.
    """
    for levels in range(MAX_LOG_Q.get(ring_degree, 0) // scale_bits, 1, -1):
        try:
            return CkksParameters(ring_degree, levels, scale_bits, first_bits).levels
        except RuleError:
            continue
    return CkksParameters(ring_degree, 1, scale_bits, first_bits).levels


def _nearest(number: int, multiple: int, excluded: set[int]) -> int:
    """Return the prime that is nearest to a number, 1 modulo a multiple, and not taken."""
    below = number - (number - 1) % multiple
    for distance in range(number // multiple):
        for candidate in (below - distance * multiple, below + (distance + 1) * multiple):
            if candidate not in excluded and modular.is_prime(candidate):
                return candidate
    raise RuleError("there must be primes near the scale", got=f"none near {number}", remedy="use a longer scale")


_SECURE = {65536: 32}
"""Ring degree -> the least weight with 128-bit security at a modulus of 120 bits."""


def check_weight(ring_degree: int, weight: int) -> None:
    """Raise unless a sparse secret is 128-bit secure at a modulus of 120 bits.

    Args:
        weight: h; 0: there is no sparse secret.

    Raises:
        RuleError: it is not, or nobody has stated that it is.
    """
    if weight and weight < _SECURE.get(ring_degree, math.inf):
        rule = f"a sparse secret's weight must be {', '.join(f'{h} or more at n = {n}' for n, h in _SECURE.items())}"
        raise RuleError(rule, got=f"{weight} at n = {ring_degree}", remedy="use ephemeral_weight=0 in smaller rings")


def tail_bits(weight: int, multiples: int) -> float:
    """Return -log2 of the probability that one coefficient of I is over K in absolute value; exact.

    Args:
        weight: h.
        multiples: K.
    """
    count, above = weight + 1, Fraction(weight, 2) - multiples
    terms = [(-1) ** k * math.comb(count, k) * (above - k) ** count for k in range(max(math.ceil(above), 0))]
    probability = 2 * sum(terms, Fraction(0)) / math.factorial(count)
    return math.log2(probability.denominator) - math.log2(probability.numerator) if probability else math.inf


def overflow_bound(ring_degree: int, weight: int, failure_bits: float) -> int:
    """Return the least K that all n coefficients of I keep, but for a probability of 2^-failure_bits.

    Args:
        weight: h.
    """
    aim = failure_bits + math.log2(ring_degree)
    return next(k for k in range(weight // 2 + 1) if tail_bits(weight, k) >= aim)
