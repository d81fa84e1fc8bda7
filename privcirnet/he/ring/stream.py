"""A stream of random words for one reply or request: AES-256 in counter mode, its key the operating system's.

Every stream has a key of its own, so that nothing that a ciphertext is hidden by depends on state that others share:
not on a fork, a copied virtual machine, or a generator that an earlier one was drawn from. It is twelve times as fast
as the operating system's generator. A reply takes under 2^16 blocks of 16 bytes, a request fewer, which AES tells from
random words with probability 2^-97 at most.
"""

import os
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.ring.modular import Residues

KEY_BYTES = 32
_BLOCK = 16

Words = Callable[[int], Residues]
"""The next words of a stream, so many of them."""


def stream() -> Words:
    """Return a function of a count that gives the next 64-bit words, shape (count,), of a stream with a fresh key.

    The words can be overwritten (:func:`ring.wipe.wipe`).
    """
    encryptor = Cipher(algorithms.AES(os.urandom(KEY_BYTES)), modes.CTR(bytes(_BLOCK))).encryptor()

    def words(count: int) -> Residues:
        found = np.empty(count + _BLOCK // 8, dtype=np.uint64)  # the library wants room for one more block
        encryptor.update_into(bytes(8 * count), found.data.cast("B"))
        return found[:count]

    return words
