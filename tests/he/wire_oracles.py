"""What travels, slowly: residues in whole bytes by numpy, and rounded coefficients by Python's integers."""

from math import prod

import numpy as np

from privcirnet.he.bfv.parameters import digits
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, coefficients, not_under


def pack(words: Residues, widths: tuple[int, ...]) -> bytes:
    """Return residues as compact bytes.

    Args:
        words: residues, shape (primes, m). Of each, only the lowest bytes count, as many as its prime's width.
        widths: bytes of a residue of each prime, 1 to 8.
    """
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
    return b"".join(octets[j, :, :width].tobytes() for j, width in enumerate(widths))


def unpack(message: Message, primes: tuple[int, ...], widths: tuple[int, ...]) -> Residues:
    """Read compact bytes and check every residue.

    Args:
        message: what :func:`pack` returned.
        widths: bytes of a residue of each prime, 1 to 8.

    Returns:
        residues, shape (primes, m).

    Raises:
        RuleError: the length is no whole number of coefficients, or a residue is not under its prime.
    """
    count, position = coefficients(message, widths), 0
    octets = np.zeros((len(primes), count, 8), dtype=np.uint8)
    for j, width in enumerate(widths):
        part = np.frombuffer(message, dtype=np.uint8, count=width * count, offset=position)
        octets[j, :, :width] = part.reshape(count, width)
        position += width * count
    words = octets.view("<u8")[..., 0]
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
    streams = [_bits(rounded % (1 << lower), lower), _bits(rounded >> lower, upper)]
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
    rounded = _number(low) + (_number(high.reshape(count, upper)) << lower)
    x = (rounded * q + (1 << (bits - 1))) >> bits
    return np.stack([(x % p).astype(np.uint64) for p in primes])


def _bits(values: Residues, width: int) -> np.ndarray:
    shifts = np.arange(width, dtype=np.uint64)
    return ((values.astype(np.uint64)[:, None] >> shifts) & np.uint64(1)).astype(np.uint8).reshape(-1)


def _number(stream: np.ndarray) -> np.ndarray:
    powers = np.uint64(1) << np.arange(stream.shape[1], dtype=np.uint64)
    return (stream.astype(np.uint64) * powers).sum(axis=1, dtype=np.uint64).astype(object)
