"""Replies from results: noise that hides them (:mod:`ring.sampling`), the switch to a shorter modulus, rounding.

The client's public key is an encryption of zero, z, modulo the data primes. With u ternary and e1 of SEAL's error
distribution, z u + (0, e1) is a fresh one. The error e0 that SEAL adds to the first polynomial is left out: flooding
noise covers it. See docs/mathematics.md, "Circuit privacy".

Rounding to k bits (:mod:`bfv.parameters` has the format): with q' = p_1 ... p_l and Chinese remainders, x / q' is the
sum over j of y_j / p_j mod 1, where y_j is x (q' / p_j)^-1 mod p_j. 128 bits of each fraction are added up, in two
words; the upper k are the rounded coefficient.

Back: with r = (c q' + 2^(k - 1)) mod 2^k, round(c q' / 2^k) 2^k = c q' + 2^(k - 1) - r, which mod p_j is 1 / 2 - r 2^-k
times 2^k, since p_j divides q'. So there is no division, and r needs only the lowest words of the product.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from privcirnet.he.bfv.kernels import plaintexts
from privcirnet.he.bfv.parameters import ReplyFormat, digits
from privcirnet.he.ring.kernels import base_conversion as conversion
from privcirnet.he.ring.kernels import ntt, sampling
from privcirnet.he.ring.kernels.arithmetic import (
    Word,
    divided,
    mul_shoup_lazy,
    quotients,
    reduce_4p,
    sub_if_ge,
    with_quotient,
)
from privcirnet.he.ring.kernels.sampling import FloodingNoise
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.sampling import stream
from privcirnet.he.rlwe.kernels import gadget, wire_bytes
from privcirnet.he.rlwe.kernels.rns import RnsRing, add_scaled, to_coefficients
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.jit import inline, jit

_ZERO, _ONE, _HALF, _WORD = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(64)
_LOW = np.uint64(0xFFFFFFFF)


class RoundingTables(NamedTuple):
    """Tables for the rounding of one polynomial of a reply.

    Attributes:
        primes: primes of q', (l,).
        inverse: (q' / p)^-1 mod p and its quotient, (l, 2).
        fraction: floor(2^64 / p), then 2^64 mod p and its quotient, (l, 3).
        bits: lengths of the two parts of a coefficient, the lower one first.
        product: q' mod 2^128, the lower word first.
        back: 2^-k mod p and its quotient, 2^(64 - k) mod p and its quotient, 1 / 2 mod p, (l, 5).
    """

    primes: Residues
    inverse: Residues
    fraction: Residues
    bits: Residues
    product: Residues
    back: Residues


def rounding_tables(primes: tuple[int, ...], bits: int) -> RoundingTables:
    """Return the tables that coefficients are rounded with.

    Args:
        primes: primes of q', under 2^61.
        bits: k, 16 to 122.
    """
    q, word = prod(primes), 1 << 64
    back = [
        [*with_quotient(pow(2, -bits, p), p), *with_quotient(pow(2, 64 - bits, p), p), (p + 1) // 2] for p in primes
    ]
    return RoundingTables(
        np.array(primes, dtype=np.uint64),
        np.stack([with_quotient(pow(q // p, -1, p), p) for p in primes]),
        np.array([[word // p, *with_quotient(word % p, p)] for p in primes], dtype=np.uint64),
        np.array(digits(bits), dtype=np.uint64),
        np.array([q % word, q // word % word], dtype=np.uint64),
        np.array(back, dtype=np.uint64),
    )


def pack(words: Residues, form: RoundingTables) -> bytes:
    """Return the bytes of rounded coefficients.

    Args:
        words: residues of the coefficients, shape (l, m).
    """
    packed = wire_bytes.packed(words.shape[1], form.bits)
    shorten(packed, np.ascontiguousarray(words), form)
    return wire_bytes.octets(packed, words.shape[1], form.bits)


def unpack(message: Message, form: RoundingTables, count: int) -> Residues:
    """Return the residues that rounded coefficients stand for, shape (l, m).

    Args:
        message: result of :func:`pack`, of the right length.
        count: m.
    """
    words = np.empty((form.primes.size, count), dtype=np.uint64)
    lengthen(words, wire_bytes.padded(message), form)
    return words


@jit
def shorten(packed: Residues, words: Residues, form: RoundingTables) -> None:
    """Write rounded coefficients.

    Args:
        packed: written, words of :func:`rlwe.kernels.wire_bytes.packed` for these coefficients.
        words: residues of the coefficients, shape (l, m).
    """
    count = words.shape[1]
    parts, bits = np.empty((2, count), dtype=np.uint64), form.bits[0] + form.bits[1]
    upper, lower = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.uint64)
    for limb in range(form.primes.size):
        _add_fractions(upper, lower, words[limb], form, limb)
    past = _WORD - form.bits[1]
    for i in range(count):
        high, low = _plus_half(upper[i], lower[i], bits)
        parts[1, i] = high >> past
        rest = (high << form.bits[1]) | (low >> past)
        parts[0, i] = rest >> (_WORD - form.bits[0])
    wire_bytes.pack_into(packed, parts, form.bits)


@jit
def lengthen(target: Residues, padded: Residues, form: RoundingTables) -> None:
    """Undo :func:`shorten`, but for what was rounded away.

    Args:
        target: written, residues, shape (l, m).
        padded: the message in 64-bit words, and one word more.
    """
    parts = np.empty((2, target.shape[1]), dtype=np.uint64)
    wire_bytes.unpack_any(parts, padded, form.bits)
    bits, shift = form.bits[0] + form.bits[1], form.bits[0]
    first, second = form.product[0], form.product[1]
    for i in range(target.shape[1]):
        low = parts[0, i] | (parts[1, i] << shift)
        high = (parts[1, i] >> _ONE) >> (_WORD - _ONE - shift)
        upper = _upper_half(low, first) + low * second + high * first
        low = low * first
        if bits > _WORD:
            half = _ONE << (bits - _WORD - _ONE)
            upper = (upper + half) & ((half << _ONE) - _ONE)
        else:
            low = (low + (_ONE << (bits - _ONE))) & (~_ZERO >> (_WORD - bits))
            upper = _ZERO
        parts[0, i], parts[1, i] = low, upper
    for limb in range(form.primes.size):
        p, row, back = form.primes[limb], target[limb], form.back[limb]
        for i in range(row.size):
            low = reduce_4p(mul_shoup_lazy(parts[0, i], back[0], back[1], p), p)
            high = reduce_4p(mul_shoup_lazy(parts[1, i], back[2], back[3], p), p)
            rest = sub_if_ge(low + high, p)
            row[i] = sub_if_ge(back[4] + (p - rest), p)


@inline
def _add_fractions(upper: Residues, lower: Residues, x: Residues, form: RoundingTables, limb: int) -> None:
    """Add 128 bits of y / p under one prime."""
    p, inverse, quotient = form.primes[limb], form.inverse[limb, 0], form.inverse[limb, 1]
    whole, rest, rest_quotient = form.fraction[limb, 0], form.fraction[limb, 1], form.fraction[limb, 2]
    for i in range(x.size):
        y = reduce_4p(mul_shoup_lazy(x[i], inverse, quotient, p), p)
        first, remainder = divided(y, rest, rest_quotient, p)
        second, _ = divided(remainder, rest, rest_quotient, p)
        low = lower[i] + remainder * whole + second
        upper[i] = upper[i] + y * whole + first + np.uint64(low < lower[i])
        lower[i] = low


@inline
def _plus_half(upper: Word, lower: Word, bits: Word) -> tuple[Word, Word]:
    """Return a fraction of 128 bits plus half of the weight of its bit number ``bits``."""
    if bits < _WORD:
        return upper + (_ONE << (_WORD - _ONE - bits)), lower
    low = lower + (_ONE << (_WORD + _WORD - _ONE - bits))
    return upper + np.uint64(low < lower), low


@inline
def _upper_half(x: Word, y: Word) -> Word:
    """Return floor(x y / 2^64), exactly."""
    high, low, y_high, y_low = x >> _HALF, x & _LOW, y >> _HALF, y & _LOW
    middle = high * y_low + ((low * y_low) >> _HALF)
    cross = low * y_high + (middle & _LOW)
    return high * y_high + (middle >> _HALF) + (cross >> _HALF)


@dataclass(frozen=True)
class PublicKey:
    """The client's public key in the kernel's order, each word with its quotient: (2, 2, L, n), [word or quotient].

    Attributes:
        scaled: P times the key, for results that are still to be divided by P.
    """

    plain: Residues
    scaled: Residues

    @staticmethod
    def build(extended: RnsRing, key: Residues) -> "PublicKey":
        """Return a public key made ready for encryptions.

        Args:
            extended: ring of all L + 1 primes.
            key: an encryption of zero in the kernel's order, shape (2, L, n).
        """
        scaled = np.zeros_like(key)
        add_scaled(scaled, key, extended)
        return PublicKey(_with_quotients(key, extended), _with_quotients(scaled, extended))


class ReplyRandomness(NamedTuple):
    """Random words that hide a reply.

    Attributes:
        secret: random words for ternary u.
        error: random words for e1, (n,).
    """

    secret: Residues
    error: Residues
    flood: FloodingNoise


def draw(flood_bits: int, extended: RnsRing) -> ReplyRandomness:
    """Return fresh random numbers for a reply, from a stream of its own.

    Args:
        flood_bits: log2 of the width of each part of the flooding noise.
        extended: ring of all L + 1 primes.
    """
    n, words = extended.degree, stream()
    flood = sampling.flooding(flood_bits, extended.primes[:-1], n, words)
    return ReplyRandomness(words(sampling.ternary_words(n)), words(n), flood)


class ReplyTables(NamedTuple):
    """Tables for replies.

    Attributes:
        extended: the ring of all L + 1 primes.
        switches: divisions by the last of L primes, of L - 1, ..., of one.
        first: tables of the first polynomial's rounding, under the primes that are left.
        second: tables of the second polynomial's rounding.
        flood: log2 of the width of each part of the flooding noise.
    """

    extended: RnsRing
    plain: plaintexts.Plain
    switches: tuple[conversion.ModDownConstants, ...]
    first: RoundingTables
    second: RoundingTables
    flood: int


def reply_tables(extended: RnsRing, modulus: plaintexts.Plain, replies: ReplyFormat, flood: int) -> ReplyTables:
    """Return the tables that replies are made with.

    Args:
        extended: ring of all L + 1 primes.
        replies: on the wire; their primes are the first of the ring's.
        flood: log2 of the width of each part of the flooding noise.
    """
    primes = extended.primes[:-1]
    switches = tuple(
        conversion.mod_down_constants(primes[last - 1 : last], primes[:last]) for last in range(len(primes), 0, -1)
    )
    first, second = (rounding_tables(replies.modulus.primes, bits) for bits in replies.bits)
    return ReplyTables(extended, modulus, switches, first, second, flood)


def hiding(key: PublicKey, form: ReplyTables) -> Residues:
    """Return the mask for a reply of another engine: a fresh encryption of zero with flooding noise.

    Returns:
        coefficients modulo the data primes, (2, L, n).
    """
    noise = np.zeros(key.plain.shape[1:], dtype=np.uint64)
    while not _hiding(noise, key.plain, draw(form.flood, form.extended), form.extended):
        pass
    return noise


def reply(
    values: Residues,
    key: PublicKey,
    addend: Residues,
    form: ReplyTables,
    sent: Integers | None = None,
) -> bytes:
    """Add a plaintext and a mask to a result, switch it down and serialise it.

    Args:
        values: the result in the kernel's order, shape (2, L, n), or times P with the special prime, (2, L + 1, n);
            overwritten.
        addend: the plaintext's slots, shape (n,).
        sent: coefficients of the first polynomial that are sent; None: all of them.

    Returns:
        bytes of :mod:`bfv.parameters`.
    """
    extended = form.extended
    factors = key.scaled if values.shape[1] == len(extended.primes) else key.plain
    places = np.arange(extended.degree) if sent is None else sent
    formats = (places.size, form.first.bits), (extended.degree, form.second.bits)
    first, second = (wire_bytes.packed(count, bits) for count, bits in formats)
    while not _hiding(values, factors, draw(form.flood, extended), extended):
        pass
    _send(first, second, values[:, : factors.shape[2]], addend, form, places)
    return b"".join(wire_bytes.octets(words, *size) for words, size in zip((first, second), formats, strict=True))


@jit
def _hiding(values: Residues, key: Residues, draws: ReplyRandomness, extended: RnsRing) -> bool:
    """Run :func:`_hide`, or return False, with nothing done, if the secret's words fall short."""
    secret = np.empty(values.shape[2], dtype=np.uint64)
    if not sampling.ternary(draws.secret, secret):
        return False
    _hide(values, key, secret, draws, extended)
    return True


@jit
def _send(
    first: Residues, second: Residues, values: Residues, addend: Residues, form: ReplyTables, sent: Integers
) -> None:
    """Add the plaintext, switch down, round and write the two polynomials."""
    limbs, remaining = values.shape[1], form.first.primes.size
    plaintexts.add(values[0], addend, form.plain)
    for index in range(limbs - remaining):
        for half in range(2):
            gadget.divide_coefficients(values[half, : limbs - index], form.switches[index])
    some = np.empty((remaining, sent.size), dtype=np.uint64)
    for limb in range(remaining):
        for i in range(sent.size):
            some[limb, i] = values[0, limb, sent[i]]
    shorten(first, some, form.first)
    shorten(second, values[1, :remaining], form.second)


@jit
def _hide(values: Residues, key: Residues, secret: Residues, draws: ReplyRandomness, extended: RnsRing) -> None:
    """Add an encryption of zero and flooding noise to a result, under L or L + 1 primes; it becomes coefficients."""
    limbs, n, error = key.shape[2], values.shape[2], draws.error
    polynomial = np.empty((1, n), dtype=np.uint64)
    for limb in range(limbs):
        p = extended.tables.primes[limb]
        for i in range(n):
            polynomial[0, i] = secret[i] + (p - np.uint64(1))
        ntt.forward(polynomial, extended.tables, limb)
        for half in range(2):
            row, factors, quotients = values[half, limb], key[0, half, limb], key[1, half, limb]
            for i in range(n):
                row[i] = sub_if_ge(
                    row[i] + reduce_4p(mul_shoup_lazy(polynomial[0, i], factors[i], quotients[i], p), p), p
                )
    to_coefficients(values, extended.tables)
    if values.shape[1] > limbs:
        for half in range(2):
            gadget.divide_coefficients(values[half], extended.division)
    for limb in range(limbs):
        p, row = extended.tables.primes[limb], values[1, limb]
        sampling.add_flood(values[0, limb], draws.flood, limb, p)
        offset = p - np.uint64(sampling.BINOMIAL)
        for i in range(n):
            row[i] = sub_if_ge(row[i] + sub_if_ge(sampling.binomial(error[i]) + offset, p), p)


def _with_quotients(key: Residues, ring: RnsRing) -> Residues:
    shoup = np.empty_like(key)
    quotients(shoup, key, ring.tables.primes)
    return np.stack([key, shoup])
