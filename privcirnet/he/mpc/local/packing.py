"""Residues as bytes, ceil(log2 t) bits each: a little-endian stream of bits, with zeros up to the last whole byte."""

import math
from collections.abc import Callable

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.ring.modular import Residues

Octets = bytes | memoryview
"""Bytes of a message, or of a part of it that was not copied."""
WORD = 64
_REMEDY = "send it again"


def packed_size(count: int, t: int) -> int:
    """Return the number of bytes of packed residues; ``t``: modulus, 2 or more."""
    return -(-count * _width(t) // 8)


def pack(residues: Residues, t: int) -> bytes:
    """Return residues in :func:`packed_size` bytes.

    Args:
        residues: all under t, of any shape, which the bytes do not say.
        t: modulus under 2^64.

    >>> pack(np.uint64([1, 2, 3]), 5).hex()
    'd100'
    """
    flat = np.ascontiguousarray(residues).reshape(-1)
    return bytes(pack_made(lambda first, end: flat[first:end], flat.size, t))


def pack_made(make: Callable[[int, int], Residues], count: int, t: int) -> memoryview:
    """Return residues in :func:`packed_size` bytes that are made a few at a time, and packed while they are near.

    Whoever makes a message of them copies them anyway.

    Args:
        make: (first, end) -> these residues, (values,), all under t; called on all threads.
        t: modulus under 2^64.
    """
    from privcirnet.he.rlwe.kernels.wire_bytes import pack_into

    width = _width(t)
    words, bits = np.empty(-(-count * width // WORD), dtype=np.uint64), np.array([width], dtype=np.uint64)

    def some(first: int, end: int) -> None:
        pack_into(words[first * width // WORD :], make(first, end)[None], bits)

    passes.in_parts(some, count, WORD)
    return words.view(np.uint8)[: packed_size(count, t)].data


def unpack(message: Octets, shape: tuple[int, ...], t: int) -> Residues:
    """Undo :func:`pack` with a message from a stranger: there is one message for any residues, and no other is taken.

    Args:
        t: modulus under 2^64.

    Returns:
        residues, of the shape.

    Raises:
        RuleError: another length, a value that is not under t, or bits beyond the last value.
    """
    count = math.prod(shape)
    packed, words = Packed(message, count, t), np.empty(count, dtype=np.uint64)
    passes.in_parts(lambda first, end: packed.read(first, words[first:end]), count, WORD)
    return words.reshape(shape)


class Packed:
    """A packed message that :func:`unpack` reads, a few residues at a time.

    Args:
        t: modulus under 2^64.
    """

    def __init__(self, message: Octets, count: int, t: int) -> None:
        _check_length(message, count, t)
        self._words, self._width = np.empty(len(message) // 8 + 2, dtype=np.uint64), _width(t)
        self._words[-2:] = 0
        self._words.view(np.uint8)[: len(message)] = np.frombuffer(message, dtype=np.uint8)
        self._modulus, self._bits = np.array([t], dtype=np.uint64), np.array([self._width])

    def read(self, first: int, residues: Residues) -> Residues:
        """Return residues, (values,), which are written into an array.

        Args:
            first: number of residues before them, a multiple of 64.
            residues: written.
        """
        from privcirnet.he.rlwe.kernels.wire_bytes import unpack_into

        if not unpack_into(residues[None], self._words[first * self._width // WORD :], self._modulus, self._bits):
            raise RuleError("packed values must be under their modulus", got="one that is not", remedy=_REMEDY)
        return residues


def _check_length(message: Octets, count: int, t: int) -> None:
    width = _width(t)
    if len(message) != packed_size(count, t):
        rule = f"{count} packed values of {width} bits must take {packed_size(count, t)} bytes"
        raise RuleError(rule, got=f"{len(message)} bytes", remedy=_REMEDY)
    spare = 8 * len(message) - count * width
    if spare and message[-1] >> (8 - spare):
        rule = "packed values must have zeros after the last one"
        raise RuleError(rule, got=f"last byte {message[-1]}", remedy=_REMEDY)


def _width(t: int) -> int:
    """Return ceil(log2 t)."""
    return (t - 1).bit_length()
