"""Passes over shares, each of which reads and writes every value once. All shapes are (values,), all values under t."""

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.kernels.inner_products import Moduli, joined
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline, jit

_ZERO = np.uint64(0)


@inline
def product(x: Word, y: Word, moduli: Moduli) -> Word:
    """Return x y mod t, reduced, by products of halves; ``x``: under t; ``y``: under t."""
    powers, half, t = moduli.powers[0], moduli.half[0], moduli.primes[0]
    mask = (np.uint64(1) << half) - np.uint64(1)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    return joined(x0 * y0, x0 * y1 + x1 * y0, x1 * y1, powers[0], powers[1], powers[2], half, t)


@jit
def square_answer(e: Residues, z: Residues, d: Residues, terms: Residues, moduli: Moduli) -> None:
    """Write e = 2 z d + terms.

    Args:
        e: written.
        z: the client's share.
        d: message of the server.
    """
    t = moduli.primes[0]
    for i in range(e.size):
        e[i] = sub_if_ge(product(z[i], sub_if_ge(d[i] + d[i], t), moduli) + terms[i], t)


@jit
def square_finish(square: Residues, z: Residues, e: Residues, terms: Residues, moduli: Moduli) -> None:
    """Write z^2 + e + terms.

    Args:
        square: written.
        z: the server's share.
        e: message of the client.
    """
    t = moduli.primes[0]
    for i in range(square.size):
        square[i] = reduce_4p(product(z[i], z[i], moduli) + e[i] + terms[i], t)


@jit
def add(total: Residues, x: Residues, y: Residues, t: Word) -> None:
    """Write x + y; ``total``: written."""
    for i in range(total.size):
        total[i] = sub_if_ge(x[i] + y[i], t)


@jit
def subtract(difference: Residues, x: Residues, y: Residues, t: Word) -> None:
    """Write x - y; ``difference``: written."""
    for i in range(difference.size):
        difference[i] = sub_if_ge(x[i] + (t - y[i]), t)


@jit
def scale(result: Residues, share: Residues, factor: Residues, t: Word) -> None:
    """Write a constant times a share; ``result``: written."""
    constant, quotient = factor[0], factor[1]
    for i in range(result.size):
        result[i] = reduce_4p(mul_shoup_lazy(share[i], constant, quotient, t), t)


@jit
def truncate_client(quotient: Residues, share: Residues, bits: Word, t: Word) -> None:
    """Write -floor((t - share) / 2^bits); ``quotient``: written; ``bits``: f."""
    for i in range(quotient.size):
        quotient[i] = sub_if_ge(t - ((t - share[i]) >> bits), t)


@jit
def truncate_server(quotient: Residues, share: Residues, bits: Word) -> None:
    """Write floor(share / 2^bits); ``quotient``: written; ``bits``: f."""
    for i in range(quotient.size):
        quotient[i] = share[i] >> bits
