"""BFV parameters: a checked (n, q, t), and the choice of one from a program's proved bounds.

Security: the largest log2 q for 128 bits of classical security with ternary secrets, from the homomorphic encryption
standard (Albrecht et al., 2018, table 1).

The noise model is the average-case one, with constants that were measured: after a rotation, one product with a dense
plaintext and a rotation the noise is at most t 2^20 at n = 8192; it grows with n^1.5 and with the square root of the
number of products in a sum. A reply adds flooding noise that is 2^40 times as large (:mod:`ring.flooding`).
The noise budget is what is left of q' / t (q' without the special prime). The model is checked against the library's
own measurement in the tests.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from privcirnet.errors import RuleError
from privcirnet.he.ring import modular
from privcirnet.he.ring.sampling import FLOODING_BITS

SECURITY_BITS = 128
MAX_LOG_Q = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""Ring degree n -> largest log2 q with 128-bit security."""

MAX_PLAIN_BITS = 60
MIN_NOISE_BUDGET = 6.0
"""Bits that every layer has to leave by the model, so that a decryption failure is out of reach."""

SEED_BYTES = 64
"""Seed that stands for the uniform half of a fresh ciphertext."""

_SWITCH_MARGIN = 10
"""Bits over those of t that a reply's modulus has at least. The rounding of the switch has a standard deviation of
sqrt(n / 18), 21 at n = 8192 and 30 at 16384, and decrypts under 2^9, 17 deviations or more: it never fails."""

_DEVIATION, _LARGEST, _DEVIATIONS = math.sqrt(10.5), 21, 10
"""Of a fresh ciphertext's noise, the difference of two sums of 21 bits; and how many a sum's bound is."""

DEFAULT_COEFFICIENT_BITS = (55, 55, 54, 54)
"""Three primes for data and the special prime, 218 bits in all at n = 8192: one prime fewer than SEAL's default, so
that a rotation takes two thirds of the time and a ciphertext three quarters of the numbers. With flooding it carries
plain moduli of up to about 47 bits."""

WIDE_RING_DEGREE = 16384
WIDE_COEFFICIENT_BITS = (48, 48, 48, 48, 49)
"""The least modulus that carries a 60-bit plain modulus with flooding; its residues fill whole bytes."""

NARROW_RING_DEGREE = 4096
NARROW_COEFFICIENT_BITS = (48, 45, 16)
"""For coefficient encodings, whose noise is small: 93 bits of data, because the special prime, which only public-key
encryption uses where nothing is rotated, is the shortest that is 1 mod 2n and that the library accepts (40961). With
flooding it carries plain moduli of up to 30 bits under a noise bound of 2^16; a reply keeps one prime, 6 bytes."""

_MIN_DATA_BITS, _MIN_SPECIAL_BITS = 20, 16


@dataclass(frozen=True)
class Parameters:
    """Checked BFV parameters.

    Attributes:
        ring_degree: n, slots of a ciphertext; a power of two.
        coefficient_bits: bits of each prime of q, the special prime (key switching) last.
        plain_modulus: t, prime, 1 mod 2n.

    Raises:
        RuleError: not 128-bit secure, or t does not suit n and q.
    """

    ring_degree: int
    coefficient_bits: tuple[int, ...]
    plain_modulus: int

    def __post_init__(self) -> None:
        check_security(self.ring_degree, self.coefficient_bits)
        _check_plain_modulus(self.plain_modulus, self.ring_degree)
        if self.plain_modulus in coefficient_primes(self.ring_degree, self.coefficient_bits):
            raise RuleError(
                "the plain modulus must not be a prime of q",
                got=self.plain_modulus,
                remedy="let params.choose find another",
            )

    @property
    def log_q(self) -> int:
        """Bits of the whole modulus, special prime included: what security depends on."""
        return sum(self.coefficient_bits)

    @property
    def plain_bits(self) -> int:
        """Bits of t."""
        return self.plain_modulus.bit_length()


@lru_cache(maxsize=64)
def coefficient_primes(ring_degree: int, coefficient_bits: tuple[int, ...]) -> frozenset[int]:
    """The primes of q as the library picks them: of each size the largest that are 1 mod 2n.

    Raises:
        RuleError: there are not that many.
    """
    found: frozenset[int] = frozenset()
    for bits in coefficient_bits:
        found |= {modular.largest_prime(bits, 2 * ring_degree, found)}
    return found


@lru_cache(maxsize=64)
def ordered_primes(ring_degree: int, coefficient_bits: tuple[int, ...]) -> tuple[int, ...]:
    """The same primes in the library's order: those of one size ascend.

    >>> [p.bit_length() for p in ordered_primes(8192, (55, 54, 55))]
    [55, 54, 55]
    """
    ascending = sorted(coefficient_primes(ring_degree, coefficient_bits), reverse=True)
    by_size = {bits: [p for p in ascending if p.bit_length() == bits] for bits in set(coefficient_bits)}
    return tuple(by_size[bits].pop() for bits in coefficient_bits)


def reply_primes(coefficient_bits: tuple[int, ...], plain_bits: int) -> int:
    """Number of data primes that a reply keeps: the fewest that leave room for the switch's own rounding noise."""
    data = coefficient_bits[:-1]
    for count in range(1, len(data)):
        if sum(data[:count]) >= plain_bits + _SWITCH_MARGIN:
            return count
    return len(data)


def message_bytes(parameters: Parameters) -> tuple[int, int]:
    """Bytes of one ciphertext on the wire: (client to server: seeded; server to client: switched down)."""
    return ciphertext_bytes(parameters.ring_degree, parameters.coefficient_bits, parameters.plain_bits)


def ciphertext_bytes(ring_degree: int, coefficient_bits: tuple[int, ...], plain_bits: int) -> tuple[int, int]:
    """:func:`message_bytes` before a plain modulus is chosen."""
    widths = [-(-bits // 8) for bits in coefficient_bits[:-1]]
    kept = reply_primes(coefficient_bits, plain_bits)
    return ring_degree * sum(widths) + SEED_BYTES, 2 * ring_degree * sum(widths[:kept])


def noise_bits(ring_degree: int, plain_bits: int, products: int) -> int:
    """log2 of a bound on the noise of a sum of ``products`` plaintext products of rotated ciphertexts, by the model.

    Source: he.md section 3, measured budgets; the constant is this package's own measurement.
    """
    growth = 1.5 * math.log2(ring_degree / 8192) + 0.5 * math.log2(max(products, 1))
    return math.ceil(plain_bits + 20 + max(growth, 0.0))


def fresh_noise_bits(factor_bits: int, terms: int) -> int:
    """log2 of a bound on the noise of fresh ciphertexts times polynomials, added up.

    A coefficient adds up ``terms`` of them times a fresh noise and rounding errors under 1/2 of both parties' shares:
    at most 22 each, and under ``terms`` + 10 standard deviations of the sum except with probability 2^-70 (the noise
    is independent and subgaussian). BFV's multiples of t cancel, so nothing else grows with t or n.

    Args:
        factor_bits: the polynomials' coefficients are at most 2^factor_bits.
        terms: coefficients that are not zero, of all polynomials of a sum.
    """
    bound = min((_LARGEST + 1) * terms, _DEVIATIONS * _DEVIATION * math.sqrt(terms) + terms)
    return math.ceil(factor_bits + math.log2(bound))


def square_noise_bits(parameters: Parameters) -> int:
    """:func:`fresh_noise_bits` of a square's product: the server's share has n coefficients in (-t / 2, t / 2)."""
    return fresh_noise_bits(parameters.plain_bits - 1, parameters.ring_degree)


def noise_budget(parameters: Parameters, noise: int) -> float:
    """Predicted bits of noise budget left in a reply after flooding of a result with noise of at most 2^``noise``."""
    return sum(parameters.coefficient_bits[:-1]) - _spent(parameters.plain_bits, noise)


def fitting_plain_bits(coefficient_bits: tuple[int, ...], noise: int) -> int:
    """The most bits that t may have for a result with noise of at most 2^``noise``, whatever t is, to keep its budget.

    Of a coefficient encoding the noise does not depend on t (:mod:`encodings.coefficient_layer`).
    """
    return min(MAX_PLAIN_BITS, sum(coefficient_bits[:-1]) - noise - FLOODING_BITS - 1 - math.ceil(MIN_NOISE_BUDGET))


def largest_plain_bits(ring_degree: int, coefficient_bits: tuple[int, ...], products: int) -> int:
    """The most bits that t may have for a layer with that many products to a sum to keep its noise budget.

    Raises:
        RuleError: not even the smallest modulus for batching fits.
    """
    smallest = (2 * ring_degree).bit_length() + 1
    for bits in range(MAX_PLAIN_BITS, smallest, -1):
        spent = _spent(bits, noise_bits(ring_degree, bits, products))
        if sum(coefficient_bits[:-1]) - spent >= MIN_NOISE_BUDGET:
            return bits
    raise RuleError(
        f"every layer must leave {MIN_NOISE_BUDGET:.0f} bits of noise budget",
        got=f"none for coefficient primes of {coefficient_bits} bits",
        remedy="use more or larger coefficient primes",
    )


def check_noise(parameters: Parameters, noise: int, layer: str) -> None:
    """Raise unless a layer whose noise is at most 2^``noise`` decrypts with a margin, flooding included.

    Raises:
        RuleError: the predicted noise budget is under :data:`MIN_NOISE_BUDGET` bits.
    """
    left = noise_budget(parameters, noise)
    if left < MIN_NOISE_BUDGET:
        raise RuleError(
            f"every layer must leave {MIN_NOISE_BUDGET:.0f} bits of noise budget",
            got=f"{left:.1f} bits in layer {layer} with a {parameters.plain_bits}-bit plain modulus",
            remedy="use a smaller plain modulus or a larger ring degree",
        )


def choose(
    lengths: set[int],
    plain_bits: int,
    ring_degree: int = 8192,
    coefficient_bits: tuple[int, ...] = DEFAULT_COEFFICIENT_BITS,
) -> Parameters:
    """Parameters with the largest prime t of ``plain_bits`` bits that carries every transform length.

    Args:
        lengths: transform lengths that the program's layers need.
        plain_bits: bits of t.
        ring_degree: n.
        coefficient_bits: bits of the primes of q, special prime last.

    Raises:
        RuleError: no such prime, over 60 bits, or the result is not secure.
    """
    if plain_bits > MAX_PLAIN_BITS:
        raise RuleError(
            f"the plain modulus must have at most {MAX_PLAIN_BITS} bits",
            got=f"{plain_bits} bits",
            remedy="lower the bits of weights and activations, or the truncation's failure_bits",
        )
    check_security(ring_degree, coefficient_bits)
    bits, multiple = tuple(coefficient_bits), math.lcm(2 * ring_degree, *lengths)
    t = modular.largest_prime(plain_bits, multiple, coefficient_primes(ring_degree, bits))
    return Parameters(ring_degree, bits, t)


def _spent(plain_bits: int, noise: int) -> int:
    """Bits of q' that are not budget: t itself, the noise, the flooding, and a sign."""
    return plain_bits + noise + FLOODING_BITS + 1


def check_security(ring_degree: int, coefficient_bits: tuple[int, ...]) -> None:
    """Raise unless (n, q) is in the 128-bit table.

    Raises:
        RuleError: an unknown ring degree, too long a modulus, primes of strange sizes.
    """
    limit = MAX_LOG_Q.get(ring_degree)
    if limit is None:
        known = ", ".join(map(str, MAX_LOG_Q))
        raise RuleError("the ring degree must be in the 128-bit table", got=ring_degree, remedy=f"use {known}")
    if sum(coefficient_bits) > limit:
        raise RuleError(
            f"log2 q must be at most {limit} at ring degree {ring_degree} for {SECURITY_BITS}-bit security",
            got=f"{sum(coefficient_bits)} bits",
            remedy="use smaller coefficient primes or a larger ring degree",
        )
    data, special = coefficient_bits[:-1], coefficient_bits[-1:]
    if not data or max(coefficient_bits) > 60 or min(data) < _MIN_DATA_BITS or min(special) < _MIN_SPECIAL_BITS:
        raise RuleError(
            f"q must be two or more primes of {_MIN_DATA_BITS} to 60 bits, the special prime {_MIN_SPECIAL_BITS} to 60",
            got=coefficient_bits,
            remedy="e.g. 55,55,54,54",
        )


def _check_plain_modulus(t: int, ring_degree: int) -> None:
    if t.bit_length() > MAX_PLAIN_BITS or (t - 1) % (2 * ring_degree) or not modular.is_prime(t):
        raise RuleError(
            f"the plain modulus must be a prime of at most {MAX_PLAIN_BITS} bits that is 1 mod 2n",
            got=f"t = {t}, n = {ring_degree}",
            remedy="let params.choose find one",
        )
