"""Number-theoretic transforms modulo t, in clear, of any length that divides t - 1.

Two transforms live here:

* :func:`cyclic`: y[k] = sum_j x[j] w^(j k), w of order N. The lengths of this field are short and odd (a circulant
  block, a padded image side), so it is a matrix product with a constant matrix, N multiplications a value.
* :func:`slots_to_coefficients` and its inverse: BFV batching. A plaintext polynomial m of degree under n holds n slots:
  slot i of row 0 is m(psi^(3^i)) and slot i of row 1 is m(psi^(-3^i)), psi the smallest primitive 2n-th root of
  unity modulo t. n log2(n) / 2 multiplications.

Source: he.md section 2.1; batching as in SEAL's BatchEncoder.
"""

from functools import lru_cache

import numpy as np

from privcirnet.he import modular
from privcirnet.he.modular import Residues

_TERMS_AT_ONCE = 8
"""Terms that add up before a reduction: 8 t < 2^64 for every t of :data:`modular.MAX_BITS` bits."""

_VALUES_AT_ONCE = 1 << 15
"""Numbers that one step works on: few steps for small transforms, a warm cache for large ones."""


def cyclic(x: Residues, axis: int, t: int, *, inverse: bool = False) -> Residues:
    """Cyclic transform of one axis.

    Args:
        x: residues, any shape; the axis has length N.
        axis: the axis to transform.
        t: prime modulus with t = 1 mod N.
        inverse: the inverse transform, 1/N included.

    Returns:
        residues of the same shape.

    Raises:
        RuleError: N does not divide t - 1.

    >>> cyclic(np.uint64([1, 0, 0]), 0, 7).tolist()
    [1, 1, 1]
    """
    length = x.shape[axis]
    if length == 1:
        return x
    matrix, quotients = _matrix(length, t, inverse)
    source = np.moveaxis(x, axis, 0)
    result = np.zeros_like(source)
    at_once = max(1, min(_TERMS_AT_ONCE, _VALUES_AT_ONCE // x.size))
    for start in range(0, length, at_once):
        part = source[start : start + at_once]
        shape = (length, len(part)) + (1,) * (x.ndim - 1)
        column, quotient = (m[:, start : start + at_once].reshape(shape) for m in (matrix, quotients))
        terms = modular.multiply_constant(part[None], column, quotient, t)
        result = modular.add(result, terms.sum(axis=1) % np.uint64(t) if len(part) > 1 else terms[:, 0], t)
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))


def slots_to_coefficients(slots: Residues, t: int) -> Residues:
    """The plaintext polynomial whose batched slots are the given values.

    Args:
        slots: residues, shape (..., n), row 0 then row 1, n a power of two.
        t: prime modulus with t = 1 mod 2n.

    Returns:
        coefficients of 1, X, ..., X^(n-1), shape (..., n).
    """
    n = slots.shape[-1]
    values = np.empty_like(slots)
    values[..., (_slot_exponents(n) - 1) // 2] = slots
    omega_inverse = pow(minimal_root(2 * n, t), -2, t)
    coefficients = _fourier(values, omega_inverse, t)
    scale = _powers(pow(minimal_root(2 * n, t), -1, t), n, t, pow(n, -1, t))
    return modular.multiply_constant(coefficients, scale, modular.constant_quotients(scale, t), t)


def coefficients_to_slots(coefficients: Residues, t: int) -> Residues:
    """Inverse of :func:`slots_to_coefficients`: the batched slots of a plaintext polynomial.

    Args:
        coefficients: residues, shape (..., n), of 1, X, ..., X^(n-1), n a power of two.
        t: prime modulus with t = 1 mod 2n.

    Returns:
        slots, shape (..., n), row 0 then row 1.
    """
    n = coefficients.shape[-1]
    root = minimal_root(2 * n, t)
    twist, quotients = _twiddles(root, n, t)
    values = _fourier(modular.multiply_constant(coefficients, twist, quotients, t), root * root % t, t)
    return values[..., (_slot_exponents(n) - 1) // 2]


@lru_cache(maxsize=16)
def minimal_root(order: int, t: int) -> int:
    """The smallest primitive root of unity of an order that is a power of two (SEAL's choice)."""
    root = modular.root_of_unity(order, t)
    square = root * root % t
    smallest, power = root, root
    for _ in range(order // 2):
        smallest = min(smallest, power)
        power = power * square % t
    return smallest


@lru_cache(maxsize=128)
def _matrix(length: int, t: int, inverse: bool) -> tuple[Residues, Residues]:
    root = modular.root_of_unity(length, t)
    scale = pow(length, -1, t) if inverse else 1
    powers = [pow(root, -k if inverse else k, t) * scale % t for k in range(length)]
    matrix = np.array([[powers[j * k % length] for j in range(length)] for k in range(length)], dtype=np.uint64)
    return matrix, modular.constant_quotients(matrix, t)


@lru_cache(maxsize=8)
def _slot_exponents(n: int) -> modular.Integers:
    """Exponent e of psi^e for each slot: 3^i in row 0, -3^i in row 1."""
    exponents = [1]
    for _ in range(n // 2 - 1):
        exponents.append(exponents[-1] * 3 % (2 * n))
    row = np.array(exponents, dtype=np.int64)
    return np.concatenate([row, 2 * n - row])


def _fourier(x: Residues, omega: int, t: int) -> Residues:
    """y[k] = sum_j x[j] omega^(j k) along the last axis, by decimation in time; omega has order n."""
    n, half = x.shape[-1], 1
    values = x[..., _bit_reversed(n)]
    while half < n:
        pairs = values.reshape(*x.shape[:-1], n // (2 * half), 2, half)
        twiddles, quotients = _twiddles(pow(omega, n // (2 * half), t), half, t)
        even, odd = pairs[..., 0, :], modular.multiply_constant(pairs[..., 1, :], twiddles, quotients, t)
        both = [modular.add(even, odd, t), modular.subtract(even, odd, t)]
        values = np.stack(both, axis=-2).reshape(x.shape)
        half *= 2
    return values


@lru_cache(maxsize=8)
def _bit_reversed(n: int) -> modular.Integers:
    """0, ..., n - 1 with their bits in reverse order."""
    order = np.zeros(1, dtype=np.int64)
    while order.size < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


@lru_cache(maxsize=64)
def _twiddles(omega: int, count: int, t: int) -> tuple[Residues, Residues]:
    powers = _powers(omega, count, t, 1)
    return powers, modular.constant_quotients(powers, t)


def _powers(base: int, count: int, t: int, first: int) -> Residues:
    powers = [first]
    for _ in range(count - 1):
        powers.append(powers[-1] * base % t)
    return np.array(powers, dtype=np.uint64)
