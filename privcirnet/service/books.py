"""The state of a service about its clients: limits, keys, prepared work, quotas, log and metrics."""

from dataclasses import dataclass, field

from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.log import Log
from privcirnet.service.metrics import Metrics
from privcirnet.service.prepared_workers import PreparedWorkers
from privcirnet.service.quotas import Quotas
from privcirnet.service.store import KeyRegistry, KeyStore


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
