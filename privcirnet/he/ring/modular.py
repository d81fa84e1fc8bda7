"""Exact arithmetic modulo a prime t < 2^61 on numpy ``uint64`` arrays, and roots of unity.

Maths: Barrett reduction of the 128-bit product, and Shoup's multiplication where one factor is a constant whose
quotient floor(w 2^64 / t) is known beforehand. numpy has no 128-bit integers, so the upper half of a product is put
together from four 32-bit products.

A transform of length N needs a root w of order N, which exists if and only if N divides t - 1. The cyclic transform of
layers, y[k] = sum_j x[j] w^(j k), has any length (:func:`cyclic_root`, :mod:`ring.cyclic`). The negacyclic one of
length n takes a polynomial modulo X^n + 1 to its values at the odd powers of psi, the smallest primitive 2n-th root
(:func:`minimal_root`), because SEAL chooses that one. Its butterflies leave values in bit-reversed order, or take them
in it (:func:`bit_reversed`).

Cost: about 30 vector operations for :func:`multiply`, 12 for :func:`multiply_constant`.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError

Residues = npt.NDArray[np.uint64]
"""Numbers in [0, t)."""
Integers = npt.NDArray[np.int64]
"""Signed integers."""
SourceIndices = npt.NDArray[np.int32]
"""Positions in a flat source, counted from 1; 0 stands for a zero."""

MAX_BITS = 61
SHARE_BYTES = 8
"""Bytes of a residue in a message that does not pack it: a little-endian word."""
_PART, _EXACT_TERMS = 21, 1 << 9
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
# The first twelve primes as bases decide primality of every number under 2^64 (Sorenson and Webster, 2015).
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def add(a: Residues, b: Residues, t: int) -> Residues:
    """Return a + b mod t, elementwise.

    Args:
        a: residues, any shape.
        b: residues, a shape that broadcasts with that of ``a``.
        t: modulus under 2^61.

    >>> add(np.uint64([5]), np.uint64([6]), 7).tolist()
    [4]
    """
    return _reduce_once(a + b, t)


def subtract(a: Residues, b: Residues, t: int) -> Residues:
    """Return a - b mod t, elementwise.

    Args:
        a: residues, any shape.
        b: residues, a shape that broadcasts with that of ``a``.
        t: modulus under 2^61.

    >>> subtract(np.uint64([5]), np.uint64([6]), 7).tolist()
    [6]
    """
    return _reduce_once(a + (np.uint64(t) - b), t)


def multiply(a: Residues, b: Residues, t: int) -> Residues:
    """Return a b mod t, elementwise, where both factors vary (Barrett reduction).

    Args:
        a: residues, any shape.
        b: residues, a shape that broadcasts with that of ``a``.
        t: modulus under 2^61.

    >>> t = (1 << 60) - 93
    >>> int(multiply(np.uint64([t - 1]), np.uint64([t - 2]), t)[0])
    2
    """
    bits, quotient = _barrett_constants(t)
    low = a * b
    top = (_upper_half(a, b) << np.uint64(65 - bits)) | (low >> np.uint64(bits - 1))
    estimate = _upper_half(top, quotient) << np.uint64(63 - bits) | (top * quotient) >> np.uint64(bits + 1)
    return _reduce_once(_reduce_once(low - estimate * np.uint64(t), t), t)


def matmul(a: Residues, b: Residues, t: int) -> Residues:
    """Return the matrix product mod t, exactly, by products of floats: residues, shape (..., m, n).

    Numbers are split in three parts of 21 bits: a sum of three times 2^9 products of two parts is under 2^53.

    Args:
        a: residues, shape (..., m, k).
        b: residues, shape (..., k, n).
        t: modulus under 2^61.

    >>> t = (1 << 60) - 93
    >>> matmul(np.uint64([[t - 1, 2]]), np.uint64([[3], [t - 5]]), t).tolist() == [[t - 13]]
    True
    """
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*stack, a.shape[-2], b.shape[-1]), dtype=np.uint64)
    for first in range(0, a.shape[-1], _EXACT_TERMS):
        part = slice(first, first + _EXACT_TERMS)
        total = add(total, _matmul(a[..., part], b[..., part, :], t), t)
    return total


def _matmul(a: Residues, b: Residues, t: int) -> Residues:
    """Return :func:`matmul` for few enough terms: the parts' products by Horner's rule, the highest power first."""
    a_parts, b_parts = _split(a), _split(b)
    shift, total = np.array([(1 << _PART) % t], dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    quotient = constant_quotients(shift, t)
    for power in reversed(range(5)):
        terms = [a_parts[i] @ b_parts[power - i] for i in range(3) if 0 <= power - i < 3]
        sums = np.sum(terms, axis=0).astype(np.uint64) % np.uint64(t)
        total = add(multiply_constant(total, shift, quotient, t), sums, t)
    return total


def _split(values: Residues) -> list[npt.NDArray[np.float64]]:
    mask = np.uint64((1 << _PART) - 1)
    return [(values >> np.uint64(_PART * i) & mask).astype(np.float64) for i in range(3)]


def constant_quotients(constants: Residues, t: int) -> Residues:
    """Return floor(w 2^64 / t) for each constant w: the precomputation of Shoup's multiplication.

    Args:
        constants: residues, any shape.
    """
    quotients = [(int(w) << 64) // t for w in constants.ravel()]
    return np.array(quotients, dtype=np.uint64).reshape(constants.shape)


def multiply_constant(a: Residues, constants: Residues, quotients: Residues, t: int) -> Residues:
    """Return a w mod t for constants w (Shoup), elementwise.

    The quotient is taken without the carry of its lower half, so it can be 3 too small and the rest is under 4 t.

    Args:
        a: words of up to 64 bits, any shape.
        constants: residues w, a shape that broadcasts with that of ``a``.
        t: modulus under 2^61.
    """
    a_high, a_low = a >> _HALF, a & _LOW
    q_high, q_low = quotients >> _HALF, quotients & _LOW
    estimate = a_high * q_high + ((a_high * q_low) >> _HALF) + ((a_low * q_high) >> _HALF)
    rest = a * constants - estimate * np.uint64(t)
    return _reduce_once(_reduce_once(rest, 2 * t), t)


def residues(values: npt.ArrayLike, t: int) -> Residues:
    """Return signed integers as residues in [0, t).

    Args:
        values: integers under 2^63 in absolute value, any shape.

    >>> residues([-1, 3], 7).tolist()
    [6, 3]
    """
    return np.mod(np.asarray(values, dtype=np.int64), np.int64(t)).astype(np.uint64)


def centered(values: Residues, t: int) -> Integers:
    """Return residues as the signed integers of least absolute value, in (-t/2, t/2) for odd t.

    Args:
        values: residues, any shape.

    >>> centered(np.uint64([6, 3]), 7).tolist()
    [-1, 3]
    """
    signed = values.astype(np.int64)
    return np.where(signed > t // 2, signed - t, signed)


def is_prime(number: int) -> bool:
    """Return whether a number is prime, without doubt (Miller-Rabin with bases that decide it).

    Args:
        number: integer under 2^64.

    >>> [n for n in range(30) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    """
    if number < 2 or any(number % p == 0 for p in _WITNESSES):
        return number in _WITNESSES
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, base, odd, twos) for base in _WITNESSES)


@lru_cache(maxsize=64)
def largest_prime(bits: int, multiple: int, skip: frozenset[int] = frozenset()) -> int:
    """Return the largest prime of a size that is 1 modulo a number.

    Args:
        bits: length of the prime, 2 to 61.
        multiple: the prime minus 1 is a multiple of it.
        skip: primes that are not taken.
    """
    if not 2 <= bits <= MAX_BITS:
        raise RuleError(f"a plain modulus must have 2 to {MAX_BITS} bits", got=bits, remedy="ask for bits in between")
    candidate = ((1 << bits) - 2) // multiple * multiple + 1
    while candidate > 1 << (bits - 1):
        if is_prime(candidate) and candidate not in skip:
            return candidate
        candidate -= multiple
    raise RuleError(
        "the plain modulus must be a prime with roots of unity for every transform length",
        got=f"no {bits}-bit prime that is 1 mod {multiple}",
        remedy="ask for more bits or for layers with fewer different map sizes",
    )


@lru_cache(maxsize=256)
def root_of_unity(order: int, t: int) -> int:
    """Return a primitive root of unity modulo a prime t."""
    if (t - 1) % order:
        raise RuleError(
            "a transform length must divide t - 1", got=f"length {order}, t = {t}", remedy="choose t for this length"
        )
    for base in range(2, t):
        root = pow(base, (t - 1) // order, t)
        if all(pow(root, order // p, t) != 1 for p in _prime_factors(order)):
            return root
    raise AssertionError("a prime field has primitive roots of every order that divides t - 1")


def _reduce_once(x: Residues, t: int) -> Residues:
    """Reduce [0, 2 t) to [0, t): where x < t the difference wraps to a huge number, so the minimum keeps x."""
    return np.minimum(x, x - np.uint64(t))


def _upper_half(a: Residues, b: Residues | np.uint64) -> Residues:
    """Return bits 64 to 127 of a b."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    middle = a_high * b_low + ((a_low * b_low) >> _HALF)
    carry = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (carry >> _HALF)


@lru_cache(maxsize=64)
def _barrett_constants(t: int) -> tuple[int, np.uint64]:
    bits = t.bit_length()
    return bits, np.uint64((1 << (2 * bits)) // t)


def _passes(number: int, base: int, odd: int, twos: int) -> bool:
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def _prime_factors(number: int) -> list[int]:
    factors: list[int] = []
    candidate = 2
    while number > 1:
        if number % candidate == 0:
            factors.append(candidate)
            while number % candidate == 0:
                number //= candidate
        candidate += 1
    return factors


@lru_cache(maxsize=16)
def minimal_root(order: int, t: int) -> int:
    """Return the smallest primitive root of unity of an order, which is SEAL's choice.

    Args:
        order: a power of two, at least 2.
        t: prime modulus.

    Raises:
        RuleError: the order does not divide t - 1.
    """
    root = root_of_unity(order, t)
    square = root * root % t
    smallest, power = root, root
    for _ in range(order // 2):
        smallest = min(smallest, power)
        power = power * square % t
    return smallest


def dft_matrix(root: int, length: int, scale: int, t: int) -> Residues:
    """Return the matrix of y[k] = scale sum_j x[j] root^(j k) mod t, shape (N, N).

    Args:
        root: root of unity of order N.
        length: N.
    """
    powers = [pow(root, k, t) * scale % t for k in range(length)]
    return np.array(powers, dtype=np.uint64)[np.outer(np.arange(length), np.arange(length)) % length]


def cyclic_root(length: int, t: int, inverse: bool) -> tuple[int, int]:
    """Return (root, scale) of :func:`ring.cyclic.cyclic`, as :func:`powers` takes them.

    Args:
        length: N.
        t: prime modulus with t = 1 mod N.
        inverse: (1 / root, 1 / N), for the inverse transform.

    Raises:
        RuleError: N does not divide t - 1.
    """
    root = root_of_unity(length, t)
    return (pow(root, -1, t), pow(length, -1, t)) if inverse else (root, 1)


@lru_cache(maxsize=8)
def bit_reversed(n: int) -> Integers:
    """Return brv(0), ..., brv(n - 1), shape (n,): each number with its log2 n bits in reverse order.

    Args:
        n: a power of two.

    >>> bit_reversed(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    order = np.zeros(1, dtype=np.int64)
    while order.size < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order
