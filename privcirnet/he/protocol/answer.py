"""The last round: what the server hands out of its share of the result, and what the client makes of it.

*logits*: the whole share. The client adds its own modulo t and has the result, all of t's bits of it.

*rounded*: the result is a truncation, so with shares as integers y = r - q, where r is the server's share and q is
minus the client's (:mod:`protocol.shares`). That holds without a modulus, so it holds modulo 2^w too, and the server
hands out w bits of r: as many as right results have. What a client adds to its share above or below this window it does
not see. With them goes a keyed hash of all of r, of 32 bits. A client that has the right y knows r = y + q, and
compares; a result that is wider than the window passes once in 2^32. The width is the program's, never the client's.

A result that no right inference has is refused. Whatever happens, a client first completes the image: a server that is
told that an image failed learns something of it (SECURITY.md).
"""

import hashlib
import os
from math import prod

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.encodings.integer import Values
from privcirnet.he.params.sizes import SHARE_BYTES
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import shares
from privcirnet.he.ring.modular import Residues

_KEY_BYTES, _TAG_BYTES = 16, 4


class WrongResult(RuleError):
    """A result, or a value on the way to it, that no right inference has.

    Args:
        rule: in words.
        got: the value.
        remedy: what the user can do.
        values: the result, which nobody should use.
    """

    def __init__(self, rule: str, *, got: object, remedy: str, values: Values | None = None) -> None:
        super().__init__(rule, got=got, remedy=remedy)
        self.values: Values = np.zeros(0, dtype=np.int64) if values is None else values


def part_bytes(program: Program) -> int:
    """Return the bytes of what :func:`hand_out` makes.

    Args:
        program: with or without weights.
    """
    return SHARE_BYTES * prod(program.output.shape) + (program.answer == "rounded") * (_KEY_BYTES + _TAG_BYTES)


def hand_out(program: Program, share: Residues) -> bytes:
    """Return what the client is given of the server's share of the result.

    Args:
        program: says how much.
        share: the server's, residues of any shape.
    """
    if program.answer == "logits":
        return shares.to_bytes(share)
    key = os.urandom(_KEY_BYTES)
    return shares.to_bytes(share & np.uint64(_window(program) - 1)) + key + _tag(key, share)


def result(program: Program, share: Residues, message: bytes) -> Values:
    """Return the result from the client's share of it and what :func:`hand_out` made.

    Args:
        program: with or without weights.
        share: the client's, residues of any shape.
        message: from the server.

    Returns:
        integers of the share's shape.

    Raises:
        RuleError: the message is not a part of a share of that many values.
        WrongResult: the result is rounded, and not that of the server's whole share.
    """
    t = program.parameters.plain_modulus
    if program.answer == "logits":
        return shares.reveal(share, message, t)
    window, end = _window(program), len(message) - _KEY_BYTES - _TAG_BYTES
    words, key, tag = message[: max(end, 0)], message[max(end, 0) : -_TAG_BYTES], message[-_TAG_BYTES:]
    own = (np.uint64(t) - share) % np.uint64(t)
    found = (shares.from_bytes(words, share.shape, window) - own) & np.uint64(window - 1)
    values = ((found + np.uint64(window // 2)) & np.uint64(window - 1)).astype(np.int64) - window // 2
    if _tag(key, own + values.astype(np.uint64)) != tag:
        raise _wrong(program, program.output.name, program.output_bits, "more", values)
    return values


def width(values: Values) -> int:
    """Return the least k with |value| < 2^k for all values.

    Args:
        values: integers of any shape.

    >>> width(np.array([3, -8]))
    4
    """
    return int(np.abs(values).max(initial=0)).bit_length()


def check_width(program: Program, found: dict[str, tuple[int, int]], values: Values) -> None:
    """Raise if a value is wider than it can be.

    Args:
        program: with or without weights.
        found: by node (bits of the largest value that the client saw, bits that it has at most).
        values: the result, for the error.

    Raises:
        WrongResult: naming the first node.
    """
    for name, (bits, most) in found.items():
        if bits > most > 0:
            raise _wrong(program, name, most, f"{bits} bits", values)


def _wrong(program: Program, name: str, most: int, got: str, values: Values) -> WrongResult:
    remedy = "do not use it, and do not let the server know (SECURITY.md); masks are drawn anew for every image"
    if program.bounds == "measured":
        remedy = "do not use it; images beyond the measured bounds always fail: export with images like it"
    rule = f"values of {name} must have at most {most} bits, or the result is wrong"
    return WrongResult(rule, got=got, remedy=remedy, values=values)


def _tag(key: bytes, share: Residues) -> bytes:
    return hashlib.blake2b(shares.to_bytes(share), digest_size=_TAG_BYTES, key=key).digest()


def _window(program: Program) -> int:
    """2^w: the result's bits and a sign."""
    return 2 << program.output_bits
