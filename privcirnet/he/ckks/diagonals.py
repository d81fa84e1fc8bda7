"""Linear maps of ciphertexts by their diagonals, row by row: rotated inputs times plaintexts.

A plaintext whose slots have a period of n / 32 or less is a polynomial of X^16. Its transform has the same word in all
16 places of a group (:mod:`ring.kernels.ntt`), which in the kernel's order are 64 words apart: a tile of 1024 words
is 64 words, 16 times. So a *short* plaintext is kept as n / 16 words, a sixteenth of the memory that others take.
"""

import numpy as np

from privcirnet.he.ring.kernels import operands
from privcirnet.he.ring.kernels.arithmetic import Word, sub_if_ge
from privcirnet.he.ring.kernels.inner_products import AT_ONCE, Moduli, Terms, add_products, rows_of
from privcirnet.he.ring.kernels.ntt import GROUP, TILE, WIDTH, Tables
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import rows
from privcirnet.he.system.jit import jit

_HALF = np.uint64(32)


@jit
def rotated_input(target: Residues, switched: Residues, first: Residues, order: Integers, half: Word, p: Word) -> None:
    """Compute a row of a rotated extended ciphertext, split for products.

    Args:
        target: written, shape (2, n).
        switched: the row of what its second polynomial was switched to, shape (2, n).
        first: row of its first polynomial, times P, shape (n,).
        order: permutation of the automorphism, shape (n,).
        half: bits of the lower half of a split word.
        p: prime.
    """
    mask = (np.uint64(1) << half) - np.uint64(1)
    for i in range(order.size):
        x, y = sub_if_ge(switched[0, order[i]] + first[order[i]], p), switched[1, order[i]]
        target[0, i] = (x >> half) << _HALF | (x & mask)
        target[1, i] = (y >> half) << _HALF | (y & mask)


@jit
def weights(target: Residues, integers: Integers, tables: Tables, half: Word, limb: int) -> None:
    """Compute a row of plaintexts, split for products.

    Args:
        target: written, shape (plaintexts, n), or (plaintexts, n / 16) for short ones.
        integers: coefficients, shape (plaintexts, n).
        tables: NTT tables of the primes.
        half: bits of the lower half of a split word.
        limb: index of the prime.
    """
    row, size = np.empty((1, integers.shape[1]), dtype=np.uint64), integers.shape[1]
    for number in range(integers.shape[0]):
        rows.transformed(row, integers[number], tables, limb)
        operands.split_words(row[0], half)
        if target.shape[1] == size:
            target[number] = row[0]
        else:
            for tile in range(size // TILE):
                target[number, WIDTH * tile : WIDTH * (tile + 1)] = row[0, TILE * tile : TILE * tile + WIDTH]


@jit
def multiply_accumulate(
    sums: Residues, inputs: Residues, weights: Residues, terms: Terms, moduli: Moduli, place: tuple[int, int]
) -> None:
    """Compute a row of every sum of inputs times weights over its pairs (input, weight).

    Args:
        sums: [:, :, row] is written, shape (sums, 2, R, n).
        inputs: split, shape (inputs, 2, n).
        weights: split, shape (weights, n), or (weights, n / 16) for short ones.
        moduli: constants of all primes.
        place: (row, index of the prime that it is under).
    """
    row, limb = place
    n, step = inputs.shape[2], min(moduli.terms[limb], AT_ONCE)
    size = TILE if weights.shape[1] == n else WIDTH
    none, factors = np.zeros(size, dtype=np.uint64), weights.reshape(weights.shape[0], 1, weights.shape[1])
    for tile in range(n // TILE):
        start = tile * size
        for number in range(terms.first.size - 1):
            last = terms.first[number + 1]
            for i in range(2):
                sums[number, i, row, tile * TILE : (tile + 1) * TILE] = 0
            for first in range(terms.first[number], last, step):
                pairs = terms.pairs[first : min(first + step, last)]
                w = rows_of(factors, pairs, 1, 0, start, none)
                for i in range(2):
                    for word in range(tile * TILE, (tile + 1) * TILE, size):
                        x = rows_of(inputs, pairs, 0, i, word, none)
                        add_products(sums[number, i, row, word : word + size], x, w, len(pairs), moduli, limb)


def shortest(n: int) -> int:
    """Return the period in slots up to which plaintexts are short."""
    return n // (2 * GROUP)
