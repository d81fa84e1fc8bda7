"""Sessions: each is one stream, from the client's first message to whatever ends it.

It holds a place, the client's keys as the engine loaded them, its shares and one message; all of them go when it ends.
What was prepared with the client stays, for its next session.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.encodings.stacking import MOST_IMAGES
from privcirnet.he.leveled.session import LeveledServer, LeveledSession
from privcirnet.he.protocol import prepared, wire
from privcirnet.he.protocol.server import Session
from privcirnet.he.protocol.store import Binding
from privcirnet.service.books import Books
from privcirnet.service.programs import Catalogue, Offer
from privcirnet.service.refusals import busy, late, stopping
from privcirnet.service.streams import read, read_body, read_opening, write_body
from privcirnet.service.turns import Turns

AnySession = Session | LeveledSession
Finished = Callable[[AnySession], object]
_QUICK_S = 0.02
"""Seconds of work for which all other calls may wait: the only session's requests are computed where they are read."""
_SOON_S = 60.0
"""Seconds after which others may have used what they prepared."""


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
        binding = Binding(offer.digest, client, first.owner or first.keys)
        with books.quotas.session(client, books.limits.sessions):
            keys = books.store.load(client, first.keys) if first.keys else None
            loading = partial(offer.server.session, keys, books.materials.of(binding), binding.owner)
            del keys
            try:
                session = await self._turns.run(client, loading)
            except RuleError:
                books.store.forget(client, first.keys)
                raise
            del loading
            await self._bounded(Conversation(client, offer, session, binding, context))

    async def _bounded(self, with_client: "Conversation") -> None:
        """Converse until the session's greatest age."""
        client, offer, session, _, context = with_client
        books, facts = self._books, {"program": offer.name, "version": offer.version}
        books.log.audit("session opened", client, **facts)
        books.metrics.opened.labels(offer.name).inc()
        books.metrics.sessions.inc()
        self._open += 1
        try:
            async with asyncio.timeout(books.limits.age_s):
                await write_body(context, b"", books.limits)
                await self._converse(with_client)
        except TimeoutError:
            raise late("a session's end", books.limits.age_s) from None
        finally:
            self._open -= 1
            books.metrics.sessions.dec()
            books.log.audit("session closed", client, **facts)
            self._turns.later(session.close)

    async def _converse(self, with_client: "Conversation") -> None:
        client, offer, session, _, context = with_client
        running, counted = dict[bool, _Work](), False  # work ahead, and an image that may come between two rounds of it
        while True:
            if not session.stocked:
                self._turns.spare(session.make_ahead)
            request = await self._request(offer, context, between=not running)
            ahead = wire.is_ahead(request)
            if ahead not in running or wire.begins(request) == wire.PREPARE:
                running[ahead] = self._begun(with_client, request, counted)
            work = running[ahead]
            here = self._open == 1 and not ahead and offer.took.get(work.step, _QUICK_S) < _QUICK_S
            seconds, reply = await self._turns.run(client, partial(_timed, session, request), here=here)
            offer.took[work.step] = seconds
            work.add(seconds, request, reply)
            if wire.ends(reply):  # the client may leave as soon as it has the reply
                self._note(with_client, work, reply)
                del running[ahead]
            await write_body(context, reply, self._books.limits)
            self._measured(offer, seconds, request, reply)
            if ahead not in running and not ahead:
                # an image that was begun with material that is not here goes on without it
                counted = wire.begins(reply) == wire.ONLINE or (counted and work.phase == wire.AGREE)
                if wire.position_of(reply) == wire.OUTPUT:
                    self._finished(session)

    def _begun(self, with_client: "Conversation", request: bytes, counted: bool) -> "_Work":
        """Raise unless a client may begin what it asks for; an image that is begun anew was ``counted``."""
        phase = wire.begins(request)
        if self.stopping:
            raise stopping()
        count = prepared.read_count(request, MOST_IMAGES) if phase == wire.PREPARE else 0
        if count:
            self._admit(with_client, count)
        elif phase != wire.AGREE and not wire.is_ahead(request) and not counted:
            self._books.quotas.image(with_client.client)
        return _Work(phase, count)

    def _admit(self, with_client: "Conversation", count: int) -> None:
        """Raise unless a client may prepare some inferences more, and make room for them."""
        client, offer, _, binding, _ = with_client
        materials, quotas = self._books.materials, self._books.quotas
        if isinstance(offer.server, LeveledServer):
            rule, remedy = "work can be done ahead of images of interactive programs alone", "send the image"
            raise RuleError(rule, got="a preparation", remedy=remedy)
        quotas.preparation(client, len(materials.of(binding).serials()), count)
        materials.make_room(binding, quotas.of(client).prepared, count)
        size = count * prepared.Form("server", offer.server.program, binding.owner).length
        if not materials.fits(size):
            rule = f"a server must have room for prepared material, of {materials.limit} bytes"
            raise busy(rule, f"{size} bytes more", _SOON_S)

    def _note(self, with_client: "Conversation", work: "_Work", reply: bytes) -> None:
        """Count and write down what has ended."""
        client, offer, session, _, _ = with_client
        phase, measured = work.phase, {"seconds": round(work.seconds, 3), "bytes": work.exchanged}
        books, facts = self._books, {"program": offer.name, "version": offer.version}
        for why in session.dropped:
            books.log.event("prepared material dropped", client=client, **facts, why=why)
        session.dropped.clear()
        if phase == wire.PREPARE:
            books.metrics.prepared.labels(offer.name).inc(work.count)
            books.log.audit("prepared", client, **facts, **measured, count=work.count)
        elif wire.position_of(reply) == wire.OUTPUT:
            books.metrics.images.labels(offer.name).inc()
            books.metrics.images_prepared.labels(offer.name).inc(phase == wire.ONLINE)
            how = {"prepared": True} if phase == wire.ONLINE else {}
            books.log.audit("image", client, **facts, **measured, **how)

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


@dataclass
class _Work:
    """What was done for an image, or to prepare some.

    Attributes:
        phase: what its first message began.
        count: of images that are prepared.
        rounds: so far.
        seconds: of work.
        exchanged: bytes both ways.
    """

    phase: int
    count: int
    rounds: int = 0
    seconds: float = 0.0
    exchanged: int = 0

    @property
    def step(self) -> tuple[int, int]:
        """Which round is next; it is as much work in each image."""
        return self.phase, self.rounds

    def add(self, seconds: float, request: bytes, reply: bytes) -> None:
        self.rounds += 1
        self.seconds += seconds
        self.exchanged += len(request) + len(reply)


class Conversation(NamedTuple):
    """One session of one client.

    Attributes:
        client: what it is called.
        offer: the program.
        session: the server's.
        binding: of the material that is prepared in it.
        context: gRPC's.
    """

    client: str
    offer: Offer
    session: AnySession
    binding: Binding
    context: Any


def _timed(session: AnySession, request: bytes) -> tuple[float, bytes]:
    started = time.perf_counter()
    reply = session.handle(request)
    return time.perf_counter() - started, reply
