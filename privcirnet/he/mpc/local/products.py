"""Products of residues in float64 that never round, and those of two values once their encrypted part was done offline.

Residues are split into a few signed digits whose sums of products are exact (:class:`Split`).

Of two values mod t, group by group: y[h B + j, i] = sum over e of left[h k + e, i] right[h k + e, j], as
:class:`program.arithmetic.MatMul` says. With offline shares in place of the server's, each party's part is a product of
its own, as in :mod:`mpc.local.squares`. Both factors have three digits of 20 bits each for t of 60 bits. All products
of two digits are one product of float64 matrices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product as pairs

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.mpc.local import parallel
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system import threads

EXACT_BITS = 53
"""Integers of up to 2^53 in absolute value are exact in float64, in whatever order they are added."""


@dataclass(frozen=True)
class Split:
    """The split of a residue x, between -t/2 and t/2, into digits: x is the sum of x_l 2^(width l).

    All digits but the last are at most 2^(width - 1) in absolute value, and the last is by at most one more.

    Attributes:
        width: bits of all digits but the last.
    """

    t: int
    width: int
    count: int

    def power(self, digit: int) -> int:
        """Return the weight of a digit, mod t."""
        return pow(2, self.width * digit, self.t)

    def cut(self, rest: Integers, digit: int) -> tuple[Integers, Integers]:
        """Return a digit and the rest for those above it.

        Args:
            rest: rest of residues between -t/2 and t/2 after the digits below it.
        """
        half = 1 << (self.width - 1)
        low = rest if digit == self.count - 1 else ((rest + half) & (2 * half - 1)) - half
        return low, (rest - low) >> self.width


def split(t: int, weight_sum: int) -> Split:
    """Return the split into the fewest digits that is exact.

    >>> split((1 << 60) - 93, 127 * 512 * 9)
    Split(t=1152921504606846883, width=30, count=2)
    """
    fewest = _fewest(t, lambda digit, _: digit * weight_sum)
    if fewest is None:
        raise RuleError(
            "absolute weights of an output must add up to less than 2^51",
            got=f"{weight_sum.bit_length()} bits",
            remedy="quantize to fewer bits",
        )
    return fewest


def split_both(t: int, terms: int) -> Split:
    """Return the split into the fewest digits with which products of residues and residues are exact.

    Args:
        terms: products that make one sum. Those of all pairs of digits with the same power are added up too.

    >>> split_both((1 << 60) - 93, 64)
    Split(t=1152921504606846883, width=20, count=3)
    """
    fewest = _fewest(t, lambda digit, count: count * terms * digit**2)
    if fewest is None:
        raise ValueError("sums of so many products are exact with no number of digits")
    return fewest


def _fewest(t: int, largest: Callable[[int, int], int]) -> Split | None:
    """Return the fewest digits whose sums are exact: ``largest`` of (the largest digit, how many there are)."""
    bits = t.bit_length()
    for count in range(1, bits):
        width = -(-bits // count)
        if largest((1 << (width - 1)) + 1, count) <= 1 << EXACT_BITS:
            return Split(t, width, count)
    return None


_ROWS_AT_ONCE = 64


def product(left: Residues, right: Residues, groups: int, t: int, plus: Residues | None = None) -> Residues:
    """Return the product of two values, mod t: residues, shape (g B, A, 1).

    Args:
        left: residues, shape (g k, A, 1).
        right: residues, shape (g k, B, 1).
        t: prime under 2^61.
        plus: residues of the result's shape, added.
    """
    a, b = (np.ascontiguousarray(share).reshape(groups, -1, share.shape[1]) for share in (left, right))
    shape = groups * b.shape[2], a.shape[2], 1
    rows = np.ascontiguousarray(b.swapaxes(1, 2))
    constant = np.zeros(shape, dtype=np.uint64) if plus is None else np.ascontiguousarray(plus)
    return _multiply(rows, a, t, constant.reshape(groups, b.shape[2], a.shape[2])).reshape(shape)


def answer(  # noqa: PLR0913, PLR0917
    left: Residues, right: Residues, d_left: Residues, d_right: Residues, groups: int, t: int, terms: Residues
) -> Residues:
    """Return the client's answer, left d_right + d_left right + terms: residues, shape (g B, A, 1).

    Args:
        left: the client's share, shape (g k, A, 1).
        right: the client's share, shape (g k, B, 1).
        d_left: the server's share less its offline share, of the shape of ``left``.
        d_right: the server's share less its offline share, of the shape of ``right``.
        t: prime under 2^61.
        terms: terms of the client, of the result's shape.
    """
    return product(_both(left, d_left, groups), _both(d_right, right, groups), groups, t, terms)


def finish(left: Residues, right: Residues, e: Residues, groups: int, t: int, terms: Residues) -> Residues:
    """Return the server's share of the product, left right + e + terms: residues, shape (g B, A, 1).

    Args:
        left: the server's share, shape (g k, A, 1).
        right: the server's share, shape (g k, B, 1).
        e: the client's answer, of the result's shape.
        t: prime under 2^61.
        terms: terms of the server, of the result's shape.
    """
    return product(left, right, groups, t, parallel.add(e, terms, t))


def _both(first: Residues, second: Residues, groups: int) -> Residues:
    """Return the channels of two values side by side in each group, (g 2 k, A, 1)."""
    parts = [share.reshape(groups, -1, share.shape[1]) for share in (first, second)]
    return np.concatenate(parts, axis=1).reshape(-1, first.shape[1], 1)


def _multiply(rows: Residues, columns: Residues, t: int, plus: Residues) -> Residues:
    """Return (g, B, k) times (g, k, A), plus (g, B, A)."""
    from privcirnet.he.mpc.kernels.convolution import Digits, limbs_of, together

    groups, count, terms = rows.shape
    split = split_both(t, terms)
    digits, powers, number, width = (
        Digits(np.uint64(t), split.width, split.count),
        _powers(split),
        split.count,
        plus.shape[2],
    )
    right = np.empty((groups, terms, number, width))
    threads.each(lambda group: limbs_of(right[group], columns[group], digits), range(groups))
    result = np.empty(plus.shape, dtype=np.uint64)

    def some(task: tuple[int, range]) -> None:
        group, part = task
        where = group, slice(part.start, part.stop)
        planes = np.empty((len(part), number, terms))
        limbs_of(planes, rows[where], digits)
        sums: npt.NDArray[np.float64] = planes.reshape(-1, terms) @ right[group].reshape(terms, -1)
        together(result[where], sums.reshape(len(part), number, number, width), plus[where], powers, digits.t)

    with threads.one_thread():
        threads.each(some, pairs(range(groups), threads.ranges(count, _ROWS_AT_ONCE)))
    return result


@lru_cache(maxsize=64)
def _powers(digits: Split) -> Residues:
    """Return the powers of :func:`mpc.kernels.convolution.together`."""
    t = digits.t
    factors = [digits.power(power) for power in range(2 * digits.count - 1)]
    constant = -(sum(factors) << EXACT_BITS) % t
    return np.array([*((factor, (factor << 64) // t) for factor in factors), (constant, 0)], dtype=np.uint64)
