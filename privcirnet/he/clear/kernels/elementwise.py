"""Passes over shares, each of which reads and writes every value once. All shapes are (values,), all values under t."""

import numpy as np

from privcirnet.compiled.jit import inline, jit
from privcirnet.he.engines.kernels.arithmetic import Word, reduce_4p, sub_if_ge
from privcirnet.he.engines.kernels.inner_products import Moduli, joined
from privcirnet.he.ring.modular import Residues

_ZERO = np.uint64(0)


@inline
def product(x: Word, y: Word, moduli: Moduli) -> Word:
    """Return x y mod t, reduced, by products of halves.

    Args:
        x: under t.
        y: under t.
        moduli: of t alone.
    """
    powers, half, t = moduli.powers[0], moduli.half[0], moduli.primes[0]
    mask = (np.uint64(1) << half) - np.uint64(1)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    return joined(x0 * y0, x0 * y1 + x1 * y0, x1 * y1, powers[0], powers[1], powers[2], half, t)


@jit
def square_answer(e: Residues, z: Residues, d: Residues, v: Residues, w: Residues, moduli: Moduli) -> None:
    """Write e = 2 z d + 2 v + z^2 - w = z (2 d + z) + 2 v - w.

    Args:
        e: written.
        z: the client's share.
        d: from the server.
        v: the client's share of the prepared product.
        w: the client's share of the square.
        moduli: of t alone.
    """
    t = moduli.primes[0]
    for i in range(e.size):
        factor = sub_if_ge(sub_if_ge(d[i] + d[i], t) + z[i], t)
        e[i] = reduce_4p(product(z[i], factor, moduli) + (v[i] + v[i]) + (t - w[i]), t)


@jit
def square_finish(square: Residues, z: Residues, e: Residues, v: Residues, moduli: Moduli) -> None:
    """Write z^2 + e + 2 v.

    Args:
        square: written.
        z: the server's share.
        e: from the client.
        v: the server's share of the prepared product.
        moduli: of t alone.
    """
    for i in range(square.size):
        square[i] = reduce_4p(product(z[i], z[i], moduli) + e[i] + (v[i] + v[i]), moduli.primes[0])


@jit
def multiply(result: Residues, x: Residues, y: Residues, moduli: Moduli) -> None:
    """Write x y.

    Args:
        result: written.
        x: first factor.
        y: second factor.
        moduli: of t alone.
    """
    for i in range(result.size):
        result[i] = product(x[i], y[i], moduli)
