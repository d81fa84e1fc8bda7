"""Oblivious transfers of a session's preparations: their setup, and the number that coming messages need.

Both parties know it from the public description and from earlier transfers, so neither has to send it.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.rounds.batches import BatchedExchange
from privcirnet.he.protocol.rounds.message_specs import Trip, alternating, run_initiator, run_responder, trips

if TYPE_CHECKING:
    from privcirnet.he.mpc.ot.session import OtSession

_REFILL_BYTES = 1 << 24
"""Bytes that making silent transfers takes beside their rows."""


def stock_bytes(source: str, needed: int) -> int:
    """Return the most bytes that oblivious transfers take in either party's memory beside those that a node works on.

    Silent ones are made ahead, both ways: there are never more than the next messages' and an iteration's.

    Args:
        needed: number of transfers, both ways, of the largest messages.
    """
    from privcirnet.he.mpc.ot.silent import CODE  # it loads the kernels
    from privcirnet.he.mpc.ot.softspoken import EXTENSION_BYTES, ROW_BYTES

    if source == "softspoken":
        return EXTENSION_BYTES
    return 2 * CODE.stock_bytes + ROW_BYTES * needed + _REFILL_BYTES


def setup_trips(source: str) -> list[Trip]:
    """Return the messages with which transfers begin, once for a session, and their answers."""
    from privcirnet.he.mpc.ot.session import setup_sizes  # it loads the kernels

    return trips(alternating("client", setup_sizes(source)))


def refill_trips(first: int, second: int) -> list[Trip]:
    """Return the messages of iterations that make transfers: those in which the client helps, and the server."""
    from privcirnet.he.mpc.ot.session import refill_sizes

    return trips(alternating("client", refill_sizes(first, second)))


def begin(program: Program) -> Generator[bytes, bytes, "OtSession"]:
    """Begin oblivious transfers as the client.

    Yields:
        messages; the generator is sent the answer to each.

    Returns:
        its end of the transfers.
    """
    from privcirnet.he.mpc.ot.session import initiate

    side = initiate(source=program.transfers)
    return (yield from run_initiator(side, wire.TRANSFERS, setup_trips(program.transfers)))


def answer_beginning(program: Program, message: bytes) -> Generator[bytes, bytes, tuple["OtSession", bytes]]:
    """Begin oblivious transfers as the server.

    Args:
        message: the client's first message.

    Yields:
        answers; the generator is sent the message after each.

    Returns:
        its end of the transfers, and the message after the last answer.
    """
    from privcirnet.he.mpc.ot.session import respond

    side = respond(source=program.transfers)
    return (yield from run_responder(side, message, wire.TRANSFERS, setup_trips(program.transfers)))


def more(transfers: "OtSession | None", batch: BatchedExchange) -> Generator[bytes, bytes, None]:
    """Make the transfers that coming messages need, as the client.

    Yields:
        messages; the generator is sent the answer to each.
    """
    if transfers and any(lacking := transfers.lacks(batch.transfers[1], batch.transfers[0])):
        yield from run_initiator(transfers.refill(*lacking), wire.REFILL, refill_trips(*lacking))


def answer_more(
    transfers: "OtSession | None", batch: BatchedExchange, message: bytes
) -> Generator[bytes, bytes, bytes]:
    """Make the transfers that coming messages need, as the server; see :func:`answer_beginning`.

    Returns:
        the message after the last answer.
    """
    if transfers and any(lacking := transfers.lacks(*batch.transfers)):
        side, pairs = transfers.refill(*lacking), refill_trips(*lacking)
        _, message = yield from run_responder(side, message, wire.REFILL, pairs)
    return message
