"""Polynomials of an encrypted value, in Chebyshev's basis, with few products and levels.

Maths (after Paterson and Stockmeyer, 1973): C_(a + b) = C_a C_b - C_|a - b| for C_a = 2 T_a, without a factor that
would double the product's error. A polynomial of degree under 2 g is q T_g + r with q and r of degree under g, by
division in this basis; below a baby length it is a sum of constants times T_1, T_2, ...

Cost: for degree d = 2^k - 1 about 2 sqrt(d) + k products of ciphertexts and k + 1 levels.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.polynomial import chebyshev

from privcirnet.he.ckks.embedding import Reals
from privcirnet.he.ckks.evaluator import CkksEvaluator

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
