"""BFV batching: a plaintext polynomial m of degree under n holds n slots, and products act slot by slot.

Maths: with psi the smallest primitive 2n-th root of unity modulo t, X^n + 1 has the n odd powers of psi as its zeros.
So m modulo X^n + 1 is given by its values there. Slot i of row 0 is m(psi^(3^i)), slot i of row 1 is m(psi^(-3^i)), for
i under n / 2: 3 and -1 generate all odd exponents mod 2n. The automorphism X -> X^(3^k) turns both rows left by k
columns. This is the order of SEAL's BatchEncoder.

The values at psi^(2 k + 1) are a cyclic transform of length n, with root psi^2, of the coefficients times the powers of
psi; it is computed by decimation in time.

Cost: n log2(n) / 2 multiplications each way. This is the oracle of :mod:`bfv.kernels.plaintexts`.
"""

from functools import lru_cache

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues, bit_reversed, minimal_root


def slots_to_coefficients(slots: Residues, t: int) -> Residues:
    """Return the plaintext polynomial whose batched slots are the given values.

    Args:
        slots: residues, shape (..., n), row 0 then row 1, n a power of two.
        t: prime modulus with t = 1 mod 2n.

    Returns:
        coefficients of 1, X, ..., X^(n-1), shape (..., n).

    Raises:
        RuleError: 2n does not divide t - 1.
    """
    n = slots.shape[-1]
    values = np.empty_like(slots)
    values[..., (slot_exponents(n) - 1) // 2] = slots
    omega_inverse = pow(minimal_root(2 * n, t), -2, t)
    coefficients = _fourier(values, omega_inverse, t)
    scale, quotients = _twiddles(pow(minimal_root(2 * n, t), -1, t), n, t, pow(n, -1, t))
    return modular.multiply_constant(coefficients, scale, quotients, t)


def coefficients_to_slots(coefficients: Residues, t: int) -> Residues:
    """Return the batched slots of a plaintext polynomial: the inverse of :func:`slots_to_coefficients`.

    Args:
        coefficients: residues, shape (..., n), of 1, X, ..., X^(n-1), n a power of two.
        t: prime modulus with t = 1 mod 2n.

    Returns:
        slots, shape (..., n), row 0 then row 1.

    Raises:
        RuleError: 2n does not divide t - 1.
    """
    n = coefficients.shape[-1]
    root = minimal_root(2 * n, t)
    twist, quotients = _twiddles(root, n, t)
    values = _fourier(modular.multiply_constant(coefficients, twist, quotients, t), root * root % t, t)
    return values[..., (slot_exponents(n) - 1) // 2]


@lru_cache(maxsize=8)
def slot_exponents(n: int) -> modular.Integers:
    """Return the exponent e of psi^e for each slot mod 2n, shape (n,): 3^i in row 0, -3^i in row 1.

    Args:
        n: ring degree, a power of two.

    >>> slot_exponents(8).tolist()
    [1, 3, 9, 11, 15, 13, 7, 5]
    """
    exponents = [1]
    for _ in range(n // 2 - 1):
        exponents.append(exponents[-1] * 3 % (2 * n))
    row = np.array(exponents, dtype=np.int64)
    return np.concatenate([row, 2 * n - row])


@lru_cache(maxsize=1024)
def slot_sources(element: int, n: int) -> modular.Integers:
    """Return where each slot comes from after an automorphism, shape (n,).

    Args:
        element: Galois element of the automorphism.
        n: ring degree, a power of two.

    >>> slot_sources(3, 8).tolist(), slot_sources(15, 8).tolist()
    ([1, 2, 3, 0, 5, 6, 7, 4], [4, 5, 6, 7, 0, 1, 2, 3])
    """
    exponents, places = slot_exponents(n), np.empty(2 * n, dtype=np.int64)
    places[exponents] = np.arange(n)
    return places[exponents * element % (2 * n)]


def _fourier(x: Residues, omega: int, t: int) -> Residues:
    """Return y[k] = sum_j x[j] omega^(j k) along the last axis, by decimation in time; omega has order n."""
    n, half = x.shape[-1], 1
    values = x[..., bit_reversed(n)]
    while half < n:
        pairs = values.reshape(*x.shape[:-1], n // (2 * half), 2, half)
        twiddles, quotients = _twiddles(pow(omega, n // (2 * half), t), half, t)
        even, odd = pairs[..., 0, :], modular.multiply_constant(pairs[..., 1, :], twiddles, quotients, t)
        both = [modular.add(even, odd, t), modular.subtract(even, odd, t)]
        values = np.stack(both, axis=-2).reshape(x.shape)
        half *= 2
    return values


@lru_cache(maxsize=64)
def _twiddles(base: int, count: int, t: int, first: int = 1) -> tuple[Residues, Residues]:
    """Return ``first`` times the powers of ``base``, and their quotients for :func:`modular.multiply_constant`."""
    powers = [first]
    for _ in range(count - 1):
        powers.append(powers[-1] * base % t)
    factors = np.array(powers, dtype=np.uint64)
    return factors, modular.constant_quotients(factors, t)
