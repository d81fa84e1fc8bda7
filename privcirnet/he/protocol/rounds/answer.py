"""The last round: what the server hands out of its share of the result, and what the client makes of it.

*logits*: the whole share. The client adds its own modulo t and has the result, all of t's bits of it.

*rounded*: the result is a truncation, so with shares as integers y = r - q, where r is the server's share and q is
minus the client's (:mod:`mpc.local.shares`). That holds without a modulus, so it holds modulo 2^w too, and the server
hands out w bits of r: as many as right results have. What a client adds to its share above or below this window it does
not see. A client that has the right y knows all of r = y + q. In one more round it asks whether this is the server's r,
and learns that alone (:mod:`protocol.rounds.equality`). The width is the program's, never the client's.

*top1*: the result is a class c < 2^k, and the server hands out k bits of its share s, and whether the other bits are
zero: no more, whatever the client has made of its own share q. As integers s + q is c, or c + t. It is c alone where s
and q are both under 2^k: they are then not over c, and two numbers under 2^k do not reach t. So the client has c modulo
2^k, for every mask.

A result that no right inference has is refused. Whatever happens, a client first completes the image: a server that is
told that an image failed learns something of it (SECURITY.md).
"""

from collections.abc import Generator
from math import prod
from typing import NamedTuple

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.mpc.local import shares
from privcirnet.he.program.program import Program
from privcirnet.he.program.wrong_result import WrongResult
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.rounds.equality import POINT_BYTES, Question, answered
from privcirnet.he.ring.modular import SHARE_BYTES, Residues


class Received(NamedTuple):
    """What a client was given of the server's share of the result."""

    part: bytes
    question: Question | None = None
    answer: bytes = b""


def rounds(program: Program) -> int:
    """Return how many messages from the server an answer takes."""
    return 2 if program.answer == "rounded" else 1


def part_bytes(program: Program) -> list[tuple[int, int]]:
    """Return the bytes of (question, part) of each of these messages' only parts; 0 where nothing is asked."""
    return [(0, SHARE_BYTES * prod(program.output.shape)), (POINT_BYTES, 2 * POINT_BYTES)][: rounds(program)]


def hand_out(program: Program, share: Residues) -> Generator[bytes, bytes, bytes]:
    """Give the client what it is due of the server's share of the result.

    Args:
        share: the server's, residues of any shape.

    Yields:
        a message, if another is to come; the generator is sent the client's next one.

    Returns:
        the last message.

    Raises:
        RuleError: what the client sends is no question.
    """
    if program.answer == "top1":
        window = _window(program)
        share = share & np.uint64(window - 1) | np.uint64(window) * (share < window)
    if program.answer != "rounded":
        return wire.frame(wire.OUTPUT, [shares.to_bytes(share)])
    message = yield wire.frame(wire.ROUNDED, [shares.to_bytes(share & np.uint64(_window(program) - 1))])
    (question,) = wire.unframe(message, wire.ROUNDED, 1)
    return wire.frame(wire.OUTPUT, [answered(shares.to_bytes(share), question)])


def receive(program: Program, share: Residues, reply: bytes) -> Generator[bytes, bytes, Received]:
    """Take what the server hands out.

    Args:
        share: the client's, residues of any shape.
        reply: the first message of :func:`hand_out`, from the server.

    Yields:
        the client's message, if there is one; the generator is sent the server's next one.

    Returns:
        what :func:`result` takes. Whether the result is right has no part in what was sent.

    Raises:
        RuleError: a message is not what the protocol expects.
    """
    if program.answer != "rounded":
        return Received(wire.unframe(reply, wire.OUTPUT, 1)[0])
    (part,) = wire.unframe(reply, wire.ROUNDED, 1)
    own, values = _rounded(program, share, part)
    question = Question.about(shares.to_bytes(own + values.astype(np.uint64)))
    reply = yield wire.frame(wire.ROUNDED, [question.message])
    return Received(part, question, wire.unframe(reply, wire.OUTPUT, 1)[0])


def result(program: Program, share: Residues, received: Received) -> Values:
    """Return the result from the client's share of it and what the server handed out: integers of the logits' shape.

    Args:
        share: the client's, residues of any shape.

    Raises:
        RuleError: it is not a part of a share of that many values.
        WrongResult: the result is rounded, and not that of the server's whole share; or it is no class.
    """
    if program.answer == "logits":
        return shares.reveal(share, received.part, program.parameters.plain_modulus)
    if program.answer == "top1":
        values = program.answered(found := _class(program, share, received.part))
        if not values.any():
            raise _wrong(program, program.output.name, program.output_bits, f"class {found.item()}", values)
        return values
    _, values = _rounded(program, share, received.part)
    if received.question is None or not received.question.affirmed(received.answer):
        raise _wrong(program, program.output.name, program.output_bits, "more", values)
    return values


def _class(program: Program, share: Residues, part: bytes) -> Residues:
    """The class modulo a power of two."""
    t, window = np.uint64(program.parameters.plain_modulus), np.uint64(_window(program))
    told = shares.from_bytes(part, share.shape, 2 * int(window))
    wraps = (told < window) | (share >= window)
    return (told + share - t * wraps) & (window - np.uint64(1))


def _rounded(program: Program, share: Residues, part: bytes) -> tuple[Residues, Values]:
    """q of the client's share, and the values that fit into the window."""
    t, window = np.uint64(program.parameters.plain_modulus), _window(program)
    own = (t - share) % t
    found = (shares.from_bytes(part, share.shape, window) - own) & np.uint64(window - 1)
    return own, ((found + np.uint64(window // 2)) & np.uint64(window - 1)).astype(np.int64) - window // 2


def width(values: Values) -> int:
    """Return the least k with |value| < 2^k for all values.

    >>> width(np.array([3, -8]))
    4
    """
    return int(np.abs(values).max(initial=0)).bit_length()


def check_width(program: Program, found: dict[str, tuple[int, int]], values: Values) -> None:
    """Raise if a value is wider than it can be.

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


def _window(program: Program) -> int:
    """2^w: the result's bits and a sign; of a class, those of all classes."""
    if program.answer == "top1":
        return 1 << (prod(program.logits.shape) - 1).bit_length()
    return 2 << program.output_bits
