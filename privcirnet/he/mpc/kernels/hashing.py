"""Hashes of correlated rows, in the form in which they are used: no hash reaches the memory that is not asked for.

The hash of row i is pi(pi(x) + i) + pi(x), pi being AES under a public key. Each kernel hashes the sums of the rows and
each of some shifts: none for a receiver, none and Delta for a sender, whose rows are read once.
"""

import numpy as np

from privcirnet.he.mpc.kernels import aes
from privcirnet.he.mpc.kernels.planes import Modulus, residue, write_planes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline_late, jit


@inline_late
def _hash(hashes: Residues, rows: Residues, shift: Residues, first: int, cipher: aes.Aes) -> None:
    """Write the hashes of rows, (rows, 2).

    Args:
        hashes: two words each.
        shift: addend of each row.
        first: number of the first row.
    """
    words = rows.reshape(-1)
    for w in range(len(words)):
        hashes[w] = words[w] ^ (shift[1] if w & 1 else shift[0])
    aes.encrypt(cipher, hashes, rows.shape[0])
    _add_numbers(hashes, len(words), first)
    aes.add_images(cipher, hashes, rows.shape[0])
    _add_numbers(hashes, len(words), first)


@inline_late
def _add_numbers(blocks: Residues, words: int, first: int) -> None:
    for w in range(words):
        blocks[w] ^= np.uint64(0) if w & 1 else np.uint64(first + (w >> 1))


@jit
def hashes_into(out: Residues, rows: Residues, shifts: Residues, first: int, cipher: aes.Aes) -> None:
    """Write hashes, (shifts, rows, 2).

    Args:
        rows: (rows, 2).
        shifts: (shifts, 2).
        first: number of the first row.
    """
    size = aes.room(cipher)
    hashes = np.empty(2 * size, np.uint64)
    for start in range(0, rows.shape[0], size):
        some = rows[start : start + size]
        for key in range(shifts.shape[0]):
            _hash(hashes, some, shifts[key], first + start, cipher)
            out[key, start : start + size] = hashes[: 2 * some.shape[0]].reshape(-1, 2)


@jit
def planes_into(out: Residues, rows: Residues, shifts: Residues, first: int, cipher: aes.Aes) -> None:
    """Write the lowest bits of hashes as planes, (shifts, bits, rows / 64); arguments as of :func:`hashes_into`."""
    size = aes.room(cipher)
    hashes = np.empty(2 * size, np.uint64)
    for start in range(0, rows.shape[0], size):
        some = rows[start : start + size]
        for key in range(shifts.shape[0]):
            _hash(hashes, some, shifts[key], first + start, cipher)
            write_planes(out[key], start // 64, hashes[: 2 * some.shape[0] : 2])


@jit
def residues_into(
    out: Residues, rows: Residues, shifts: Residues, first: int, modulus: Modulus, cipher: aes.Aes
) -> None:
    """Write hashes modulo a number, (shifts, rows); arguments as of :func:`hashes_into`."""
    size = aes.room(cipher)
    hashes = np.empty(2 * size, np.uint64)
    for start in range(0, rows.shape[0], size):
        some = rows[start : start + size]
        for key in range(shifts.shape[0]):
            _hash(hashes, some, shifts[key], first + start, cipher)
            for i in range(some.shape[0]):
                out[key, start + i] = residue(hashes[2 * i], hashes[2 * i + 1], modulus)
