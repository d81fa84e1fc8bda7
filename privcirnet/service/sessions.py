"""Sessions: each is one stream, from the client's first message to its end.

It holds a place, the client's keys as the engine loaded them, its shares and one message; all of them go when it ends.
Work prepared with the client stays, for its next session. The engine works on all cores, so requests are computed one
at a time, in turn between clients.
"""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from grpc import aio

from privcirnet.errors import RuleError
from privcirnet.he.layers.layer import MOST_IMAGES
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import ServedSession
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.offline.store import Binding
from privcirnet.service.limits import HANDSHAKE_S, ServiceLimits, ServiceState
from privcirnet.service.messages import Body, ChunkMessage, split
from privcirnet.service.prepared_workers import Lane
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.refusals import busy, garbled, late, stopping

R = TypeVar("R")


class RoundRobinExecutor:
    """A queue for each client, served round and round, by one thread.

    A client with many sessions gets no more turns than one with a single session. Each session waits for at most one
    turn, so the queue is as long as there are sessions.

    Args:
        waited: function called with the seconds that a request waited for its turn.
    """

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._busy, self._waited = False, waited
        self._engine = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="privcirnet turn")

    async def run(self, client: str, function: Callable[[], R], *, here: bool = False) -> R:
        """Return a function's result when it is the client's turn.

        Args:
            function: function to call in the worker's thread. It runs to its end even if nobody waits any more.
            here: whether to call it in the loop's thread if the engine is free, which blocks other calls: for a
                function that takes no longer than the two changes of threads that it saves.
        """
        if here and not self._busy:
            self._waited(0.0)
            return self._held(function)
        started = time.perf_counter()
        await self._turn(client)
        self._waited(time.perf_counter() - started)
        work = asyncio.get_running_loop().run_in_executor(self._worker, self._held, function)
        work.add_done_callback(self._done)
        return await asyncio.shield(work)

    def later(self, function: Callable[[], object]) -> None:
        """Call a function after the present computation, without waiting for it.

        Args:
            function: function that is quick and raises no error.
        """
        self._worker.submit(self._held, function)

    def close(self) -> None:
        """Wait for the present computation, and end the worker."""
        self._worker.shutdown()

    def _held(self, function: Callable[[], R]) -> R:
        """Return the result of a function that has the engine to itself."""
        with self._engine:
            return function()

    async def _turn(self, client: str) -> None:
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had just been given
                self._pass_on()
            raise

    def _done(self, work: "asyncio.Future[R]") -> None:
        if not work.cancelled():
            work.exception()  # whoever waited for it has it
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the client that has waited longest since its last one."""
        while self._waiting:
            client, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[client] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False


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


Finished = Callable[[ServedSession], object]
_QUICK_S = 0.02
"""Seconds of work for which all other calls may wait: the only session's requests are computed where they are read."""
_SOON_S = 60.0
"""Seconds after which other clients may have used their prepared work."""


class Sessions:
    """The sessions of a service.

    Args:
        finished: function called with a session after each of its inferences, in this process.

    Attributes:
        stopping: whether no image may begin any more.
    """

    def __init__(self, books: ServiceState, turns: RoundRobinExecutor, finished: Finished) -> None:
        self._books, self._turns, self._finished = books, turns, finished
        self._idle: set[asyncio.Timeout] = set()
        self._open: list[Conversation] = []
        self.stopping = False

    @property
    def open(self) -> int:
        """The number of open sessions."""
        return len(self._open)

    def stop(self) -> None:
        """End the sessions that are between two images; others end after theirs."""
        self.stopping = True
        for wait in self._idle:
            wait.reschedule(asyncio.get_running_loop().time())

    async def serve(
        self, client: str, catalogue: Catalogue, context: Any, admit: Callable[[], object] = lambda: None
    ) -> None:
        """Serve one session to its end.

        Args:
            admit: function that raises, at any request, if the client is not admitted any more.

        Raises:
            RuleError: the client broke a rule, or there is no room.
            ClientDisconnected: the client left.
        """
        books = self._books
        first = await read_opening(context, "a session's first message")
        offer = catalogue.find(first.program.name, first.program.version)
        if self.stopping:
            raise stopping()
        binding = Binding(offer.digest, client, first.owner or first.keys)
        with books.quotas.session(client, books.limits.sessions):
            keys = await asyncio.to_thread(books.store.load, client, first.keys) if first.keys else None
            work = books.prepared_work.of(binding, lambda: books.quotas.of(client).prepared)
            loading = partial(offer.server.session, keys, work, binding.owner)
            del keys
            try:
                session = await self._turns.run(client, loading)
            except RuleError:
                books.store.forget(client, first.keys)
                raise
            del loading
            lane = self._elsewhere(client, offer, first.keys, binding)
            await self._bounded(Conversation(client, offer, session, binding, context, admit, lane))

    def _elsewhere(self, client: str, offer: ProgramVersion, keys: bytes, binding: Binding) -> Lane | None:
        """Return the lane that does a session's offline work in place of this process."""
        books = self._books
        if books.workers is None or not keys:
            return None
        loading, store = partial(books.store.load, client, keys), books.prepared_work.of(binding)
        return books.workers.lane(offer, loading, store, binding.owner)

    async def _bounded(self, with_client: "Conversation") -> None:
        """Converse until the session's greatest age."""
        client, offer, context = with_client.client, with_client.offer, with_client.context
        books, facts = self._books, offer.facts
        books.metrics.opened.labels(offer.name).inc()
        books.metrics.sessions.inc()
        self._open.append(with_client)
        try:
            books.log.audit("session opened", client, **facts)
            async with asyncio.timeout(books.limits.age_s):
                await write_body(context, b"", books.limits)
                await self._converse(with_client)
        except TimeoutError:
            raise late("a session's end", books.limits.age_s) from None
        finally:
            self._open.remove(with_client)
            books.metrics.sessions.dec()
            self._turns.later(with_client.session.close)
            if with_client.lane:
                with_client.lane.close()
            books.log.audit("session closed", client, **facts)

    async def _converse(self, with_client: "Conversation") -> None:
        offer, session = with_client.offer, with_client.session
        running, context = with_client.running, with_client.context
        while True:
            request = await self._request(offer, context, between=not running)
            with_client.admit()
            offline = wire.is_offline(request)
            if offline not in running or wire.begins(request) == wire.PREPARE:
                running[offline] = self._begun(with_client, request)
            work = running[offline]
            seconds, reply = await self._answered(with_client, work, request, offline)
            offer.took[work.step] = seconds
            work.add(seconds, request, reply)
            if work.phase == wire.ONLINE and work.rounds == 1:
                self._taken(with_client, request, reply)
            if wire.ends(reply):  # the client may leave as soon as it has the reply
                self._note(with_client, work, reply)
                del running[offline]
            await write_body(context, reply, self._books.limits)
            self._measured(offer, seconds, request, reply)
            if wire.position_of(reply) == wire.OUTPUT:
                self._finished(session)

    async def _answered(
        self, with_client: "Conversation", work: "_Work", request: bytes, offline: bool
    ) -> tuple[float, bytes]:
        """Return (seconds of work, the reply), from this process or, without a turn, from the lane of offline work."""
        if offline and with_client.lane:
            started = time.perf_counter()
            reply = await with_client.lane.handle(request)
            return time.perf_counter() - started, reply
        offer, session = with_client.offer, with_client.session
        here = self.open == 1 and not offline and offer.took.get(work.step, _QUICK_S) < _QUICK_S
        return await self._turns.run(with_client.client, partial(_timed, session, request), here=here)

    def _begun(self, with_client: "Conversation", request: bytes) -> "_Work":
        """Count and log the work that a client begins, before anything of it is answered, or raise.

        With prepared work it was counted when it was prepared, and is written down when its serial is taken.
        """
        if self.stopping:
            raise stopping()
        client, facts = with_client.client, with_client.offer.facts
        quotas, log, phase = self._books.quotas, self._books.log, wire.begins(request)
        if phase == wire.PREPARE:
            count = correlated.read_count(request, MOST_IMAGES)
            size = self._room(with_client, count)
            quotas.images(client, count)
            log.record("preparation begun", client, **facts, count=count)
            return _Work(phase, count, size)
        if phase not in (wire.AGREE, wire.ONLINE):
            quotas.images(client)
            log.record("image begun", client, **facts)
        return _Work(phase)

    def _taken(self, with_client: "Conversation", request: bytes, reply: bytes) -> None:
        """Log an image that has taken prepared work, before anything of it is answered."""
        if wire.position_of(reply) != wire.ONLINE:  # else there was none
            serial = bytes(wire.unframe(request, wire.ONLINE, 2)[0]).hex()
            facts = with_client.offer.facts
            self._books.log.record("image begun", with_client.client, **facts, prepared=True, serial=serial)

    def _room(self, with_client: "Conversation", count: int) -> int:
        """Make room for some inferences beside those in preparation, or raise; return their bytes."""
        client, offer, binding = with_client.client, with_client.offer, with_client.binding
        prepared_work, quotas = self._books.prepared_work, self._books.quotas
        preparing = [(of.client, of.running[True]) for of in self._open if of is not with_client and True in of.running]
        same = sum(work.count for of, work in preparing if of == client)
        inference_bytes = offer.server.prepared_bytes(binding.owner)
        quotas.preparation(client, len(prepared_work.of(binding).serials()) + same, count)
        prepared_work.make_room(binding, quotas.of(client).prepared, count + same)
        size = count * inference_bytes
        if not prepared_work.fits(size + sum(work.size for _, work in preparing)):
            rule = f"a server must have room for prepared work, of {prepared_work.limit} bytes"
            raise busy(rule, f"{size} bytes more", _SOON_S)
        return size

    def _note(self, with_client: "Conversation", work: "_Work", reply: bytes) -> None:
        """Count and log work that has ended."""
        client, offer, session = with_client.client, with_client.offer, with_client.session
        phase, measured = work.phase, {"seconds": round(work.seconds, 3), "bytes": work.exchanged}
        books, facts = self._books, offer.facts
        for why in session.dropped:
            books.log.event("prepared work dropped", client=client, **facts, why=why)
        session.dropped.clear()
        if phase == wire.PREPARE:
            books.metrics.prepared.labels(offer.name).inc(work.count)
            books.log.audit("prepared", client, **facts, **measured, count=work.count)
        elif wire.position_of(reply) == wire.OUTPUT:
            books.metrics.images.labels(offer.name).inc()
            books.metrics.images_prepared.labels(offer.name).inc(phase == wire.ONLINE)
            how = {"prepared": True} if phase == wire.ONLINE else {}
            books.log.audit("image", client, **facts, **measured, **how)

    async def _request(self, offer: ProgramVersion, context: Any, between: bool = False) -> bytes:
        """Return the next request; ``between`` two images the service may stop instead."""
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

    def _measured(self, offer: ProgramVersion, seconds: float, request: bytes, reply: bytes) -> None:
        metrics = self._books.metrics
        metrics.work.labels(offer.name).observe(seconds)
        metrics.received.labels(offer.name).inc(len(request))
        metrics.sent.labels(offer.name).inc(len(reply))


@dataclass
class _Work:
    """The work for an image, or to prepare some.

    Attributes:
        phase: position of its first message.
        size: bytes of prepared work.
        exchanged: bytes both ways.
    """

    phase: int
    count: int = 0
    size: int = 0
    rounds: int = 0
    seconds: float = 0.0
    exchanged: int = 0

    @property
    def step(self) -> tuple[int, int]:
        """The next round; it is as much work in each image."""
        return self.phase, self.rounds

    def add(self, seconds: float, request: bytes, reply: bytes) -> None:
        self.rounds += 1
        self.seconds += seconds
        self.exchanged += len(request) + len(reply)


@dataclass(eq=False)
class Conversation:
    """A session of one client.

    Attributes:
        client: name of the client.
        binding: binding of its prepared work.
        admit: function that raises if the client is not admitted any more.
        lane: lane of its offline work; None: this process.
        running: present work: an image under False, offline work under True; the image may come between its rounds.
    """

    client: str
    offer: ProgramVersion
    session: ServedSession
    binding: Binding
    context: Any
    admit: Callable[[], object]
    lane: Lane | None = None
    running: dict[bool, _Work] = field(default_factory=dict[bool, _Work])


def _timed(session: ServedSession, request: bytes) -> tuple[float, bytes]:
    started = time.perf_counter()
    reply = session.handle(request)
    return time.perf_counter() - started, reply
