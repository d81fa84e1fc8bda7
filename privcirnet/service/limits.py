"""The limits of a service on its clients, numbers, durations and rates, and all its state about them.

Sizes of messages are the program's. Connections are held to these limits in :mod:`service.connections`.
"""

import resource
from collections.abc import Sequence
from dataclasses import dataclass, field

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.service.log import Log
from privcirnet.service.messages import TRANSPORT
from privcirnet.service.metrics import Metrics
from privcirnet.service.prepared_workers import PreparedWorkers
from privcirnet.service.quotas import Quotas
from privcirnet.service.store import KeyRegistry, KeyStore

HANDSHAKE_S = 10.0
"""Seconds for a connection's handshake and first call with a name together, and for the first message of a call."""
SLOWEST = 1 << 15
"""Least bytes a second: a peer that sends or takes a long message more slowly is disconnected."""
_IDLE_S = 300
"""Seconds after which a connection without a call is closed."""
_ALIVE_S = 30
"""Seconds of silence after which a connection's peer is pinged."""
_CALLS = 8
"""Most calls at once on one connection."""
_SPARE = 16
"""Connections of an address beyond four for each session: health checks, registrations, those not yet authenticated."""
_MOST = 1024
"""Most connections of all addresses, unless the system lets a process open fewer files."""


@dataclass(frozen=True)
class ServiceLimits:
    """The limits of a service on clients and their delays.

    Attributes:
        sessions: most sessions at once; further clients are told when to come again.
        timeout_s: seconds for which a client may be silent, or take nothing.
        age_s: seconds after which a session ends, however busy.
        grace_s: seconds that images may take to end when the service stops.
        connections: most connections of one address at once; 0: four for each session, and a few.
    """

    sessions: int = 4
    timeout_s: float = 120.0
    age_s: float = 3600.0
    grace_s: float = 30.0
    connections: int = 0

    def __post_init__(self) -> None:
        if self.connections < 0:
            rule, remedy = "an address must have a number of connections", "use 0 for four for each session, and a few"
            raise RuleError(rule, got=f"connections={self.connections}", remedy=remedy)

    @property
    def of_address(self) -> int:
        """The most connections of one address at once."""
        return self.connections or 4 * self.sessions + _SPARE

    @property
    def most(self) -> int:
        """The most connections of all addresses at once."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = max(_MOST, 2 * self.of_address)
        return limit if files == resource.RLIM_INFINITY else min(limit, files // 2)

    def seconds_for(self, size: int) -> float:
        """Return the most seconds that a whole message may take on its way; ``size``: its most bytes."""
        return self.timeout_s + size / SLOWEST

    def options(self) -> Sequence[tuple[str, int]]:
        """The options of gRPC's server. They hold before a client is authenticated."""
        return (
            ("grpc.so_reuseport", 0),  # two servers at one port are a mistake
            *TRANSPORT,
            ("grpc.max_concurrent_streams", _CALLS),
            ("grpc.max_allowed_incoming_connections", self.most),
            ("grpc.server_handshake_timeout_ms", int(1500 * HANDSHAKE_S)),  # Connections comes first, and says so
            ("grpc.max_connection_idle_ms", 1000 * _IDLE_S),
            ("grpc.keepalive_time_ms", 1000 * _ALIVE_S),
            ("grpc.keepalive_timeout_ms", 1000 * _ALIVE_S),
            ("grpc.max_metadata_size", 1 << 13),
            ("grpc.absolute_max_metadata_size", 1 << 14),
        )


@dataclass(frozen=True)
class ServiceState:
    """The state of a service about its clients; by default in memory only.

    Attributes:
        quotas: quotas of each client.
        workers: workers that do offline work elsewhere; None: it is done here.
    """

    limits: ServiceLimits = field(default_factory=ServiceLimits)
    quotas: Quotas = field(default_factory=Quotas)
    store: KeyRegistry = field(default_factory=KeyStore)
    prepared_work: PreparedWork = field(default_factory=PreparedWork)
    log: Log = field(default_factory=Log)
    metrics: Metrics = field(default_factory=Metrics)
    workers: PreparedWorkers | None = None
