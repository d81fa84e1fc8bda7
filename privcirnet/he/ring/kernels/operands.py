"""Operands of products as :mod:`ring.kernels.inner_products` reads them: words in halves, inputs in chunks.

Halves: a word x = x1 2^s + x0 is kept as x1 2^32 + x0, because vector units multiply the lower halves of words.

Chunks: each input's polynomials are cut into pieces of :data:`CHUNK` words, (chunks, inputs, 2, CHUNK), so that the
same words of all inputs are neighbours. The chunks of prime 0 come first.
"""

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word
from privcirnet.he.ring.kernels.inner_products import Moduli
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit

CHUNK = 2048
"""Words of a chunk: 32 inputs' chunks fit a second-level cache of 1 MB; shorter ones cost a tenth more."""

_HALF = np.uint64(32)


@jit
def split(polynomials: Residues, moduli: Moduli) -> None:
    """Cut every word in halves in place: x1 2^s + x0 to x1 2^32 + x0.

    Args:
        polynomials: reduced, shape (count, L, n).
        moduli: constants of the L primes.
    """
    for index in range(polynomials.shape[0]):
        for limb in range(polynomials.shape[1]):
            split_words(polynomials[index, limb], moduli.half[limb])


@jit
def split_words(words: Residues, half: Word) -> None:
    """Cut the words of one polynomial in halves in place; see :func:`split`.

    Args:
        words: reduced, shape (n,).
        half: s of the prime.
    """
    mask = (np.uint64(1) << half) - np.uint64(1)
    for j in range(words.size):
        words[j] = (words[j] >> half) << _HALF | (words[j] & mask)


@jit
def place(inputs: Residues, index: int, polynomials: Residues, halves: Residues) -> None:
    """Write a ciphertext as one of the inputs of products.

    Args:
        inputs: written, shape (chunks, inputs, 2, CHUNK).
        polynomials: reduced, shape (2, L, n).
        halves: s of each prime.
    """
    size = inputs.shape[3]
    parts = polynomials.shape[2] // size
    for i in range(2):
        for limb in range(polynomials.shape[1]):
            for part in range(parts):
                target = inputs[limb * parts + part, index, i]
                target[:] = polynomials[i, limb, part * size : (part + 1) * size]
                split_words(target, halves[limb])


@jit
def place_limb(inputs: Residues, index: int, i: int, words: Residues, limb: int) -> None:
    """Write one polynomial under one prime as :func:`place` does.

    Args:
        inputs: written, shape (chunks, inputs, 2, CHUNK).
        words: split, shape (n,).
    """
    size = inputs.shape[3]
    parts = words.size // size
    for part in range(parts):
        inputs[limb * parts + part, index, i] = words[part * size : (part + 1) * size]
