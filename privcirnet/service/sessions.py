"""Sessions: each is one stream, from the client's first message to whatever ends it.

It holds a place, the client's keys as the engine loaded them, its shares and one message; all of them go when it ends.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.server import Session
from privcirnet.service.books import Books
from privcirnet.service.programs import Catalogue, Offer
from privcirnet.service.refusals import late, stopping
from privcirnet.service.streams import read, read_body, read_opening, write_body
from privcirnet.service.turns import Turns

Finished = Callable[[Session], object]


class Sessions:
    """All sessions of a service.

    Args:
        books: limits, keys, quotas, log and metrics.
        turns: at the engine.
        finished: called with a session after each of its inferences, in this process.

    Attributes:
        stopping: whether no image may begin any more.
    """

    def __init__(self, books: Books, turns: Turns, finished: Finished) -> None:
        self._books, self._turns, self._finished = books, turns, finished
        self._idle: set[asyncio.Timeout] = set()
        self._open = 0
        self.stopping = False

    @property
    def open(self) -> int:
        """Sessions that are open."""
        return self._open

    def stop(self) -> None:
        """End the sessions that are between two images; others end after theirs."""
        self.stopping = True
        for wait in self._idle:
            wait.reschedule(asyncio.get_running_loop().time())

    async def serve(self, client: str, catalogue: Catalogue, context: Any) -> None:
        """Serve one session to its end.

        Args:
            client: what it is called.
            catalogue: what is offered now.
            context: gRPC's.

        Raises:
            RuleError: the client broke a rule, or there is no room.
            HungUp: the client left.
        """
        books = self._books
        first = await read_opening(context, "a session's first message")
        offer = catalogue.find(first.program.name, first.program.version)
        if self.stopping:
            raise stopping()
        with books.quotas.session(client, books.limits.sessions):
            keys = books.store.load(client, first.keys)
            loading = partial(offer.server.session, keys)
            del keys
            try:
                session = await self._turns.run(client, loading)
            except RuleError:
                books.store.forget(client, first.keys)
                raise
            del loading
            await self._bounded(client, offer, session, context)

    async def _bounded(self, client: str, offer: Offer, session: Session, context: Any) -> None:
        """Converse until the session's greatest age."""
        books, facts = self._books, {"program": offer.name, "version": offer.version}
        books.log.audit("session opened", client, **facts)
        books.metrics.opened.labels(offer.name).inc()
        books.metrics.sessions.inc()
        self._open += 1
        try:
            async with asyncio.timeout(books.limits.age_s):
                await write_body(context, b"", books.limits)
                await self._converse(client, offer, session, context)
        except TimeoutError:
            raise late("a session's end", books.limits.age_s) from None
        finally:
            self._open -= 1
            books.metrics.sessions.dec()
            books.log.audit("session closed", client, **facts)
            self._turns.later(session.close)

    async def _converse(self, client: str, offer: Offer, session: Session, context: Any) -> None:
        while True:
            request = await self._request(offer, context, between=True)
            self._books.quotas.image(client)
            work, exchanged, done = 0.0, 0, False
            while not done:
                seconds, reply = await self._turns.run(client, partial(_timed, session, request))
                work, exchanged = work + seconds, exchanged + len(request) + len(reply)
                self._measured(offer, seconds, request, reply)
                done = wire.position_of(reply) == wire.OUTPUT
                if done:  # the client may leave as soon as it has the reply
                    self._books.metrics.images.labels(offer.name).inc()
                    facts = {"program": offer.name, "version": offer.version}
                    self._books.log.audit("image", client, **facts, seconds=round(work, 3), bytes=exchanged)
                await write_body(context, reply, self._books.limits)
                if not done:
                    request = await self._request(offer, context)
            self._finished(session)

    async def _request(self, offer: Offer, context: Any, between: bool = False) -> bytes:
        """The next request; ``between`` two images the service may stop instead."""
        limits = self._books.limits
        if not between:
            first = await read(context, limits.timeout_s)
        else:
            first = await self._first_of_image(context)
        return await read_body(context, first, offer.most.request, limits)

    async def _first_of_image(self, context: Any) -> Any:
        if self.stopping:
            raise stopping()
        wait: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(self._books.limits.timeout_s) as wait:
                self._idle.add(wait)
                return await read(context, 2 * self._books.limits.timeout_s)
        except TimeoutError:
            raise stopping() if self.stopping else late("the next message", self._books.limits.timeout_s) from None
        finally:
            if wait is not None:
                self._idle.discard(wait)

    def _measured(self, offer: Offer, seconds: float, request: bytes, reply: bytes) -> None:
        metrics = self._books.metrics
        metrics.work.labels(offer.name).observe(seconds)
        metrics.received.labels(offer.name).inc(len(request))
        metrics.sent.labels(offer.name).inc(len(reply))


def _timed(session: Session, request: bytes) -> tuple[float, bytes]:
    started = time.perf_counter()
    reply = session.handle(request)
    return time.perf_counter() - started, reply
