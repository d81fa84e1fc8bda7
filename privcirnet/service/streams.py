"""Bodies over a stream of gRPC's asynchronous server, each in time."""

import asyncio
from collections.abc import Callable
from typing import Any

from grpc import aio

from privcirnet.errors import RuleError
from privcirnet.service.chunks import Body, ChunkMessage, split
from privcirnet.service.limits import HANDSHAKE_S, ServiceLimits
from privcirnet.service.refusals import garbled, late


class ClientDisconnected(Exception):
    """The client has ended the call between two messages."""


async def read(context: Any, seconds: float, what: str = "the next message") -> Any:
    """Return the next message, which must come in some seconds.

    Raises:
        HungUp: there is none.
        Refusing: it did not come, or is not in inference.proto.
    """
    try:
        async with asyncio.timeout(seconds):
            message = await context.read()
    except TimeoutError:
        raise late(what, seconds) from None
    if message is None:
        raise garbled()
    if message is aio.EOF:  # pyright: ignore[reportAttributeAccessIssue]
        raise ClientDisconnected
    return message


async def read_opening(context: Any, what: str) -> Any:
    """Return the first message of a call, which says what is asked for.

    Raises:
        RuleError: it is a chunk of a body.
        HungUp: there is none.
        Refusing: it did not come, or is not in inference.proto.
    """
    first = await read(context, HANDSHAKE_S, what)
    if isinstance(first, ChunkMessage):
        rule, remedy = "a call must begin with what it asks for", "use the same release on both sides"
        raise RuleError(rule, got=f"a chunk of {len(first.data)} bytes", remedy=remedy)
    return first


async def read_body(context: Any, first: Any, most: int, limits: ServiceLimits) -> bytes:
    """Return a body whose first chunk has come.

    Args:
        most: bytes that the body may have.
        limits: each chunk must come in ``timeout_s``, all of them in the time for ``most``.
    """
    body = Body(most)
    if not body.add(first):
        await read_chunks(context, body.add, most, limits)
    return body.joined()


async def read_chunks(context: Any, take: Callable[[Any], bool], most: int, limits: ServiceLimits) -> None:
    """Read chunks until a function says that it has all of them.

    Args:
        take: takes a chunk and returns whether it was the last.
        most: bytes of all of them.
        limits: each chunk must come in ``timeout_s``, all of them in the time for ``most``.
    """
    seconds = limits.seconds_for(most)
    try:
        async with asyncio.timeout(seconds):
            while not take(await read(context, limits.timeout_s, "the rest of a message")):
                pass
    except TimeoutError:
        raise late("a whole message", seconds) from None


async def write_body(context: Any, body: bytes, limits: ServiceLimits) -> None:
    """Send a body, which the client must take in the time for it."""
    seconds = limits.seconds_for(len(body))
    try:
        async with asyncio.timeout(seconds):
            for piece in split(body):
                await context.write(piece)
    except TimeoutError:
        raise late("a client that takes a reply", seconds) from None
