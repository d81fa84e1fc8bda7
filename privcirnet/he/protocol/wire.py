"""Messages: a fixed header and length-prefixed parts. Strict both ways: anything else is refused before it is used.

Format, little-endian: magic "PCN3", u16 position of the node in the program (0xFFFF: the output), u16 number of parts;
then for each part u32 length and the bytes.

The position of its first message tells what a client begins: :data:`PREPARE` offline work, :data:`ONLINE` an image with
correlated randomness, :data:`AGREE` a comparison of what is left, any other an image without. An image may come between
two rounds of offline work: :data:`OFFLINE` tells the rounds of the two apart.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from privcirnet.errors import RuleError

Bytes = TypeVar("Bytes", bytes, memoryview)
_HEADER = struct.Struct("<4sHH")
_LENGTH = struct.Struct("<I")
_MAGIC = b"PCN3"
OUTPUT = 0xFFFF
"""Position that asks for the server's share of the output."""
PREPARE = 0xFFFE
"""Position of the first messages of offline work: for how many images, and the numbers of their prepared work."""
ONLINE = 0xFFFD
"""Position of an image's first message where there is prepared work for it, and of the reply that there is none."""
AGREE = 0xFFFC
"""Position of the message that says what a client has prepared, and of the reply: the halves that the server has."""
PREPARED = 0xFFFB
"""Position of the last messages of offline work: both parties have their halves."""
TRANSFERS = 0xFFF9
"""Position of the messages with which oblivious transfers begin, within a preparation."""
REFILL = 0xFFF8
"""Position of the messages with which more oblivious transfers are made."""
OFFLINE = 0x8000
"""Added to a node's position in a round of offline work. Programs have fewer nodes."""
_NAMED = (OUTPUT, PREPARE, ONLINE, AGREE, PREPARED, TRANSFERS, REFILL)


@dataclass(frozen=True)
class MessageSizes:
    """The most bytes of a message of each kind.

    Attributes:
        keys: the client's public key, which is a fresh ciphertext, and its Galois keys.
    """

    keys: int
    request: int
    reply: int


def frame(position: int, parts: Sequence[bytes | memoryview]) -> bytes:
    """Return one message.

    Args:
        position: position of the node in the program, or :data:`OUTPUT`.

    >>> unframe(frame(3, [b"ab", b""]), 3)
    [b'ab', b'']
    """
    lengths = (_LENGTH.pack(len(part)) for part in parts)
    return b"".join(
        (_HEADER.pack(_MAGIC, position, len(parts)), *chain.from_iterable(zip(lengths, parts, strict=True)))
    )


def framed_bytes(parts: Sequence[int]) -> int:
    """Return the bytes of a message.

    Args:
        parts: bytes of each part.

    >>> framed_bytes([2, 3]) == len(frame(0, [b"ab", b"def"]))
    True
    """
    return _HEADER.size + sum(_LENGTH.size + size for size in parts)


def position_of(message: bytes) -> int:
    """Return the position that a message of this process is about, online or offline.

    >>> position_of(frame(OFFLINE + 3, []))
    3
    """
    position = _HEADER.unpack_from(message)[1]
    return position if position in _NAMED else position & ~OFFLINE


def is_offline(message: bytes) -> bool:
    """Return whether a message of the other party is about offline work, before anything else in it is looked at."""
    if len(message) < _HEADER.size:
        return False
    position = _HEADER.unpack_from(message)[1]
    return position in (PREPARE, PREPARED, TRANSFERS, REFILL) if position in _NAMED else position >= OFFLINE


def begins(message: bytes) -> int:
    """Return what a message of the other party is about, before anything else in it is looked at.

    Returns:
        :data:`AGREE`, :data:`PREPARE`, :data:`ONLINE` or :data:`TRANSFERS`; 0 for everything else.
    """
    position = position_of(message) if len(message) >= _HEADER.size else 0
    return position if position in (AGREE, PREPARE, ONLINE, TRANSFERS) else 0


def ends(reply: bytes) -> bool:
    """Return whether a reply is the last of an image, of its preparation, or of an agreement."""
    return len(reply) >= _HEADER.size and _HEADER.unpack_from(reply)[1] in (AGREE, OUTPUT, ONLINE, PREPARED)


def unframe(message: Bytes, position: int, count: int | None = None) -> list[Bytes]:
    """Return the parts of a message.

    Args:
        message: the whole message; parts of a view are views, too.
        position: position that the message must be about.
        count: number of parts that it must have; None for any.
    """
    if len(message) < _HEADER.size:
        raise _refused("a header", f"{len(message)} bytes")
    magic, actual, number = _HEADER.unpack_from(message)
    if magic != _MAGIC or actual != position:
        raise _refused(f"about step {position}", f"magic {magic!r}, step {actual}")
    if count is not None and number != count:
        raise _refused(f"in {count} parts", f"{number}")
    return _split(message, number)


def _split(message: Bytes, number: int) -> list[Bytes]:
    parts: list[Bytes] = []
    start = _HEADER.size
    for _ in range(number):
        if len(message) < start + _LENGTH.size:
            raise _refused("whole", f"{len(message)} bytes")
        (length,) = _LENGTH.unpack_from(message, start)
        start += _LENGTH.size
        if len(message) < start + length:
            raise _refused("whole", f"{len(message)} bytes")
        parts.append(message[start : start + length])
        start += length
    if start != len(message):
        raise _refused("without a tail", f"{len(message) - start} bytes more")
    return parts


def _refused(rule: str, got: str) -> RuleError:
    return RuleError(f"a message must be {rule}", got=got, remedy="use the same version and program on both sides")
