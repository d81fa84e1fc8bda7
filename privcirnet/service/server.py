"""The service itself: a server of gRPC in a loop of its own, its methods, health, and a graceful end.

Everyone who reaches the port may ask for health, so nobody can hold up others there, nor the end: the servicer of
grpcio-health-checking writes to each watcher under a lock that its shutdown waits for, so that one who takes nothing
keeps the server from ending. The empty name and the service's say whether the server lives; :data:`ROOM` says whether a
new session would find a place, so that whoever spreads clients over replicas leaves this one out for a while.
"""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from privcirnet.errors import RuleError
from privcirnet.service import messages, refusals
from privcirnet.service.access import PLAIN_SERVER, ServerAccess
from privcirnet.service.address import check_free, is_loopback, show_address
from privcirnet.service.connections import Connections
from privcirnet.service.limits import HANDSHAKE_S, ServiceLimits, ServiceState
from privcirnet.service.messages import KEY_ID_BYTES, SERVICE, KeysKept, ProgramList
from privcirnet.service.programs import Catalogue
from privcirnet.service.quotas import Quota
from privcirnet.service.sessions import (
    ClientDisconnected,
    Finished,
    RoundRobinExecutor,
    Sessions,
    read_chunks,
    read_opening,
    write_body,
)

ROOM = "room"
_Response = health_pb2.HealthCheckResponse
_LOOK_S = 1.0
"""Seconds for which an answer about room is reused, and from one look of a watch to the next."""
_WATCHES, _WATCHES_EACH = 8, 4
"""Most watches at once, of all addresses and of one."""


class Health(health_pb2_grpc.HealthServicer):
    """A health servicer of some names, until :meth:`stop`.

    Args:
        room: function that tells whether a new session would find a place; it may be slow, and runs in another thread.
        limits: limits of a watcher, which must take each status in ``timeout_s``, and watches ``age_s`` at most.
        refused: function called with the peer of a refused watch.
        staying: context that keeps the connection of a watch open.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        room: Callable[[], bool],
        limits: ServiceLimits,
        refused: Callable[[str], object],
        staying: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._names, self._room, self._limits = (*names, ROOM), room, limits
        self._refused, self._staying = refused, staying
        self._looked = 0.0
        self._look: asyncio.Task[bool] | None = None
        self._watches, self._stopping = Counter[str](), asyncio.Event()

    def add_to(self, server: Any) -> None:
        """Answer at a server of gRPC that has not started."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    def stop(self) -> None:
        """Report from now on that nothing is served, also to watchers."""
        self._stopping.set()

    async def Check(self, request: Any, context: Any) -> Any:
        """Return whether a name is served, in gRPC's health protocol."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return await self._found(request.service)

    async def Watch(self, request: Any, context: Any) -> None:
        """Report the status now, and whenever it changes, until nothing is served any more."""
        address = context.peer().rpartition(":")[0]
        if self._watches.total() >= _WATCHES or self._watches[address] >= _WATCHES_EACH:
            self._refused(context.peer())
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches: use Check")
        self._watches[address] += 1
        try:
            with self._staying(context.peer()):
                async with asyncio.timeout(self._limits.age_s):
                    await self._tell_changes(request.service, context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "watch again")
        finally:
            self._watches -= Counter([address])

    async def _tell_changes(self, name: str, context: Any) -> None:
        reported = None
        while True:
            last, status = self._stopping.is_set(), await self._found(name)
            if status != reported:
                async with asyncio.timeout(self._limits.timeout_s):
                    await context.write(status)
            if last:
                return
            reported = status
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_S)

    async def _found(self, name: str) -> Any:
        if name not in self._names:
            return _Response(status=_Response.SERVICE_UNKNOWN)
        serves = not self._stopping.is_set() and (name != ROOM or await self._has_room())
        return _Response(status=_Response.SERVING if serves else _Response.NOT_SERVING)

    async def _has_room(self) -> bool:
        """Return whether there is room, with one look for all simultaneous requests: more do not load the state."""
        if self._look is None or (self._look.done() and time.monotonic() - self._looked >= _LOOK_S):
            self._looked = time.monotonic()
            self._look = asyncio.create_task(asyncio.to_thread(self._room))
        return await asyncio.shield(self._look)


Handler = Callable[[str, Any, Any], Awaitable[Any]]
"""Function (client's name, request of a unary call, gRPC's context) -> response of a unary call."""


class Calls:
    """The calls to a service: client, request and outcome of each.

    Args:
        connections: connections of the service; calls say which of them may stay.

    Attributes:
        catalogue: programs on offer; may be replaced: sessions keep theirs.
        access: access rules; may be replaced, for the calls to come.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        access: ServerAccess,
        books: ServiceState,
        sessions: Sessions,
        connections: Connections,
    ) -> None:
        self.catalogue, self.access = catalogue, access
        self._books, self._sessions, self._connections = books, sessions, connections
        self._registering = Counter[str]()

    def handlers(self) -> Any:
        """Return gRPC's handlers of all methods."""
        by_name: dict[str, Handler] = {
            "Programs": self._programs,
            "Describe": self._describe,
            "FindKeys": self._find_keys,
            "RegisterKeys": self._register_keys,
            "Session": self._session,
        }
        handlers: dict[str, Any] = {}
        for name, method in messages.METHODS.items():
            make = getattr(grpc, f"{method.shape}_rpc_method_handler")
            guarded = self._guarded(name, by_name[name])
            handlers[name] = make(guarded, method.read_request, messages.write)
        return grpc.method_handlers_generic_handler(messages.SERVICE, handlers)

    def unwatched(self, peer: str) -> None:
        """Note that a watch of the server's health was refused."""
        self._books.log.event("refused", peer=peer, call="Watch", why="too many watches of the server's health")
        self._books.metrics.refused.labels(grpc.StatusCode.RESOURCE_EXHAUSTED.name).inc()

    def _guarded(self, name: str, handler: Handler) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return a handler that knows the client and ends a call with a reason, whatever happens."""

        async def handle(request: Any, context: Any) -> Any:
            client = ""
            try:
                client = self.access.name_of(context)
                self._books.quotas.admit(client)
                self._connections.know(context.peer())
                if request is None:
                    raise refusals.garbled()
                return await handler(client, request, context)
            except ClientDisconnected:
                return None
            except RuleError as broken:
                error = broken
                self._books.log.event("refused", client=client, peer=context.peer(), call=name, why=str(broken))
            except refusals.Unwritten as problem:
                error = refusals.failure()
                self._books.metrics.unwritten.inc()
                self._books.log.event("nothing is answered", client=client, call=name, why=str(problem))
            except Exception:
                error = refusals.failure()
                self._books.log.event("the server failed", client=client, call=name, why=traceback.format_exc())
            status, text, trailing = refusals.packed(error)
            self._books.metrics.refused.labels(status.name).inc()
            await context.abort(status, text, trailing)

        return handle

    async def _programs(self, client: str, request: Any, context: Any) -> Any:
        offers = self.catalogue.offers
        return ProgramList(programs=[messages.Program(name=o.name, version=o.version) for o in offers])

    async def _describe(self, client: str, request: Any, context: Any) -> None:
        offer = self.catalogue.find(request.name, request.version)
        await write_body(context, offer.greeting, self._books.limits)

    async def _find_keys(self, client: str, request: Any, context: Any) -> Any:
        return self._kept(client, request.id)

    async def _register_keys(self, client: str, request: Any, context: Any) -> Any:
        first = await read_opening(context, "the first message of a registration")
        max_bytes = self.catalogue.find(first.program.name, first.program.version).most.keys
        if len(first.id) != KEY_ID_BYTES:
            rule, remedy = "keys must be announced by their SHA-256", "use the same release on both sides"
            raise RuleError(rule, got=f"{len(first.id)} bytes", remedy=remedy)
        books = self._books
        if books.store.seconds_left(client, first.id) <= 0:
            await self._receive(client, first.id, max_bytes, context)
        return self._kept(client, first.id)

    async def _receive(self, client: str, key_id: bytes, max_bytes: int, context: Any) -> None:
        books, quota = self._books, self._books.quotas.of(client).keys
        if self._registering[client] >= quota:
            raise refusals.busy(f"a client registers at most {quota} sets of keys at once", "one more", HANDSHAKE_S)
        registration = books.store.receive(client, key_id, max_bytes, quota)
        self._registering[client] += 1
        try:
            await read_chunks(context, registration.add, max_bytes, books.limits)
            await asyncio.to_thread(registration.settle)
            books.log.audit("keys registered", client, keys=key_id.hex()[:16])
            registration.finish()
        except ClientDisconnected:
            rule, remedy = "a registration must be whole", "send all of the keys"
            raise RuleError(rule, got=f"{registration.size} bytes", remedy=remedy) from None
        finally:
            registration.cancel()
            self._registering -= Counter([client])

    def _kept(self, client: str, key_id: bytes) -> Any:
        seconds = self._books.store.seconds_left(client, key_id)
        return KeysKept(found=seconds > 0, seconds_left=max(int(seconds), 0))

    async def _session(self, client: str, request: Any, context: Any) -> None:
        await self._sessions.serve(client, self.catalogue, context, partial(self._admit, client, context))

    def _admit(self, client: str, context: Any) -> None:
        """Raise unless a session's client would be admitted now, too: a reload may have shut it out."""
        if self.access.name_of(context) != client:
            raise refusals.stranger("what another client shows now")
        self._books.quotas.admit(client)


T = TypeVar("T")


class Reloaded(NamedTuple):
    """The new state of a service after a reload.

    Attributes:
        quotas: (quota of clients without one of their own, quotas by a client's name); None: as before.
    """

    catalogue: Catalogue
    access: ServerAccess
    quotas: tuple[Quota, Mapping[str, Quota]] | None = None


Reload = Callable[[Catalogue], Reloaded]
"""Function (programs on offer) -> new state. It may take long; it runs beside the service."""
_POLL_S, _LAST_S, _AT_END_S = 0.05, 0.5, 10.0
"""Seconds between two looks at open sessions, for the last messages to arrive, and for calls that are cut then."""


class Service:
    """A server on a network. It listens as soon as it is made, and answers while it runs.

    Args:
        address: host and port to listen at; port 0 takes a free one.
        access: access rules; plain on loopback only.
        reload: function for :meth:`reload`.
        finished: function called with a session after each of its inferences, in this process. It is for a harness
            that audits both parties; no message from a client reaches it.

    Attributes:
        address: host and port, as a client can reach them.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        address: tuple[str, int] = ("127.0.0.1", 0),
        access: ServerAccess = PLAIN_SERVER,
        books: ServiceState | None = None,
        reload: Reload | None = None,
        finished: Finished = lambda session: None,
    ) -> None:
        if access.credentials is None and not is_loopback(address[0]):
            remedy = "use tls=trial or tls=DIR, or host=127.0.0.1"
            raise RuleError("a server must use TLS beyond loopback", got=show_address(address), remedy=remedy)
        self._books, self._reloader = books or ServiceState(), reload
        self._turns = RoundRobinExecutor(self._books.metrics.waiting.observe)
        self._sessions = Sessions(self._books, self._turns, finished)
        self._connections = Connections(self._books.limits, self._books.log, self._books.metrics)
        self._calls = Calls(catalogue, access, self._books, self._sessions, self._connections)
        self._books.metrics.watch(lambda: self._books.store.size, lambda: self._books.prepared_work.size)
        self._retain()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None
        self._health = Health(
            ("", SERVICE), self._room, self._books.limits, self._calls.unwatched, self._connections.staying
        )
        self._server, self._probes = self._awaited(self._served(self._calls.handlers())), None
        try:
            self.address = address[0], self._bound(address, access)
        except RuleError:
            self._awaited(self._server.stop(0))
            self._loop.close()
            raise

    @property
    def sessions(self) -> int:
        """The number of open sessions."""
        return self._sessions.open

    def answer_probes(self, address: tuple[str, int]) -> int:
        """Answer health checks in plain text at an address of its own, for probes that speak no TLS.

        Nothing else is there, and whoever reaches it learns no more than whether the service lives and is full.

        Args:
            address: host and port; port 0 takes a free one.

        Returns:
            The port.
        """
        check_free(address)
        self._probes = self._awaited(self._served())
        return self._probes.add_insecure_port(show_address(address))

    def run(self) -> None:
        """Serve until :meth:`stop`, or until this thread is interrupted; then end all calls."""
        main = self._loop.create_task(self._run())
        try:
            self._loop.run_until_complete(main)
        except KeyboardInterrupt:
            self._ended.set()
            self._loop.run_until_complete(main)
        finally:
            self._turns.close()
            self._loop.close()

    def stop(self) -> None:
        """Make :meth:`run` return, from any thread: images end, and no more begin."""
        self._from_outside(self._ended.set)

    def reload(self) -> None:
        """Replace programs, access and quotas, from any thread; sessions keep theirs."""
        self._from_outside(self._begin_reload)

    def _from_outside(self, function: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _awaited(self, steps: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a thread of its own and wait: a loop may run in this one, as in a notebook."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._loop.run_until_complete, steps).result()

    def _room(self) -> bool:
        return self._books.quotas.room(self._books.limits.sessions)

    async def _served(self, *handlers: Any) -> Any:
        """Return a gRPC server of some handlers and of health checks."""
        server = grpc.aio.server(options=self._books.limits.options())
        server.add_generic_rpc_handlers(handlers)
        self._health.add_to(server)
        return server

    def _bound(self, address: tuple[str, int], access: ServerAccess) -> int:
        check_free(address)  # gRPC says it too, after a line of its own on stderr
        if access.credentials is None:
            return self._server.add_insecure_port(show_address(address))
        return self._server.add_secure_port(show_address(address), access.credentials)

    async def _run(self) -> None:
        await self._server.start()
        if self._probes:
            await self._probes.start()
        watch = self._loop.create_task(self._connections.keep(self.address[1]))
        await self._ended.wait()
        watch.cancel()
        self._sessions.stop()
        self._health.stop()
        grace_s = self._books.limits.grace_s
        end, refusing = time.monotonic() + grace_s, self._loop.create_task(self._server.stop(grace_s + _AT_END_S))
        while self._sessions.open and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
        with suppress(TimeoutError):  # a peer that takes nothing holds nobody up
            await asyncio.wait_for(asyncio.gather(refusing, self._server.stop(_LAST_S)), _AT_END_S)
        if self._probes:
            await self._probes.stop(0)
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=_AT_END_S)

    def _retain(self) -> None:
        """Drop the prepared work of withdrawn programs, and have workers hold those on offer."""
        offers = self._calls.catalogue.offers
        self._books.prepared_work.retain([offer.digest for offer in offers])
        if self._books.workers:
            self._books.workers.renew(offers)

    def _begin_reload(self) -> None:
        if self._reloader is None or (self._reloading and not self._reloading.done()):
            self._books.log.event(
                "nothing is reloaded", why="it is going on" if self._reloader else "nothing to reload"
            )
        else:
            self._reloading = self._loop.create_task(self._reload(self._reloader))

    async def _reload(self, reload: Reload) -> None:
        try:
            reloaded = await self._loop.run_in_executor(None, reload, self._calls.catalogue)
            access = self._calls.access.renewed(reloaded.access)
        except Exception as error:  # whatever files hold
            why = str(error) if isinstance(error, RuleError) else f"{type(error).__name__}: {error}"
            self._books.log.event("nothing is reloaded", why=why)
            return
        self._calls.catalogue, self._calls.access = reloaded.catalogue, access
        if reloaded.quotas:
            self._books.quotas.change(*reloaded.quotas)
        try:
            await self._loop.run_in_executor(None, self._retain)
        except RuleError as error:
            self._books.log.event("not all of other programs is dropped", why=str(error))
        offers = [f"{offer.name} {offer.version}" for offer in self._calls.catalogue.offers]
        self._books.log.event("reloaded", programs=", ".join(offers))
