"""A stream of random words for one reply or request: AES-256 in counter mode, its key the operating system's.

Every stream has a key of its own, so that nothing that a ciphertext is hidden by depends on state that others share:
not on a fork, a copied virtual machine, or a generator that an earlier one was drawn from. It is twelve times as fast
as the operating system's generator. A reply takes under 2^16 blocks of 16 bytes, a request fewer, which AES tells from
random words with probability 2^-97 at most. A sent seed stands for the stream whose key it is, and no
other use is made of it (:mod:`rlwe.kernels.uniform`).
"""

import os
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.ring.modular import Residues

KEY_BYTES = 32
_BLOCK = 16
_ZEROS = bytes(1 << 16)
"""Zeros to encrypt, a piece at a time: as many fresh zeros would take longer than the cipher."""

Words = Callable[[int], Residues]
"""A function of a count that returns a stream's next words."""


def stream(key: bytes | None = None) -> Words:
    """Return a function of a count that gives the next 64-bit words, shape (count,), of a stream.

    The words can be overwritten (:func:`ring.wipe.wipe`).

    Args:
        key: 32 bytes; None: a fresh one.
    """
    cipher = algorithms.AES(os.urandom(KEY_BYTES) if key is None else key)
    encryptor = Cipher(cipher, modes.CTR(bytes(_BLOCK))).encryptor()

    def words(count: int) -> Residues:
        buffer = np.empty(count + _BLOCK // 8, dtype=np.uint64)  # the library wants room for one more block
        room = buffer.data.cast("B")
        for start in range(0, 8 * count, len(_ZEROS)):
            encryptor.update_into(_ZEROS[: 8 * count - start], room[start:])
        return buffer[:count]

    return words
