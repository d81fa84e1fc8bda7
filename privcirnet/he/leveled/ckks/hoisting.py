"""Linear maps of ciphertexts with double hoisting: :mod:`ckks.transform` says what, this module does it.

Memory: extended sums for every giant step, (k + L') rows of 2 n words each, and rows of the baby steps, one prime at a
time. Plaintexts are kept as signed coefficients, 8 n bytes for each diagonal.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from privcirnet.he.engines.kernels import hybrid
from privcirnet.he.engines.kernels.arithmetic import with_quotient
from privcirnet.he.leveled.ckks.context import Context
from privcirnet.he.leveled.ckks.received import Keys, check_keys
from privcirnet.he.leveled.ckks.server import Ciphertext, CkksServer, Hoisted, check_level
from privcirnet.he.leveled.ckks.transform import LinearMap
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.threads import each


@dataclass(frozen=True, eq=False)
class EncodedMap:
    """A linear map's plaintexts for one level.

    Attributes:
        source: the map.
        level: of the ciphertexts that it takes.
        integers: coefficients, in the order of ``pairs``, shape (products, n).
        pairs: (giant, baby) of each, by their places, shape (products, 2).
    """

    source: LinearMap
    level: int
    integers: Integers
    pairs: Integers


@lru_cache(maxsize=256)
def encode(context: Context, source: LinearMap, level: int) -> EncodedMap:
    """Return a map's plaintexts.

    Args:
        context: of the parameters.
        source: the map.
        level: of the ciphertexts that it takes.

    Raises:
        RuleError: see :meth:`Context.integers`.
    """
    scale, babies = context.parameters.scales[level], source.babies
    numbered = [(i, g, b) for i, (g, own) in enumerate(source.groups.items()) for b in own]
    integers = np.stack([context.integers(source.factor(g, b), scale) for _, g, b in numbered])
    return EncodedMap(source, level, integers, np.array([(i, babies.index(b)) for i, _, b in numbered]))


def apply(server: CkksServer, ciphertext: Ciphertext, source: LinearMap, keys: Keys) -> Ciphertext:
    """Return a linear map of a ciphertext, a level lower.

    Args:
        server: that computes.
        ciphertext: of level 1 or more.
        source: the map.
        keys: the client's.

    Raises:
        RuleError: no level is left, or a rotation has no key.
    """
    check_keys(source.steps, keys)
    context, encoded = server.context, encode(server.context, source, check_level(ciphertext.level))
    server.counts["rotate"] += source.rotations
    server.counts["pmult"] += source.products
    sums = _sums(context, server.hoist(ciphertext), encoded, keys)
    total = np.zeros_like(sums[0])
    for giant, own in zip(source.groups, sums, strict=True):
        _add_rotated(context, total, own, giant, keys)
    return Ciphertext(context.chain.reduced(context.chain.lowered(total), ciphertext.level))


def _sums(context: Context, hoisted: Hoisted, encoded: EncodedMap, keys: Keys) -> Residues:
    """Return the sums over baby steps, extended, (giants, 2, k + L', n)."""
    babies, values, digits = encoded.source.babies, hoisted.ciphertext.residues, hoisted.digits
    rows, n = digits.shape[1:]
    sums = np.zeros((len(encoded.source.groups), 2, rows, n), dtype=np.uint64)
    scales, tables, moduli = _scales(context), context.ring.tables, context.ring.moduli

    def row(limb: int) -> None:
        rotated, switched = np.zeros((len(babies), 2, n), dtype=np.uint64), np.empty((1, 2, rows, n), dtype=np.uint64)
        own = np.zeros((2, n), dtype=np.uint64)
        if limb >= context.special:
            own[:] = values[:, limb - context.special]
            factor, quotient = scales[limb]
            hybrid.multiply_constant(own, factor, quotient, tables.primes[limb])
        for place, step in enumerate(babies):
            if step:
                hybrid.switch_row(switched, digits, keys[step], moduli, limb)
                turned = switched[0, :, limb]
                turned[0] = _added(turned[0], own[0], context.ring.tables.primes[limb])
                hybrid.permute(rotated[place], turned, context.order(step))
            else:
                rotated[place] = own
        hybrid.accumulate(sums, rotated, encoded.integers, encoded.pairs, tables, moduli, limb)

    each(row, range(rows))
    return sums


def _add_rotated(context: Context, total: Residues, own: Residues, step: int, keys: Keys) -> None:
    """Add a rotated extended ciphertext to an extended total, in place."""
    primes = context.ring.tables.primes[: total.shape[1], None]
    if step:
        first = own[0]
        second = context.chain.lowered(own[1:].copy())[0]
        own = context.chain.extended(context.chain.digits(second), keys[step])
        own[0] = _added(own[0], first, primes)
        own = own[..., context.order(step)]
    total[:] = _added(total, own, primes)


def _added(first: Residues, second: Residues, primes: Residues) -> Residues:
    total = first + second
    return np.minimum(total, total - primes)


@lru_cache(maxsize=16)
def _scales(context: Context) -> list[Residues]:
    """P mod each prime and its quotient."""
    p = prod(context.parameters.special_primes)
    return [with_quotient(p % prime, prime) for prime in context.ring.primes]
