"""The service itself: a server of gRPC in a loop of its own, health, a change of programs, and a graceful end."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import grpc

from privcirnet.errors import RuleError
from privcirnet.service.access import PLAIN_SERVER, ServerAccess
from privcirnet.service.address import check_free, is_loopback, show_address
from privcirnet.service.books import ServiceState
from privcirnet.service.calls import Calls
from privcirnet.service.connections import Connections
from privcirnet.service.health import Health
from privcirnet.service.messages import SERVICE
from privcirnet.service.programs import Catalogue
from privcirnet.service.quotas import Quota
from privcirnet.service.sessions import Finished, Sessions
from privcirnet.service.turns import RoundRobinExecutor

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
