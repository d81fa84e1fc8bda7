"""AES: streams under secret keys; under public ones a permutation that hashes and doubles, and a linear check."""

import hashlib
import threading
from collections.abc import Callable, Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.ring.modular import Residues

ROOM_WORDS = 2
"""Words that the library wants behind what it writes."""


class FixedKeyAes(threading.local):
    """AES under a public key, which a session's name and a purpose give, on blocks of two words.

    Each thread has a cipher of its own, because the library's can't be shared.
    """

    def __init__(self, session: bytes, purpose: str) -> None:
        key = hashlib.sha256(b"privcirnet permutation" + purpose.encode() + session).digest()[:16]
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def __call__(self, rows: Residues, room: Residues | None = None) -> Residues:
        """Return the images of rows, (rows, 2).

        Args:
            room: words that they are written to, two more than they take.
        """
        images = np.empty(2 * len(rows) + ROOM_WORDS, dtype=np.uint64) if room is None else room
        self._encryptor.update_into(np.ascontiguousarray(rows).data.cast("B"), images.data.cast("B"))
        return images[: 2 * len(rows)].reshape(-1, 2)


class TweakableHash:
    """pi(pi(x) + i) + pi(x) for row i: keys stay apart though their inputs differ by one secret, and i never returns.

    Tweakable circular correlation robust for an ideal permutation pi (Guo, Katz, Wang, Yu: "Efficient and secure
    multiparty computation from fixed-key block ciphers", S&P 2020, section 7.4).
    """

    def __init__(self, session: bytes) -> None:
        self._permutation = FixedKeyAes(session, "hash")

    def __call__(self, rows: Residues, first: int) -> Residues:
        """Return the hashes of rows, (rows, 2); ``first``: the number of the first, which no other row had."""
        inner, tweaked = self._permutation(rows), np.empty_like(rows)
        blocks.tweaked(tweaked, inner, first)
        blocks.add(inner, self._permutation(tweaked))
        return inner


class GgmPrg:
    """A generator of two blocks from one, x + pi(x) for two permutations: the levels of a tree."""

    def __init__(self, session: bytes, purpose: str = "") -> None:
        self._sides = [FixedKeyAes(session, f"{purpose} {side}") for side in ("left", "right")]

    def __call__(self, nodes: Residues) -> Residues:
        """Return the children of each tree's nodes in order, (trees, 2 nodes, 2) of (trees, nodes, 2)."""
        flat = np.ascontiguousarray(nodes).reshape(-1, 2)
        children = np.empty((2 * len(flat), 2), dtype=np.uint64)
        blocks.children(children, flat, *(side(flat) for side in self._sides))
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
