"""AES: streams under secret keys; under public ones a permutation that hashes and doubles, and a linear check."""

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privcirnet.he.mpc.kernels import blocks, hashing
from privcirnet.he.mpc.kernels.aes import Aes, cipher
from privcirnet.he.mpc.kernels.planes import Modulus
from privcirnet.he.ring.modular import Residues

ROOM_WORDS = 2
"""Words that the library wants behind what it writes."""


def permutation(session: bytes, purpose: str) -> Aes:
    """Return AES under a public key, which a session's name and a purpose give."""
    return cipher(hashlib.sha256(b"privcirnet permutation" + purpose.encode() + session).digest()[:16])


class TweakableHash:
    """pi(pi(x) + i) + pi(x) for row i: keys stay apart though their inputs differ by one secret, and i never returns.

    Tweakable circular correlation robust for an ideal permutation pi (Guo, Katz, Wang, Yu: "Efficient and secure
    multiparty computation from fixed-key block ciphers", S&P 2020, section 7.4).

    All methods hash the sums of rows, (rows, 2), and each of some shifts, (shifts, 2); ``first`` is the number of the
    first row, which no other row had.
    """

    def __init__(self, session: bytes) -> None:
        self._permutation = permutation(session, "hash")

    def __call__(self, rows: Residues, first: int, shifts: Residues) -> Residues:
        """Return the hashes, (shifts, rows, 2)."""
        hashes = np.empty((len(shifts), len(rows), 2), dtype=np.uint64)
        hashing.hashes_into(hashes, rows, shifts, first, self._permutation)
        return hashes

    def planes(self, rows: Residues, first: int, shifts: Residues, bits: int) -> Residues:
        """Return the lowest bits of the hashes as planes, (shifts, bits, rows / 64)."""
        planes = np.empty((len(shifts), bits, len(rows) // 64), dtype=np.uint64)
        hashing.planes_into(planes, rows, shifts, first, self._permutation)
        return planes

    def residues(self, rows: Residues, first: int, shifts: Residues, m: int) -> Residues:
        """Return the hashes mod m, (shifts, rows): within m 2^-128 of uniform; ``m``: under 2^62."""
        residues = np.empty((len(shifts), len(rows)), dtype=np.uint64)
        hashing.residues_into(residues, rows, shifts, first, Modulus.of(m), self._permutation)
        return residues


class GgmPrg:
    """A generator of two blocks from one, x + pi(x) for two permutations: the levels of a tree."""

    def __init__(self, session: bytes, purpose: str = "") -> None:
        self._sides = [permutation(session, f"{purpose} {side}") for side in ("left", "right")]

    def __call__(self, nodes: Residues) -> Residues:
        """Return the children of each tree's nodes in order, (trees, 2 nodes, 2) of (trees, nodes, 2)."""
        flat = np.ascontiguousarray(nodes).reshape(-1, 2)
        children = np.empty((2 * len(flat), 2), dtype=np.uint64)
        blocks.children(children, flat, *self._sides)
        return children.reshape(len(nodes), -1, 2)


def stream(key: Residues, block: int = 0) -> Callable[[Residues], None]:
    """Return a function that fills words with the next ones of a stream, but for the last two, which are room.

    Args:
        key: two words.
        block: number of its first block of two words.
    """
    encryptor = Cipher(algorithms.AES(key.tobytes()), modes.CTR(block.to_bytes(16))).encryptor()

    def fill(words: Residues) -> None:
        encryptor.update_into(bytes(8 * (len(words) - ROOM_WORDS)), words.data.cast("B"))

    return fill


def linear_check(key: bytes, columns: Iterable[Residues]) -> Residues:
    """Return GHASH of columns of equal length plus one constant, (columns, 2): linear in the bits of a column.

    Two columns that differ have different ones but for 2^-128 of the keys for each block of 16 bytes.

    Args:
        key: 16 bytes, public, chosen after the columns.
        columns: (words,) each.
    """
    tag, nonce = AESGCM(key), bytes(12)
    tags = [tag.encrypt(nonce, b"", column.data.cast("B")) for column in columns]
    return np.frombuffer(b"".join(tags), dtype=np.uint64).reshape(-1, 2)


def check_point(key: bytes) -> Residues:
    """Return the point of :func:`linear_check`: block i of n, from 0, is multiplied by its power n + 1 - i."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(16))
    return np.frombuffer(block, dtype=np.uint64)
