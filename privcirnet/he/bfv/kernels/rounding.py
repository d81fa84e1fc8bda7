"""Rounding of a reply's coefficients to k bits and back, compiled; :mod:`bfv.rounding` has the format.

With q' = p_1 ... p_l and Chinese remainders, x / q' is the sum over j of y_j / p_j mod 1, where y_j is
x (q' / p_j)^-1 mod p_j. 128 bits of each fraction are added up, in two words; the upper k are the rounded coefficient.

Back: with r = (c q' + 2^(k - 1)) mod 2^k, round(c q' / 2^k) 2^k = c q' + 2^(k - 1) - r, which mod p_j is 1 / 2 - r 2^-k
times 2^k, since p_j divides q'. So there is no division, and r needs only the lowest words of the product.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from privcirnet.he.bfv.rounding import digits
from privcirnet.he.ring.kernels.arithmetic import (
    Word,
    divided,
    mul_shoup_lazy,
    reduce_4p,
    sub_if_ge,
    with_quotient,
)
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.kernels import wire_bytes
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
