"""Linear maps of ciphertexts with double hoisting: :mod:`ckks.linear_map` plans them.

Memory: extended sums for every giant step, (L' + k) rows of 2 n words each, and rows of the baby steps, one prime at a
time. Plaintexts whose slots repeat are kept transformed, n / 16 words for each row: those of all factors of the
transform but the widest. Others are kept as signed coefficients, 8 n bytes for each diagonal, and transformed row by
row when they are needed.

A plaintext whose slots have a period of n / 32 or less is a polynomial of X^16. Its transform has the same word in all
16 places of a group (:mod:`ring.kernels.ntt`), which in the kernel's order are 64 words apart: a tile of 1024 words
is 64 words, 16 times. So such a *short* plaintext is kept as n / 16 words, a sixteenth of the memory that others take.
"""

from dataclasses import dataclass
from functools import reduce
from weakref import WeakKeyDictionary

import numpy as np

from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.server import CkksServer, Keys, check_keys, check_level
from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.kernels.arithmetic import Word, sub_if_ge
from privcirnet.he.ring.kernels.inner_products import AT_ONCE, Moduli, Terms, add_products, rows_of
from privcirnet.he.ring.kernels.ntt import GROUP, TILE, WIDTH, Tables
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import rns
from privcirnet.he.rlwe.kernels.rns import multiply_constant
from privcirnet.he.rlwe.key_switching import Ciphertext
from privcirnet.he.system.jit import jit
from privcirnet.he.system.threads import each

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
def weights_into(target: Residues, integers: Integers, tables: Tables, half: Word, limb: int) -> None:
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
        rns.transformed(row, integers[number], tables, limb)
        inner_products.split_words(row[0], half)
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


@dataclass(frozen=True, eq=False)
class EncodedMap:
    """A linear map's plaintexts for one level.

    Attributes:
        integers: coefficients, shape (products, n); of short ones only where they can differ from zero.
        short: transformed and split, shape (L' + k, products, n / 16), of short ones; else empty.
        terms: (baby, product) of each sum over a giant step.
    """

    babies: list[int]
    giants: list[int]
    integers: Integers
    short: Residues
    terms: Terms

    def weights(self, context: Context, row: int, limb: int) -> Residues:
        """Return a row of all plaintexts, split for products."""
        if len(self.short):
            return self.short[row]
        weights = np.empty(self.integers.shape, dtype=np.uint64)
        weights_into(weights, self.integers, context.ring.tables, context.ring.moduli.half[limb], limb)
        return weights


_encoded: WeakKeyDictionary[LinearMap, dict[tuple[Context, int], EncodedMap]] = WeakKeyDictionary()


def encode(context: Context, source: LinearMap, level: int) -> EncodedMap:
    """Return a map's plaintexts, which are kept as long as the map is.

    Raises:
        RuleError: see :meth:`Context.integers`.
    """
    encodings = _encoded.setdefault(source, {})
    if (context, level) not in encodings:
        encodings[context, level] = _made(context, source, level)
    return encodings[context, level]


def _made(context: Context, source: LinearMap, level: int) -> EncodedMap:
    scale, babies, n = context.parameters.factors[level], source.babies, context.parameters.ring_degree
    numbered = [(g, b) for g, steps in source.groups.items() for b in steps]
    integers = np.stack([context.integers(source.factor(g, b), scale, source.period) for g, b in numbered])
    pairs = np.array([(babies.index(b), number) for number, (_, b) in enumerate(numbered)])
    first = np.cumsum([0, *(len(steps) for steps in source.groups.values())])
    rows = level + 1 + context.chain.special if source.period <= shortest(n) else 0
    short = np.empty((rows, len(integers), n // GROUP), dtype=np.uint64)

    def row(number: int) -> None:
        limb = context.chain.limb(number, rows)
        weights_into(short[number], integers, context.ring.tables, context.ring.moduli.half[limb], limb)

    each(row, range(rows))
    return EncodedMap(babies, list(source.groups), integers[:0] if rows else integers, short, Terms(pairs, first))


def apply(server: CkksServer, ciphertext: Ciphertext, source: LinearMap, keys: Keys) -> Ciphertext:
    """Return a linear map of a ciphertext, a level lower.

    Args:
        ciphertext: ciphertext of level 1 or more.

    Raises:
        RuleError: no level is left, or a rotation has no key.
    """
    context, encoded = server.context, encode(server.context, source, check_level(ciphertext.level))
    check_keys(context, context.elements(source.steps), ciphertext.level, keys)
    server.counts["rotate"] += source.rotations
    server.counts["pmult"] += source.products
    chain, sums = context.chain, _sums(context, ciphertext.residues, encoded, keys)

    def turned(giant: int, residues: Residues) -> Ciphertext:
        rotated, element = Ciphertext(chain, residues, ciphertext.primes), context.element(giant)
        return rotated.turned(element, keys[element]) if giant else rotated

    return server.ciphertext(chain.lowered(reduce(Ciphertext.plus, map(turned, encoded.giants, sums)).made, 1))


def _sums(context: Context, values: Residues, encoded: EncodedMap, keys: Keys) -> Residues:
    """Return the sums over baby steps, extended, (giants, 2, L' + k, n)."""
    babies, digits = encoded.babies, context.chain.digits(values[1])
    rows, n = digits.shape[1:]
    sums = np.empty((len(encoded.giants), 2, rows, n), dtype=np.uint64)
    chain, tables, moduli, scale = context.chain, context.ring.tables, context.ring.moduli, context.ring.division.scale
    elements = {step: context.element(step) for step in babies if step}
    turns = {step: (keys[element], chain.order(element)) for step, element in elements.items()}

    def row(number: int) -> None:
        limb = chain.limb(number, rows)
        inputs, switched = np.empty((len(babies), 2, n), dtype=np.uint64), np.empty((1, 2, 1, n), dtype=np.uint64)
        extended, half, prime = np.zeros((2, n), dtype=np.uint64), moduli.half[limb], tables.primes[limb]
        if number < values.shape[1]:
            extended[:] = values[:, number]
            multiply_constant(extended, scale[limb, 0], scale[limb, 1], prime)
        for place, step in enumerate(babies):
            if step:
                key, order = turns[step]
                chain.switch_row(switched, digits, key, number)
                rotated_input(inputs[place], switched[0, :, 0], extended[0], order, half, prime)
            else:
                for i in range(2):
                    inputs[place, i] = extended[i]
                    inner_products.split_words(inputs[place, i], half)
        weights = encoded.weights(context, number, limb)
        multiply_accumulate(sums, inputs, weights, encoded.terms, moduli, (number, limb))

    each(row, range(rows))
    return sums
