"""The methods of inference.proto on the server's side, but for sessions."""

import asyncio
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc

from privcirnet.errors import RuleError
from privcirnet.service import messages, refusals
from privcirnet.service.access import ServerAccess
from privcirnet.service.books import ServiceState
from privcirnet.service.connections import Connections
from privcirnet.service.limits import HANDSHAKE_S
from privcirnet.service.messages import KEY_ID_BYTES, KeysKept, ProgramList
from privcirnet.service.programs import Catalogue
from privcirnet.service.sessions import Sessions
from privcirnet.service.streams import ClientDisconnected, read_chunks, read_opening, write_body

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
