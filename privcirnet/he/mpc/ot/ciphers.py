"""AES: streams under secret keys; under public ones a permutation that hashes and doubles, and a linear check."""

import hashlib
from collections.abc import Callable, Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.ring.modular import Residues

_ROOM = 16
"""Bytes that the library wants behind what it writes."""
_AT_ONCE = 1 << 13
"""Rows that stay in the cache while they are hashed."""


class Permutation:
    """AES under a public key, which a session's name and a purpose give, on blocks of two words."""

    def __init__(self, session: bytes, purpose: str) -> None:
        key = hashlib.sha256(b"privcirnet permutation" + purpose.encode() + session).digest()[:16]
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def __call__(self, rows: Residues) -> Residues:
        """Return the images of rows, (rows, 2)."""
        found = np.empty(2 * len(rows) + _ROOM // 8, dtype=np.uint64)
        self._encryptor.update_into(np.ascontiguousarray(rows).data.cast("B"), found.data.cast("B"))
        return found[: 2 * len(rows)].reshape(-1, 2)


class Hash:
    """pi(pi(x) + i) + pi(x) for row i: keys stay apart though their inputs differ by one secret, and i never returns.

    Tweakable circular correlation robust for an ideal permutation pi (Guo, Katz, Wang, Yu: "Efficient and secure
    multiparty computation from fixed-key block ciphers", S&P 2020, section 7.4).
    """

    def __init__(self, session: bytes) -> None:
        self._permutation = Permutation(session, "hash")

    def __call__(self, rows: Residues, first: int, found: Residues | None = None) -> Residues:
        """Return the hashes of rows, (rows, 2).

        Args:
            first: the number of the first row, which no other row of the session had.
            found: where the hashes go, which may be the rows.
        """
        found = np.empty_like(rows) if found is None else found
        for start in range(0, len(rows), _AT_ONCE):
            inner = self._permutation(rows[start : start + _AT_ONCE])
            tweaked = found[start : start + _AT_ONCE]
            blocks.tweaked(tweaked, inner, first + start)
            blocks.add(inner, self._permutation(tweaked))
            tweaked[:] = inner
        return found


class Doubling:
    """A generator of two blocks from one, x + pi(x) for two permutations: the levels of a tree."""

    def __init__(self, session: bytes, purpose: str = "") -> None:
        self._sides = [Permutation(session, f"{purpose} {side}") for side in ("left", "right")]

    def __call__(self, nodes: Residues) -> Residues:
        """Return the children of each tree's nodes in order, (trees, 2 nodes, 2) of (trees, nodes, 2)."""
        flat = np.ascontiguousarray(nodes).reshape(-1, 2)
        found = np.empty((2 * len(flat), 2), dtype=np.uint64)
        blocks.children(found, flat, *(side(flat) for side in self._sides))
        return found.reshape(len(nodes), -1, 2)


def stream(key: Residues) -> Callable[[Residues], None]:
    """Return a function that fills words with the next ones of a stream, but for the last two, which are room.

    Args:
        key: two words.
    """
    encryptor = Cipher(algorithms.AES(key.tobytes()), modes.CTR(bytes(16))).encryptor()

    def fill(words: Residues) -> None:
        encryptor.update_into(bytes(8 * len(words) - _ROOM), words.data.cast("B"))

    return fill


def linear_check(key: bytes, columns: Iterable[Residues]) -> Residues:
    """Return GHASH of columns of equal length plus one constant, (columns, 2): linear in the bits of a column.

    Two columns that differ have different ones but for 2^-128 of the keys for each block of 16 bytes.

    Args:
        key: 16 bytes, public, chosen after the columns.
        columns: (words,) each.
    """
    tag, nonce = AESGCM(key), bytes(12)
    found = [tag.encrypt(nonce, b"", column.data.cast("B")) for column in columns]
    return np.frombuffer(b"".join(found), dtype=np.uint64).reshape(-1, 2)


def check_point(key: bytes) -> Residues:
    """Return the point of :func:`linear_check`: block i of n, from 0, is multiplied by its power n + 1 - i."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(16))
    return np.frombuffer(block, dtype=np.uint64)
