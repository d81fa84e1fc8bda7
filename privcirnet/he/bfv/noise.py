"""Noise of a layer's result, and the part of the modulus that is left after flooding.

The model of rotated ciphertexts is the average-case one, with constants that were measured: after a rotation, one
product with a dense plaintext and a rotation the noise is at most t 2^20 at n = 8192. It grows with n^1.5, with the
square root of the number of products in a sum, and with every bit by which the special prime is too short
(:func:`special_prime_lack`). The tests check the model against SEAL's own measurement.

The bound for coefficient encodings, which rotate nothing, is proved (:func:`fresh_noise_bits`).

A reply adds flooding noise that is at least 2^40 times as large (:mod:`ring.sampling`). The noise budget is what is
left of q' / t then, where q' is q without the special prime; whatever is to spare goes into the flooding. Derivations:
docs/mathematics.md, "Noise" and "Circuit privacy".
"""

import math

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import MAX_PLAIN_BITS, Parameters
from privcirnet.he.ring.sampling import ERROR_BITS, FLOODING_BITS

MIN_NOISE_BUDGET = 2
"""Bits that every reply leaves. Flooding noise is bounded, and all other noise is 2^40 times smaller, so that the model
need not hold for a reply to decrypt; what is left is for the rounding of the modulus switch."""

ZERO_NOISE_BITS = 13
"""log2 of a bound on the noise of an encryption of zero, -e u + e1 s: a coefficient adds up 2n products of errors and
ternary numbers, and is under ten deviations of sqrt(10.5) sqrt(2n) (9.8 of them at n = 32768). Flooding has to hide u,
so no noise bound of a reply is smaller."""

_RANGE_BITS = 2
"""A sign, and the three parts of flooding noise, which together reach 1.5 times the width of one."""

_DEVIATION, _DEVIATIONS = math.sqrt(ERROR_BITS / 2), 10
"""Standard deviation of a fresh ciphertext's noise, and how many deviations bound a sum. Its largest absolute value is
:data:`ERROR_BITS`."""


def special_prime_lack(coefficient_bits: tuple[int, ...]) -> int:
    """Return the bits that the special prime lacks: those by which it is over one bit shorter than a data prime.

    A key switch multiplies digits as large as a data prime with the key's noise and divides by the special prime P. Up
    to a ratio of 2 the result stays under the noise of a rounding, as the model assumes; beyond, it grows with the
    ratio, and the product that follows makes it t times as large.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.

    >>> special_prime_lack((54, 54, 53, 53)), special_prime_lack((60, 60, 60, 38))
    (0, 21)
    """
    return max(0, max(coefficient_bits[:-1]) - coefficient_bits[-1] - 1)


def noise_bits(ring_degree: int, plain_bits: int, products: int, lack: int = 0) -> int:
    """Bound the noise of a sum of plaintext products of rotated ciphertexts, by the average-case model.

    Source: the growth with n and with the number of products is the usual average-case estimate; the constant 2^20 is
    this package's own measurement (docs/mathematics.md, "Noise").

    Args:
        plain_bits: bits of t.
        lack: bits that the special prime lacks, :func:`special_prime_lack`; 0 where nothing is rotated.

    Returns:
        log2 of the bound, rounded up.
    """
    growth = 1.5 * math.log2(ring_degree / 8192) + 0.5 * math.log2(max(products, 1))
    return math.ceil(plain_bits + 20 + max(growth, 0.0)) + lack


def fresh_noise_bits(factor_bits: int, terms: int) -> int:
    """Bound the noise of a sum of products of fresh ciphertexts and polynomials, and of what hides it.

    A coefficient of the result adds up ``terms`` products. Each is a coefficient of a polynomial times a fresh noise
    plus the rounding errors, under 1/2, of both parties' shares: at most 22 in all. The noise is independent and
    subgaussian, so the sum is also under ``terms`` + 10 of its standard deviations except with probability 2^-70.
    BFV's multiples of t cancel, so nothing else grows with t or n. The encryption of zero that a reply is hidden by has
    noise of :data:`ZERO_NOISE_BITS`.

    Args:
        factor_bits: log2 of a bound on the absolute value of the polynomials' coefficients.
        terms: coefficients that are not zero, of all polynomials of a sum.

    Returns:
        log2 of the bound, rounded up.
    """
    bound = min((ERROR_BITS + 1) * terms, _DEVIATIONS * _DEVIATION * math.sqrt(terms) + terms)
    return math.ceil(math.log2(2**factor_bits * bound + 2**ZERO_NOISE_BITS))


def square_noise_bits(parameters: Parameters) -> int:
    """Bound the noise of the product in a square: :func:`fresh_noise_bits` of the server's share.

    Args:
        parameters: n and t; the share has n coefficients in (-t/2, t/2).

    Returns:
        log2 of the bound, rounded up.
    """
    return fresh_noise_bits(parameters.plain_bits - 1, parameters.ring_degree)


def flood_bits(parameters: Parameters) -> int:
    """Return log2 of the width of each of the three parts of a reply's flooding noise: as wide as the modulus allows.

    It does not depend on the layer. :func:`check_noise` makes sure that it is wide enough for each.

    Args:
        parameters: n, q, t.
    """
    spent = parameters.plain_bits + _RANGE_BITS + MIN_NOISE_BUDGET
    return max(1, sum(parameters.coefficient_bits[:-1]) - spent)


def noise_budget(parameters: Parameters, noise: int) -> int:
    """Predict the noise budget that is left in a reply after the least flooding.

    Args:
        parameters: n, q, t.
        noise: log2 of a bound on the result's noise.

    Returns:
        bits; negative if the reply does not decrypt.
    """
    return sum(parameters.coefficient_bits[:-1]) - _spent(parameters.plain_bits, noise)


def fitting_plain_bits(coefficient_bits: tuple[int, ...], noise: int) -> int:
    """Return the most bits that t may have where the noise does not depend on t.

    A coefficient encoding is such a case (papers/coefficients).

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        noise: log2 of a bound on the result's noise.
    """
    spent = noise + FLOODING_BITS + _RANGE_BITS + MIN_NOISE_BUDGET
    return min(MAX_PLAIN_BITS, sum(coefficient_bits[:-1]) - spent)


def largest_plain_bits(ring_degree: int, coefficient_bits: tuple[int, ...], products: int) -> int:
    """Return the most bits that t may have for a layer of rotated ciphertexts to keep its noise budget.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        products: plaintext products in a sum of the layer.

    Raises:
        RuleError: not even the smallest modulus for batching fits.
    """
    smallest = (2 * ring_degree).bit_length() + 1
    for bits in range(MAX_PLAIN_BITS, smallest, -1):
        spent = _spent(bits, noise_bits(ring_degree, bits, products, special_prime_lack(coefficient_bits)))
        if sum(coefficient_bits[:-1]) - spent >= MIN_NOISE_BUDGET:
            return bits
    raise RuleError(
        f"every layer must leave {MIN_NOISE_BUDGET} bits of noise budget",
        got=f"none for coefficient primes of {coefficient_bits} bits",
        remedy="use more or larger coefficient primes",
    )


def check_noise(parameters: Parameters, noise: int, layer: str) -> None:
    """Raise unless a layer's reply decrypts with a margin, flooding included.

    Args:
        parameters: n, q, t.
        noise: log2 of a bound on the layer's noise.

    Raises:
        RuleError: the predicted noise budget is under :data:`MIN_NOISE_BUDGET` bits.
    """
    budget = noise_budget(parameters, noise)
    if budget < MIN_NOISE_BUDGET:
        raise RuleError(
            f"every layer must leave {MIN_NOISE_BUDGET} bits of noise budget",
            got=f"{budget} bits in layer {layer} with a {parameters.plain_bits}-bit plain modulus",
            remedy="use a smaller plain modulus or a larger ring degree",
        )


def _spent(plain_bits: int, noise: int) -> int:
    """Return the bits of q' that are not budget: t itself, the noise, the least flooding, its range."""
    return plain_bits + noise + FLOODING_BITS + _RANGE_BITS
