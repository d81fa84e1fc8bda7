"""What travels, slowly: residues bit by bit by numpy, and rounded coefficients by Python's integers."""

from math import prod

import numpy as np

from privcirnet.he.bfv.parameters import digits
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, coefficients, not_under


def pack(words: Residues, bits: tuple[int, ...]) -> bytes:
    """Return residues as compact bytes.

    Args:
        words: residues, shape (primes, m). Of each, only the lowest bits count, as many as its prime has.
        bits: bits of a residue of each prime.
    """
    streams = [stream_of(row, width) for row, width in zip(words, bits, strict=True)]
    return np.packbits(np.concatenate(streams), bitorder="little").tobytes()


def unpack(message: Message, primes: tuple[int, ...], bits: tuple[int, ...]) -> Residues:
    """Read compact bytes and check every residue.

    Args:
        message: what :func:`pack` returned.
        bits: bits of a residue of each prime.

    Returns:
        residues, shape (primes, m).

    Raises:
        RuleError: the length is no whole number of coefficients, or a residue is not under its prime.
    """
    count, position, rows = coefficients(message, bits), 0, []
    stream = np.unpackbits(np.frombuffer(message, dtype=np.uint8), bitorder="little")
    for width in bits:
        rows.append(number(stream[position : position + width * count].reshape(count, width)))
        position += width * count
    words = np.stack(rows).astype(np.uint64)
    if (words >= np.array(primes, dtype=np.uint64)[:, None]).any():
        raise not_under()
    return words


def shorten(words: Residues, primes: tuple[int, ...], bits: int) -> bytes:
    """Return the bytes of rounded coefficients.

    Args:
        words: residues, shape (primes, m).
        bits: k.
    """
    q = prod(primes)
    units = np.array([q // p * pow(q // p, -1, p) for p in primes], dtype=object)
    x = (words.astype(object) * units[:, None]).sum(axis=0) % q
    rounded = ((x << bits) + q // 2) // q % (1 << bits)
    lower, upper = digits(bits)
    streams = [stream_of(rounded % (1 << lower), lower), stream_of(rounded >> lower, upper)]
    return np.packbits(np.concatenate(streams), bitorder="little").tobytes()


def lengthen(message: Message, primes: tuple[int, ...], bits: int, count: int) -> Residues:
    """Return the residues that rounded coefficients stand for, shape (primes, m).

    Args:
        message: what :func:`shorten` returned, of the right length.
        bits: k.
        count: m.
    """
    q, (lower, upper) = prod(primes), digits(bits)
    stream = np.unpackbits(np.frombuffer(message, dtype=np.uint8), bitorder="little")
    low, high = stream[: count * lower].reshape(count, lower), stream[count * lower :][: count * upper]
    rounded = number(low) + (number(high.reshape(count, upper)) << lower)
    x = (rounded * q + (1 << (bits - 1))) >> bits
    return np.stack([(x % p).astype(np.uint64) for p in primes])


def stream_of(values: Residues, width: int) -> np.ndarray:
    """Return the bits of values, the lowest first, flat."""
    shifts = np.arange(width, dtype=np.uint64)
    return ((values.astype(np.uint64)[:, None] >> shifts) & np.uint64(1)).astype(np.uint8).reshape(-1)


def number(stream: np.ndarray) -> np.ndarray:
    """Return Python's integers of bits (m, width)."""
    powers = np.uint64(1) << np.arange(stream.shape[1], dtype=np.uint64)
    return (stream.astype(np.uint64) * powers).sum(axis=1, dtype=np.uint64).astype(object)
