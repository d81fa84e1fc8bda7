"""A square once its encrypted part was done offline: each party's arithmetic is one pass over its shares.

With z = z_c + z_s and a uniform offline share a of the server, (z_c + a)^2 was shared offline as v_c + v_s. The
server sends d = z_s - a; the client answers e = 2 z_c d + v_c - w with its uniform share w of the square; and the
server's share is z_s^2 + e + v_s - a^2 = z^2 - w. Each party's addends are known offline: its ``terms``.
"""

import numpy as np

from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.mpc.local.packing import WORD, Octets, Packed, pack_made
from privcirnet.he.ring.modular import Residues


def answer(z: Residues, d: Residues, terms: Residues, t: int) -> Residues:
    """Return the client's answer, 2 z d + terms.

    Args:
        z: the client's share, of any shape, as all others.
        d: message of the server.
        t: prime under 2^61.
    """
    return passes.elementwise(passes.compiled().square_answer, (z, d, terms), passes.modulus(t))


def finish(z: Residues, e: Residues, terms: Residues, t: int) -> Residues:
    """Return the server's share of the square, z^2 + e + terms.

    Args:
        z: the server's share, of any shape, as all others.
        terms: terms of the server, v_s - a^2.
        t: prime under 2^61.
    """
    return passes.elementwise(passes.compiled().square_finish, (z, e, terms), passes.modulus(t))


def answer_packed(z: Residues, message: Octets, terms: Residues, t: int) -> Octets:
    """Return :func:`answer`, packed, to packed values of the server: one pass, a few values at a time.

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


def finish_packed(z: Residues, message: Octets, terms: Residues, t: int) -> Residues:
    """Return :func:`finish` of a packed answer, in one pass.

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


def ask_packed(z: Residues, offline_shares: Residues, t: int) -> Octets:
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
