"""Residues as bytes, ceil(log2 t) bits each: a little-endian stream of bits, with zeros up to the last whole byte."""

import math

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.clear import compiled
from privcirnet.he.ring.modular import Residues

_WORD = 64
_AT_ONCE = 1 << 12
"""Values that numpy takes at a time, a multiple of 8: it needs a word for every bit."""
_REMEDY = "send it again"


def packed_size(count: int, t: int) -> int:
    """Return the number of bytes of packed residues.

    Args:
        count: of residues.
        t: modulus, 2 or more.
    """
    return -(-count * _width(t) // 8)


def pack(residues: Residues, t: int) -> bytes:
    """Return residues in :func:`packed_size` bytes.

    Args:
        residues: all under t, of any shape, which the bytes do not say.
        t: modulus under 2^64.

    >>> pack(np.uint64([1, 2, 3]), 5).hex()
    'd100'
    """
    flat, width = np.ascontiguousarray(residues).reshape(-1), _width(t)
    if not compiled.installed():
        return b"".join(_slow_pack(flat[first : first + _AT_ONCE], width) for first in range(0, flat.size, _AT_ONCE))
    from privcirnet.he.engines.kernels.wire_bytes import pack_into

    made, bits = np.empty(-(-flat.size * width // _WORD), dtype=np.uint64), np.array([width], dtype=np.uint64)

    def some(first: int, end: int) -> None:
        pack_into(made[first * width // _WORD :], flat[None, first:end], bits)

    compiled.in_parts(some, flat.size, _WORD)
    return made.view(np.uint8)[: packed_size(flat.size, t)].tobytes()


def unpack(message: bytes, shape: tuple[int, ...], t: int) -> Residues:
    """Undo :func:`pack` with a message from a stranger: there is one message for any residues, and no other is taken.

    Args:
        message: from the other party.
        shape: of the residues.
        t: modulus under 2^64.

    Returns:
        residues, of the shape.

    Raises:
        RuleError: another length, a value that is not under t, or bits beyond the last value.
    """
    count, width = math.prod(shape), _width(t)
    if len(message) != packed_size(count, t):
        rule = f"{count} packed values of {width} bits must take {packed_size(count, t)} bytes"
        raise RuleError(rule, got=f"{len(message)} bytes", remedy=_REMEDY)
    spare = 8 * len(message) - count * width
    if spare and message[-1] >> (8 - spare):
        raise RuleError(
            "packed values must have zeros after the last one", got=f"last byte {message[-1]}", remedy=_REMEDY
        )
    found = _unpacked(message, count, t)
    if found is None:
        raise RuleError("packed values must be under their modulus", got="one that is not", remedy=_REMEDY)
    return found.reshape(shape)


def _unpacked(message: bytes, count: int, t: int) -> Residues | None:
    """Residues (count,), None if one is not under t."""
    width = _width(t)
    if not compiled.installed():
        step = _AT_ONCE * width // 8
        parts = [_slow_unpack(message[first : first + step], width) for first in range(0, len(message), step)]
        found = np.concatenate([np.empty(0, dtype=np.uint64), *parts])[:count]
        return found if (found < t).all() else None
    from privcirnet.he.engines.kernels.wire_bytes import unpack_into

    padded, words = np.zeros(len(message) // 8 + 2, dtype=np.uint64), np.empty(count, dtype=np.uint64)
    padded.view(np.uint8)[: len(message)] = np.frombuffer(message, dtype=np.uint8)
    modulus, bits, under = np.array([t], dtype=np.uint64), np.array([width]), [True]

    def some(first: int, end: int) -> None:
        if not unpack_into(words[None, first:end], padded[first * width // _WORD :], modulus, bits):
            under[0] = False

    compiled.in_parts(some, count, _WORD)
    return words if under[0] else None


def _width(t: int) -> int:
    """ceil(log2 t)."""
    return (t - 1).bit_length()


def _slow_pack(words: Residues, width: int) -> bytes:
    """The bits of words, the lowest of each first."""
    bits = (words[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    return np.packbits(bits.reshape(-1), bitorder="little").tobytes()


def _slow_unpack(message: bytes, width: int) -> Residues:
    """The words of bits, as many as there is room for."""
    count = 8 * len(message) // width
    bits = np.unpackbits(np.frombuffer(message, dtype=np.uint8), count=count * width, bitorder="little")
    places = np.arange(width, dtype=np.uint64)
    return (bits.reshape(count, width).astype(np.uint64) << places).sum(axis=1, dtype=np.uint64)
