"""Metrics for Prometheus, at a port of their own."""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.process_collector import ProcessCollector

from privcirnet.errors import RuleError
from privcirnet.service.refusals import SharedStateUnavailableError

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Metrics:
    """The metrics of a service. No label names a client: there may be many, and the audit log has them.

    Attributes:
        registry: registry of all metrics.
        opened: sessions so far, by program.
        images: images that ended, by program.
        images_prepared: ended images with prepared work, by program.
        prepared: inferences that were prepared, by program.
        refused: refused calls, by status.
        closed: closed connections of strangers, or too many of one address, by reason.
        unwritten: calls without an answer, because they could not be counted or audited.
        received: bytes of requests, by program.
        sent: bytes of replies, by program.
        waiting: seconds that a request waited for its turn.
        work: seconds that a request was computed, by program.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def named(kind: Any, name: str, about: str, *labels: str, **more: Any) -> Any:
            return kind(name, about, labels, namespace="privcirnet", registry=registry, **more)

        self.sessions = named(Gauge, "sessions", "Sessions that are open")
        self.opened = named(Counter, "sessions_opened", "Sessions that were opened", "program")
        self.images = named(Counter, "images", "Images that were answered", "program")
        self.images_prepared = named(Counter, "images_prepared", "Those of them with prepared work", "program")
        self.prepared = named(Counter, "prepared", "Inferences that were prepared", "program")
        self.refused = named(Counter, "refused", "Calls that were refused", "status")
        self.connections = named(Gauge, "connections", "Connections that are open")
        self.closed = named(Counter, "connections_closed", "Connections that could not stay", "why")
        self.unwritten = named(Counter, "unwritten", "Calls that could not be counted or audited, and got no answer")
        self.received = named(Counter, "received_bytes", "Bytes of requests", "program")
        self.sent = named(Counter, "sent_bytes", "Bytes of replies", "program")
        self.waiting = named(Histogram, "turn_seconds", "Seconds that a request waited for its turn", buckets=_SECONDS)
        self.work = named(Histogram, "work_seconds", "Seconds that a request was computed", "program", buckets=_SECONDS)
        self._keys = named(Gauge, "keys_bytes", "Bytes of registered keys")
        self._prepared_work = named(Gauge, "prepared_bytes", "Bytes of prepared work")
        ProcessCollector(registry=registry)

    def watch(self, keys: Callable[[], float], prepared_work: Callable[[], float]) -> None:
        """Report the bytes that are kept for clients; no number while they cannot be read."""
        self._keys.set_function(partial(_known, keys))
        self._prepared_work.set_function(partial(_known, prepared_work))

    def listen(self, host: str, port: int) -> "Listening":
        """Return the server of the metrics at http://host:port/metrics, for everyone who reaches it; 0: a free port."""
        try:
            server, thread = start_http_server(port, host, registry=self.registry)
        except OSError as problem:
            got, remedy = f"{host}:{port}: {problem.strerror or problem}", "choose another metrics="
            raise RuleError("metrics must have a port of their own", got=got, remedy=remedy) from None
        return Listening(server, thread)


def _known(size: Callable[[], float]) -> float:
    try:
        return size()
    except SharedStateUnavailableError:
        return math.nan


class Listening:
    """The port of the metrics."""

    def __init__(self, server: Any, thread: threading.Thread) -> None:
        self._server, self._thread = server, thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
