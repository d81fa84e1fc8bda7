"""Bodies over a stream of gRPC's asynchronous server, with time limits."""

import asyncio
from collections.abc import Callable
from typing import Any

from grpc import aio

from privcirnet.errors import RuleError
from privcirnet.service.chunks import Body, ChunkMessage, split
from privcirnet.service.limits import HANDSHAKE_S, ServiceLimits
from privcirnet.service.refusals import garbled, late


class ClientDisconnected(Exception):
    """A client's end of the call between two messages."""


async def read(context: Any, seconds: float, what: str = "the next message") -> Any:
    """Return the next message, which must come in ``seconds``.

    Raises:
        ClientDisconnected: there is none.
        ServiceError: it did not come, or is not in inference.proto.
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
    """Return the first message of a call, which states its request.

    Raises:
        RuleError: it is a chunk of a body.
        ClientDisconnected: there is none.
        ServiceError: it did not come, or is not in inference.proto.
    """
    first = await read(context, HANDSHAKE_S, what)
    if isinstance(first, ChunkMessage):
        rule, remedy = "a call must begin with what it asks for", "use the same release on both sides"
        raise RuleError(rule, got=f"a chunk of {len(first.data)} bytes", remedy=remedy)
    return first


async def read_body(context: Any, first: Any, max_bytes: int, limits: ServiceLimits) -> bytes:
    """Return a body whose first chunk has come.

    Args:
        max_bytes: most bytes that the body may have.
        limits: time limits: each chunk must come in ``timeout_s``, all of them in the time for ``max_bytes``.
    """
    body = Body(max_bytes)
    if not body.add(first):
        await read_chunks(context, body.add, max_bytes, limits)
    return body.joined()


async def read_chunks(context: Any, take: Callable[[Any], bool], max_bytes: int, limits: ServiceLimits) -> None:
    """Read chunks until a function has all of them.

    Args:
        take: function that takes a chunk and returns whether it was the last.
        max_bytes: most bytes of all chunks.
        limits: time limits: each chunk must come in ``timeout_s``, all of them in the time for ``max_bytes``.
    """
    seconds = limits.seconds_for(max_bytes)
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
