"""Products of two values mod t, group by group, once their encrypted part was done offline.

y[h B + j, i] = sum over e of left[h k + e, i] right[h k + e, j], as :class:`program.operations.Product` says. With
offline shares in place of the server's, each party's part is a product of its own, as in :mod:`mpc.local.products`.

Both factors are split into signed digits, three of 20 bits each for t of 60 bits. All products of two digits are
one product of float64 matrices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product as pairs

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.mpc.local import parallel
from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.mpc.local.packing import WORD, Octets, Packed, pack_made
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
    """Return the powers of :func:`he.mpc.kernels.convolution.together`."""
    t = digits.t
    factors = [digits.power(power) for power in range(2 * digits.count - 1)]
    constant = -(sum(factors) << EXACT_BITS) % t
    return np.array([*((factor, (factor << 64) // t) for factor in factors), (constant, 0)], dtype=np.uint64)


def answer_square(z: Residues, d: Residues, terms: Residues, t: int) -> Residues:
    """Return the client's answer_square, 2 z d + terms.

    Args:
        z: the client's share, of any shape, as all others.
        d: message of the server.
        t: prime under 2^61.
    """
    return passes.elementwise(passes.compiled().square_answer, (z, d, terms), passes.modulus(t))


def finish_square(z: Residues, e: Residues, terms: Residues, t: int) -> Residues:
    """Return the server's share of the square, z^2 + e + terms.

    Args:
        z: the server's share, of any shape, as all others.
        terms: terms of the server, v_s - a^2.
        t: prime under 2^61.
    """
    return passes.elementwise(passes.compiled().square_finish, (z, e, terms), passes.modulus(t))


def answer_square_packed(z: Residues, message: Octets, terms: Residues, t: int) -> Octets:
    """Return :func:`answer_square`, packed, to packed values of the server: one pass, a few values at a time.

    Args:
        z: the client's share, (values,).
        terms: terms of the client, (values,).
        t: prime under 2^61.

    Raises:
        RuleError: the message is not that many residues.
    """
    packed, moduli, kernel = Packed(message, z.size, t), passes.modulus(t), passes.compiled().square_answer

    def make(first: int, end: int) -> Residues:
        d, e = np.empty((2, end - first), dtype=np.uint64)  # in one array there are no vector instructions
        kernel(e, z[first:end], packed.read(first, d), terms[first:end], moduli)
        return e

    return pack_made(make, z.size, t)


def finish_square_packed(z: Residues, message: Octets, terms: Residues, t: int) -> Residues:
    """Return :func:`finish_square` of a packed answer_square, in one pass.

    Args:
        z: the server's share, (values,).
        terms: terms of the server, (values,).
        t: prime under 2^61.

    Raises:
        RuleError: the message is not that many residues.
    """
    packed, moduli, kernel = Packed(message, z.size, t), passes.modulus(t), passes.compiled().square_finish
    square = np.empty(z.size, dtype=np.uint64)

    def some(first: int, end: int) -> None:
        e = packed.read(first, np.empty(end - first, dtype=np.uint64))
        kernel(square[first:end], z[first:end], e, terms[first:end], moduli)

    passes.in_parts(some, z.size, WORD)
    return square


def ask_square_packed(z: Residues, offline_shares: Residues, t: int) -> Octets:
    """Return the server's message, d = z - a, packed, in one pass.

    Args:
        z: the server's share, (values,).
        offline_shares: a, (values,).
        t: prime under 2^61.
    """
    kernel = passes.compiled().subtract

    def make(first: int, end: int) -> Residues:
        d = np.empty(end - first, dtype=np.uint64)
        kernel(d, z[first:end], offline_shares[first:end], np.uint64(t))
        return d

    return pack_made(make, z.size, t)
