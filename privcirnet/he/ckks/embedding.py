"""The canonical embedding: real coefficients to complex slots and back, by one FFT of half the length.

Maths: slot j of f(X) = sum_k f_k X^k is f(zeta^(5^j)), zeta = exp(i pi / n), for j < n / 2; all other values at odd
powers are conjugates. zeta^(5^j) to the power n / 2 is i, because 5^j is 1 modulo 4. So with z_k = f_k + i f_(k + n/2)

    slot j = sum over k < n / 2 of z_k zeta^k exp(2 pi i m_j k / (n / 2)),    m_j = (5^j - 1) / 4,

an ordinary transform of z_k zeta^k whose entries are put in the order m_j (NeuJeans, section 2.2: the matrix U).
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privcirnet.he.ring.modular import Integers

Reals = npt.NDArray[np.float64]
Slots = npt.NDArray[np.complex128]


def to_slots(coefficients: npt.ArrayLike) -> Slots:
    """Return the values of real polynomials: slots, shape (..., n / 2).

    Args:
        coefficients: shape (..., n), n a power of two, at least 2.
    """
    f = np.asarray(coefficients, dtype=np.float64)
    twist, order = _constants(f.shape[-1])
    half = f.shape[-1] // 2
    return np.fft.ifft((f[..., :half] + 1j * f[..., half:]) * twist, norm="forward")[..., order]


def to_coefficients(slots: npt.ArrayLike) -> Reals:
    """Return the real polynomials with given values: coefficients, shape (..., n).

    Args:
        slots: shape (..., n / 2).
    """
    values = np.asarray(slots, dtype=np.complex128)
    twist, order = _constants(2 * values.shape[-1])
    ordered = np.empty_like(values)
    ordered[..., order] = values
    z = np.fft.fft(ordered, norm="forward") * twist.conj()
    return np.concatenate([z.real, z.imag], axis=-1)


@lru_cache(maxsize=16)
def _constants(n: int) -> tuple[Any, Integers]:
    """Return zeta^k for k < n / 2, and m_j."""
    half, power, order = n // 2, 1, np.empty(n // 2, dtype=np.int64)
    for j in range(half):
        order[j] = (power - 1) // 4
        power = power * 5 % (2 * n)
    return np.exp(1j * np.pi * np.arange(half) / n), order % half
