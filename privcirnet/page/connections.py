"""Connections with a deadline for requests: silent ones would keep the page's own browser out.

uvicorn ends a connection that is idle after an answer. It waits for ever for one that has sent nothing yet, or half a
request, and counts all of them.
"""

from asyncio import BaseTransport, TimerHandle
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS: dict[Any, float] = {h11.IDLE: 5.0, h11.SEND_BODY: 120.0}
"""Seconds for the start of a request, and for an image, which may come through a tunnel."""


class TimeoutProtocol(H11Protocol):
    """A connection that is closed if a request is not whole in time. An answer may take as long as it takes."""

    _awaited: Any = None
    _deadline: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Start to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait_for(self.conn.their_state)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._wait_for(self.conn.their_state)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._wait_for(None)
        super().connection_lost(exc)

    def _wait_for(self, state: Any) -> None:
        """Set the deadline of the client's next part, once."""
        if state is self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        seconds, self._awaited = SECONDS.get(state), state
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
