"""Products of two values mod t, group by group, once their encrypted part was done offline.

y[h B + j, i] = sum over e of left[h k + e, i] right[h k + e, j], as :class:`program.operations.Product` says. With
offline shares in place of the server's, each party's part is a product of its own, as in :mod:`mpc.local.squares`.

Both factors are split into signed digits, three of 20 bits each for t of 60 bits. All products of two digits are
one product of float64 matrices.
"""

from functools import lru_cache
from itertools import product as pairs

import numpy as np
import numpy.typing as npt

from privcirnet.he.mpc.local import elementwise
from privcirnet.he.mpc.local.float_digits import EXACT_BITS, Split, split_both
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads

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
    return product(left, right, groups, t, elementwise.add(e, terms, t))


def _both(first: Residues, second: Residues, groups: int) -> Residues:
    """Return the channels of two values side by side in each group, (g 2 k, A, 1)."""
    parts = [share.reshape(groups, -1, share.shape[1]) for share in (first, second)]
    return np.concatenate(parts, axis=1).reshape(-1, first.shape[1], 1)


def _multiply(rows: Residues, columns: Residues, t: int, plus: Residues) -> Residues:
    """Return (g, B, k) times (g, k, A), plus (g, B, A)."""
    from privcirnet.he.mpc.local.kernels.convolution import Digits
    from privcirnet.he.mpc.local.kernels.products import limbs_of, together

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
    """Return the powers of :func:`mpc.local.kernels.products.together`."""
    t = digits.t
    factors = [digits.power(power) for power in range(2 * digits.count - 1)]
    constant = -(sum(factors) << EXACT_BITS) % t
    return np.array([*((factor, (factor << 64) // t) for factor in factors), (constant, 0)], dtype=np.uint64)
