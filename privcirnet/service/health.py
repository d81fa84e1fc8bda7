"""gRPC's health protocol. Everyone who reaches the port may ask, so nobody can hold up others here, nor the end.

The empty name and the service's say whether the server lives; :data:`ROOM` says whether a new session would find a
place, so that whoever spreads clients over replicas leaves this one out for a while.

The servicer of grpcio-health-checking writes to each watcher under a lock that its shutdown waits for: one that takes
nothing keeps the server from ending.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from privcirnet.service.limits import ServiceLimits

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
