"""The last round: the server's part of its share of the result, and the client's result from it.

*logits*: the whole share. The client adds its own modulo t and has the result, all of t's bits of it.

*top1*: the result is a class c < 2^k, and the server hands out k bits of its share s, and whether the other bits are
zero: no more, whatever the client has made of its own share q. As integers s + q is c, or c + t. It is c alone where s
and q are both under 2^k: they are then not over c, and two numbers under 2^k do not reach t. So the client has c modulo
2^k, for every mask.

A result that no right inference has is refused. Whatever happens, a client first completes the image: a server that is
told that an image failed learns something of it (SECURITY.md).
"""

from math import prod

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.mpc.local import shares
from privcirnet.he.program.program import ImpossibleResultError, Program
from privcirnet.he.protocol import wire
from privcirnet.he.ring.modular import SHARE_BYTES, Residues


def part_bytes(program: Program) -> int:
    """Return the bytes of the only part of the server's last message."""
    return SHARE_BYTES * prod(program.output.shape)


def reveal_output(program: Program, share: Residues) -> bytes:
    """Return the message with the client's due of the server's share of the result.

    Args:
        share: the server's share, residues of any shape.
    """
    if program.answer == "top1":
        window = _window(program)
        share = share & np.uint64(window - 1) | np.uint64(window) * (share < window)
    return wire.frame(wire.OUTPUT, [shares.to_bytes(share)])


def result(program: Program, share: Residues, part: bytes) -> Values:
    """Return the result, integers of the logits' shape, from the client's share and the server's part.

    Args:
        share: the client's share, residues of any shape.
        part: the only part of the message.

    Raises:
        RuleError: it is not a part of a share of that many values.
        ImpossibleResultError: the result is wider than right ones are, or it is no class.
    """
    if program.answer == "top1":
        values = program.answered(class_index := _class(program, share, part))
        if not values.any():
            raise _wrong(program, f"class {class_index.item()}", values)
        return values
    values = shares.reveal(share, part, program.parameters.plain_modulus)
    if (bits := width(values)) > program.output_bits > 0:
        raise _wrong(program, f"{bits} bits", values)
    return values


def _class(program: Program, share: Residues, part: bytes) -> Values:
    """Return the class modulo a power of two."""
    t, window = np.uint64(program.parameters.plain_modulus), np.uint64(_window(program))
    server_share = shares.from_bytes(part, share.shape, 2 * int(window))
    wraps = (server_share < window) | (share >= window)
    return ((server_share + share - t * wraps) & (window - np.uint64(1))).astype(np.int64)


def width(values: Values) -> int:
    """Return the least k with |value| < 2^k for all values.

    >>> width(np.array([3, -8]))
    4
    """
    return int(np.abs(values).max(initial=0)).bit_length()


def _wrong(program: Program, got: str, values: Values) -> ImpossibleResultError:
    remedy = "do not use it, and do not let the server know (SECURITY.md); masks are drawn anew for every image"
    if program.bounds == "measured":
        remedy = "do not use it; images beyond the measured bounds always fail: export with images like it"
    rule = f"values of {program.output.name} must have at most {program.output_bits} bits, or the result is wrong"
    return ImpossibleResultError(rule, got=got, remedy=remedy, values=values)


def _window(program: Program) -> int:
    """Return 2^k, at least the number of classes."""
    return 1 << (prod(program.logits.shape) - 1).bit_length()
