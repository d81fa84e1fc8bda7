"""gRPC's health protocol. Everyone who reaches the port may ask, so nobody can hold up others here, nor the end.

The servicer of grpcio-health-checking writes to each watcher under a lock that its shutdown waits for: one that takes
nothing keeps the server from ending.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from privcirnet.service.limits import ServiceLimits

_Response = health_pb2.HealthCheckResponse
_WATCHES, _WATCHES_EACH = 8, 4
"""Watches at once, of all and of one address."""


class Health(health_pb2_grpc.HealthServicer):
    """Says that some names are served, until :meth:`stop`.

    Args:
        limits: a watcher must take what it is told in ``timeout_s``, and watches ``age_s`` at most.
        refused: is told where a watch was refused from.
        staying: lets the connection of a watch stay open for as long as it.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        limits: ServiceLimits,
        refused: Callable[[str], object],
        staying: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._names, self._limits, self._refused, self._staying = names, limits, refused, staying
        self._watches, self._stopping = Counter[str](), asyncio.Event()

    def add_to(self, server: Any) -> None:
        """Answer at a server of gRPC; ``server``: that has not started."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    def stop(self) -> None:
        """Say from now on that nothing is served, and tell who watches."""
        self._stopping.set()

    async def Check(self, request: Any, context: Any) -> Any:
        """Return whether a name is served, as gRPC's health protocol has it."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._found(request.service)

    async def Watch(self, request: Any, context: Any) -> None:
        """Say it now, and when it changes, which it does once."""
        address = context.peer().rpartition(":")[0]
        if self._watches.total() >= _WATCHES or self._watches[address] >= _WATCHES_EACH:
            self._refused(context.peer())
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches: use Check")
        self._watches[address] += 1
        try:
            await self._tell(request, context)
            with self._staying(context.peer()):
                async with asyncio.timeout(self._limits.age_s):
                    await self._stopping.wait()
            await self._tell(request, context)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "watch again")
        finally:
            self._watches -= Counter([address])

    async def _tell(self, request: Any, context: Any) -> None:
        async with asyncio.timeout(self._limits.timeout_s):
            await context.write(self._found(request.service))

    def _found(self, name: str) -> Any:
        if name not in self._names:
            return _Response(status=_Response.SERVICE_UNKNOWN)
        return _Response(status=_Response.NOT_SERVING if self._stopping.is_set() else _Response.SERVING)
