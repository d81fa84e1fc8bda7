"""Linear maps of ciphertexts with double hoisting: :mod:`circuits.ckks.linear_map` says what, this module does it.

Memory: extended sums for every giant step, (k + L') rows of 2 n words each, and rows of the baby steps, one prime at a
time. Plaintexts whose slots repeat are kept transformed, n / 16 words for each row (:mod:`circuits.ckks.diagonals`):
those of all factors of the transform but the widest. Others are kept as signed coefficients, 8 n bytes for each
diagonal, and transformed row by row when they are needed.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from weakref import WeakKeyDictionary

import numpy as np

from privcirnet.he.circuits.ckks import diagonals
from privcirnet.he.circuits.ckks.linear_map import LinearMap
from privcirnet.he.ring.kernels import operands
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.kernels.inner_products import Terms
from privcirnet.he.ring.kernels.ntt import GROUP
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import hybrid
from privcirnet.he.schemes.ckks.ciphertext import Ciphertext, Hoisted, check_level
from privcirnet.he.schemes.ckks.context import Context
from privcirnet.he.schemes.ckks.received import Keys, check_keys
from privcirnet.he.schemes.ckks.server import CkksServer
from privcirnet.he.system.threads import each


@dataclass(frozen=True, eq=False)
class EncodedMap:
    """A linear map's plaintexts for one level.

    Attributes:
        integers: coefficients, shape (products, n); of short ones only where they can differ from zero.
        short: transformed and split, shape (k + L', products, n / 16), of short ones; else empty.
        terms: (baby, product) of each sum over a giant step.
    """

    babies: list[int]
    giants: list[int]
    integers: Integers
    short: Residues
    terms: Terms

    def weights(self, context: Context, limb: int) -> Residues:
        """Return a row of all plaintexts, split for products."""
        if len(self.short):
            return self.short[limb]
        found = np.empty(self.integers.shape, dtype=np.uint64)
        diagonals.weights(found, self.integers, context.ring.tables, context.ring.moduli.half[limb], limb)
        return found


_encoded: WeakKeyDictionary[LinearMap, dict[tuple[Context, int], EncodedMap]] = WeakKeyDictionary()


def encode(context: Context, source: LinearMap, level: int) -> EncodedMap:
    """Return a map's plaintexts, which are kept as long as the map is.

    Raises:
        RuleError: see :meth:`Context.integers`.
    """
    known = _encoded.setdefault(source, {})
    if (context, level) not in known:
        known[context, level] = _made(context, source, level)
    return known[context, level]


def _made(context: Context, source: LinearMap, level: int) -> EncodedMap:
    scale, babies, n = context.parameters.factors[level], source.babies, context.parameters.ring_degree
    numbered = [(g, b) for g, own in source.groups.items() for b in own]
    integers = np.stack([context.integers(source.factor(g, b), scale, source.period) for g, b in numbered])
    pairs = np.array([(babies.index(b), number) for number, (_, b) in enumerate(numbered)])
    first = np.cumsum([0, *(len(own) for own in source.groups.values())])
    rows = context.special + level + 1 if source.period <= diagonals.shortest(n) else 0
    short = np.empty((rows, len(integers), n // GROUP), dtype=np.uint64)

    def row(limb: int) -> None:
        diagonals.weights(short[limb], integers, context.ring.tables, context.ring.moduli.half[limb], limb)

    each(row, range(rows))
    return EncodedMap(babies, list(source.groups), integers[:0] if rows else integers, short, Terms(pairs, first))


def apply(server: CkksServer, ciphertext: Ciphertext, source: LinearMap, keys: Keys) -> Ciphertext:
    """Return a linear map of a ciphertext, a level lower.

    Args:
        ciphertext: of level 1 or more.

    Raises:
        RuleError: no level is left, or a rotation has no key.
    """
    context, encoded = server.context, encode(server.context, source, check_level(ciphertext.level))
    check_keys(context, source.steps, ciphertext.level, keys)
    server.counts["rotate"] += source.rotations
    server.counts["pmult"] += source.products
    sums = _sums(context, server.hoist(ciphertext), encoded, keys)
    total = np.zeros_like(sums[0]) if encoded.giants[0] else sums[0]  # they are ascending
    for giant, own in zip(encoded.giants, sums, strict=True):
        if giant:
            _add_rotated(context, total, own, giant, keys)
    return Ciphertext(context.chain.lowered_and_reduced(total))


def _sums(context: Context, hoisted: Hoisted, encoded: EncodedMap, keys: Keys) -> Residues:
    """Return the sums over baby steps, extended, (giants, 2, k + L', n)."""
    babies, values, digits = encoded.babies, hoisted.ciphertext.residues, hoisted.digits
    rows, n = digits.shape[1:]
    sums = np.empty((len(encoded.giants), 2, rows, n), dtype=np.uint64)
    scales, tables, moduli = _scales(context), context.ring.tables, context.ring.moduli

    def row(limb: int) -> None:
        inputs, switched = np.empty((len(babies), 2, n), dtype=np.uint64), np.empty((1, 2, rows, n), dtype=np.uint64)
        own, half, prime = np.zeros((2, n), dtype=np.uint64), moduli.half[limb], tables.primes[limb]
        if limb >= context.special:
            own[:] = values[:, limb - context.special]
            factor, quotient = scales[limb]
            hybrid.multiply_constant(own, factor, quotient, prime)
        for place, step in enumerate(babies):
            if step:
                hybrid.switch_row(switched, digits, keys[step], moduli, limb)
                diagonals.rotated_input(inputs[place], switched[0, :, limb], own[0], context.order(step), half, prime)
            else:
                for i in range(2):
                    inputs[place, i] = own[i]
                    operands.split_words(inputs[place, i], half)
        weights = encoded.weights(context, limb)
        diagonals.multiply_accumulate(sums, inputs, weights, encoded.terms, moduli, limb)

    each(row, range(rows))
    return sums


def _add_rotated(context: Context, total: Residues, own: Residues, step: int, keys: Keys) -> None:
    """Add a rotated extended ciphertext to an extended total, in place."""
    primes, chain, order = context.ring.tables.primes[: total.shape[1]], context.chain, context.order(step)
    switched = chain.extended(chain.digits(chain.lowered(own[1:])[0]), keys[step])

    def row(limb: int) -> None:
        diagonals.add_rotated(total[:, limb], switched[:, limb], own[0, limb], order, primes[limb])

    each(row, range(len(primes)))


@lru_cache(maxsize=16)
def _scales(context: Context) -> list[Residues]:
    """P mod each prime and its quotient."""
    p = prod(context.parameters.special_primes)
    return [with_quotient(p % prime, prime) for prime in context.ring.primes]
