"""Encryption of slots to a request, and decryption of a reply to slots, under the secret key.

Encryption, SEAL's: c1 = a is uniform, sent as a seed, c0 = -(a s + e) + round(q m / t), with e the difference of two
sums of 21 random bits. The rounding is that of :func:`bfv.kernels.plaintexts.add`.

Decryption: with x = c0 + c1 s mod q, q = p_1 ... p_k, the plaintext is round(t x / q) mod t. By Chinese remainders

    t x / q = sum over j of t y_j / p_j  (mod t),    y_j = x (q / p_j)^-1 mod p_j,

so each prime gives a whole number, which is added mod t, and a fraction, of which 64 bits are added up. They are exact
to 2^-58, and noise that decrypts is further than that from where the rounding turns. Memory that held x or its
fractions is zeroed: with the reply it gives c1 s, and that gives s.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from privcirnet.he.bfv.kernels import plaintexts, reply
from privcirnet.he.bfv.parameters import ReplyFormat
from privcirnet.he.ring.kernels import ntt, sampling
from privcirnet.he.ring.kernels.arithmetic import (
    Word,
    divided,
    estimate,
    mul_shoup_lazy,
    reduce_4p,
    sub_if_ge,
    with_quotient,
)
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.rlwe.kernels import secret_key, uniform, wire_bytes
from privcirnet.he.rlwe.wire_bytes import Message, WireFormat
from privcirnet.he.system.jit import inline, jit


class EncryptionTables(NamedTuple):
    """Tables for the encryption of requests.

    Attributes:
        tables: tables of the transforms; the L data primes come first.
        bounds: constants of the L data primes.
        bits: width of a packed residue of each data prime.
    """

    tables: ntt.Tables
    bounds: uniform.Bounds
    plain: plaintexts.Plain
    bits: Residues


def encryption_tables(tables: ntt.Tables, plain: plaintexts.Plain, modulus: WireFormat) -> EncryptionTables:
    """Return the tables that requests are encrypted with.

    Args:
        tables: tables of the transforms; the data primes come first.
        modulus: the data primes.
    """
    return EncryptionTables(tables, uniform.bounds(modulus.primes), plain, np.array(modulus.bits, dtype=np.uint64))


def encrypt(key: Residues, slots: Residues, form: EncryptionTables, sent: Integers | None = None) -> bytes:
    """Encrypt a plaintext.

    Args:
        key: secret, shape (2, L', n) for L' >= L primes (:func:`rlwe.kernels.secret_key.generate`).
        slots: residues mod t, shape (n,).
        sent: coefficients of the first polynomial that are sent; None: all of them.

    Returns:
        compact bytes (:mod:`rlwe.wire_bytes`), then the seed.
    """
    places = np.arange(slots.size) if sent is None else sent
    packed, words = wire_bytes.packed(places.size, form.bits), np.empty((form.bits.size, slots.size), dtype=np.uint64)
    drawn = secret_key.draw(slots.size)
    uniform.fill(words, drawn.seed, form.bounds)
    _encrypt(packed, words, key, np.ascontiguousarray(slots), drawn.error, form, places)
    wipe([drawn.error])
    return wire_bytes.octets(packed, places.size, form.bits) + drawn.seed


@jit
def _encrypt(  # noqa: PLR0913, PLR0917
    packed: Residues,
    words: Residues,
    key: Residues,
    slots: Residues,
    error: Residues,
    form: EncryptionTables,
    sent: Integers,
) -> None:
    """Run :func:`encrypt` into packed words; ``words``, the uniform polynomial, are overwritten."""
    for limb in range(words.shape[0]):
        p, row, secret, quotient = form.tables.primes[limb], words[limb], key[0, limb], key[1, limb]
        ntt.forward(words[limb : limb + 1], form.tables, limb)
        for i in range(row.size):
            row[i] = mul_shoup_lazy(row[i], secret[i], quotient[i], p)
        ntt.inverse(words[limb : limb + 1], form.tables, limb)
        offset = p + p + np.uint64(sampling.BINOMIAL)
        for i in range(row.size):  # at most 2 p + 21
            row[i] = sub_if_ge(sub_if_ge(offset - row[i] - sampling.binomial(error[i]), p), p)
    plaintexts.add(words, slots, form.plain)
    if sent.size == slots.size:
        wire_bytes.pack_into(packed, words, form.bits)
        return
    some = np.empty((words.shape[0], sent.size), dtype=np.uint64)
    for limb in range(words.shape[0]):
        for i in range(sent.size):
            some[limb, i] = words[limb, sent[i]]
    wire_bytes.pack_into(packed, some, form.bits)


_HALF = np.uint64(1 << 63)


class DecryptionTables(NamedTuple):
    """Tables for the decryption of replies.

    Attributes:
        tables: tables of the transforms; the k primes of replies come first.
        primes: primes of replies, (k,).
        inverse: (q / p)^-1 mod p and its quotient, (k, 2).
        whole: floor(t / p), (k,).
        rest: t mod p and its quotient, (k, 2).
        fraction: floor(2^64 / p), and the quotient of 2^64 mod p, (k, 2).
    """

    tables: ntt.Tables
    plain: plaintexts.Plain
    primes: Residues
    roundings: tuple[reply.RoundingTables, reply.RoundingTables]
    inverse: Residues
    whole: Residues
    rest: Residues
    fraction: Residues


def decryption_tables(tables: ntt.Tables, plain: plaintexts.Plain, replies: ReplyFormat) -> DecryptionTables:
    """Return the tables that replies are decrypted with.

    Args:
        tables: tables of the transforms; the primes of replies come first.
    """
    primes, t = replies.modulus.primes, int(plain.tables.primes[0])
    q = prod(primes)
    fractions = [((1 << 64) // p, ((1 << 64) % p << 64) // p) for p in primes]
    return DecryptionTables(
        tables,
        plain,
        np.array(primes, dtype=np.uint64),
        (reply.rounding_tables(primes, replies.bits.first), reply.rounding_tables(primes, replies.bits.second)),
        np.stack([with_quotient(pow(q // p, -1, p), p) for p in primes]),
        np.array([t // p for p in primes], dtype=np.uint64),
        np.stack([with_quotient(t % p, p) for p in primes]),
        np.array(fractions, dtype=np.uint64),
    )


def decrypt(
    key: Residues, message: Message, form: DecryptionTables, replies: ReplyFormat, sent: Integers | None = None
) -> Residues:
    """Decrypt a reply.

    Args:
        key: secret, shape (2, L', n) for L' >= k primes (:func:`rlwe.kernels.secret_key.generate`).
        sent: ascending coefficients of the first polynomial that the reply holds; the others count as zero. None: all
            of them.

    Returns:
        slots, shape (n,).

    Raises:
        RuleError: the length is wrong.
    """
    n = replies.modulus.ring_degree
    places = np.arange(n) if sent is None else sent
    first, second = map(wire_bytes.padded, replies.cut(message, places.size))
    slots = np.empty(n, dtype=np.uint64)
    _decrypt(slots, first, second, places, key, form)
    return slots


@jit
def _decrypt(
    slots: Residues, first: Residues, second: Residues, sent: Integers, key: Residues, form: DecryptionTables
) -> None:
    """Run :func:`decrypt` on packed words."""
    limbs, n = form.primes.size, slots.size
    words, phase = np.zeros((2, limbs, n), dtype=np.uint64), np.empty((1, n), dtype=np.uint64)
    some = np.empty((limbs, sent.size), dtype=np.uint64)
    reply.lengthen(some, first, form.roundings[0])
    reply.lengthen(words[1], second, form.roundings[1])
    for limb in range(limbs):
        for i in range(sent.size):
            words[0, limb, sent[i]] = some[limb, i]
    t = form.plain.tables.primes[0]
    total, fractions = np.zeros(n, dtype=np.uint64), np.full(n, _HALF, dtype=np.uint64)
    for limb in range(limbs):
        p, secret, quotient = form.primes[limb], key[0, limb], key[1, limb]
        phase[0] = words[1, limb]
        ntt.forward(phase, form.tables, limb)
        for i in range(n):
            phase[0, i] = mul_shoup_lazy(phase[0, i], secret[i], quotient[i], p)
        ntt.inverse(phase, form.tables, limb)
        for i in range(n):
            phase[0, i] = phase[0, i] + words[0, limb, i]
        _add_scaled(total, fractions, phase[0], form, limb, t)
    slots[:] = plaintexts.slots(total, form.plain)
    phase[:] = 0
    fractions[:] = 0


@inline
def _add_scaled(total: Residues, fractions: Residues, x: Residues, form: DecryptionTables, limb: int, t: Word) -> None:
    """Add t y / p under one prime: its whole part mod t to ``total``, its fraction to ``fractions``."""
    p, inverse, inverse_quotient = form.primes[limb], form.inverse[limb, 0], form.inverse[limb, 1]
    whole, rest, rest_quotient = form.whole[limb], form.rest[limb, 0], form.rest[limb, 1]
    upper, lower = form.fraction[limb, 0], form.fraction[limb, 1]
    for i in range(x.size):
        y = reduce_4p(mul_shoup_lazy(x[i], inverse, inverse_quotient, p), p)
        multiple, remainder = divided(y, rest, rest_quotient, p)
        fraction = fractions[i] + remainder * upper + estimate(remainder, lower)
        carry = np.uint64(fraction < fractions[i])
        fractions[i] = fraction
        total[i] = sub_if_ge(sub_if_ge(total[i] + y * whole + multiple, t) + carry, t)
