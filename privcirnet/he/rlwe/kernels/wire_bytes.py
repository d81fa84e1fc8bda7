"""The compact bytes of :mod:`rlwe.wire_bytes`, which has the format, whole words at a time.

Read as one little-endian number, the compact bytes of a prime's residues are the residues as digits of as many bits as
the prime has. So both directions shift 64-bit words instead of moving bits.
"""

import numpy as np
import numpy.typing as npt

from privcirnet.he.ring.kernels.arithmetic import Word
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe import wire_bytes
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.jit import inline, jit

_ZERO, _ONE, _TOP, _WORD = np.uint64(0), np.uint64(1), np.uint64(63), np.uint64(64)
_THREE, _SEVEN = np.uint64(3), np.uint64(7)
_NARROW = 57
"""Bits of a residue that lies in eight bytes wherever it begins."""


def packed(count: int, bits: Residues) -> Residues:
    """Return an array of words for packed residues, not written yet.

    Args:
        count: residues of each prime.
        bits: width of a packed residue of each prime, 8 to 64.
    """
    return np.empty(-(-count * int(bits.sum()) // 64), dtype=np.uint64)


def octets(words: Residues, count: int, bits: Residues) -> bytes:
    """Return the bytes of packed residues.

    Args:
        words: words that :func:`pack_into` wrote.
        count: residues of each prime.
        bits: width of a packed residue of each prime.
    """
    return words.view(np.uint8)[: -(-count * int(bits.sum()) // 8)].tobytes()


def padded(message: Message) -> Residues:
    """Return bytes in 64-bit words and one word more: unpacking reads two neighbours for each value."""
    words = np.zeros(len(message) // 8 + 2, dtype=np.uint64)
    words.view(np.uint8)[: len(message)] = np.frombuffer(message, dtype=np.uint8)
    return words


def pack(words: Residues, bits: tuple[int, ...]) -> bytes:
    """Return residues as compact bytes.

    Args:
        words: residues, shape (primes, m). Only the lowest bits of each count, as many as its prime has.
        bits: bits of a residue of each prime, 8 to 64.
    """
    widths = np.array(bits, dtype=np.uint64)
    target = packed(words.shape[1], widths)
    pack_into(target, words, widths)
    return octets(target, words.shape[1], widths)


def unpack(message: Message, primes: tuple[int, ...], bits: tuple[int, ...]) -> Residues:
    """Read compact bytes and check every residue.

    Args:
        message: compact bytes.
        bits: bits of a residue of each prime, 8 to 64.

    Returns:
        residues, shape (primes, m).

    Raises:
        RuleError: the length is no whole number of coefficients, or a residue is not under its prime.
    """
    if len(bits) != len(primes):
        raise ValueError(f"each prime must have a width: got {len(bits)} for {len(primes)}")
    words = np.empty((len(primes), wire_bytes.coefficients(message, bits)), dtype=np.uint64)
    if not unpack_into(words, padded(message), np.array(primes, dtype=np.uint64), np.array(bits)):
        raise wire_bytes.not_under()
    return words


@jit
def pack_into(target: Residues, words: Residues, bits: Residues) -> None:
    """Write the lowest bits of every word, one after the other, into 64-bit words.

    ``pending`` has the ``filled`` < 64 bits not yet written. The rest of a word that fills it up stays there.

    Args:
        target: written, what :func:`packed` returned.
        words: shape (primes, m).
        bits: width of a packed residue of each prime, 8 to 64.
    """
    pending, filled, place = _ZERO, _ZERO, 0
    for j in range(words.shape[0]):
        row, width = words[j], bits[j]
        mask = ~_ZERO >> (_WORD - width)
        for i in range(row.size):
            word = row[i] & mask
            pending = pending | (word << filled)
            filled = filled + width
            if filled >= _WORD:
                target[place] = pending
                place += 1
                filled = filled - _WORD
                pending = (word >> _ONE) >> (width - filled - _ONE)
    if filled > _ZERO:
        target[place] = pending


@jit
def unpack_into(words: Residues, padded: Residues, primes: Residues, bits: Integers) -> bool:
    """Undo :func:`pack_into`.

    Two neighbouring words are read for each residue, so ``padded`` has one more than hold the message.

    Args:
        words: written, residues, shape (primes, m).
        padded: the message in 64-bit words, and one word more.
        primes: shape (primes,).
        bits: width of a packed residue of each prime, 8 to 64.

    Returns:
        False if a residue is not under its prime.
    """
    under, start = True, 0
    for j in range(primes.size):
        row, p, width = words[j], primes[j], int(bits[j])
        mask = ~_ZERO >> np.uint64(64 - width)
        if width <= _NARROW:
            largest, octets = _ZERO, padded.view(np.uint8)
            for i in range(row.size):
                position = np.uint64(start + i * width)
                word = (_eight(octets, position >> _THREE) >> (position & _SEVEN)) & mask
                row[i] = word
                largest = max(largest, word)
            under = under & (largest < p)
        else:
            for i in range(row.size):
                word = _word_at(padded, start + i * width, mask)
                row[i] = word
                under = under & (word < p)
        start += row.size * width
    return under


@jit
def unpack_any(words: Residues, padded: Residues, bits: Residues) -> None:
    """Undo :func:`pack_into` where every pattern of bits is a value.

    Args:
        words: written, shape (rows, m).
        padded: see :func:`unpack_into`.
        bits: width of a packed value of each row, 1 to 64.
    """
    start = 0
    for j in range(bits.size):
        row, width = words[j], int(bits[j])
        mask = ~_ZERO >> np.uint64(64 - width)
        for i in range(row.size):
            row[i] = _word_at(padded, start + i * width, mask)
        start += row.size * width


@inline
def _eight(octets: npt.NDArray[np.uint8], place: Word) -> Word:
    """Return eight bytes as a word, wherever they begin: one load."""
    word = np.uint64(octets[place])
    for i in range(1, 8):
        word |= np.uint64(octets[place + np.uint64(i)]) << np.uint64(8 * i)
    return word


@inline
def _word_at(padded: Residues, position: int, mask: Word) -> Word:
    """Return some bits from a position on."""
    place, shift = position >> 6, np.uint64(position & 63)
    return ((padded[place] >> shift) | ((padded[place + 1] << _ONE) << (_TOP - shift))) & mask
