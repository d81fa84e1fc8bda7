"""The state of a service from serve.py's settings: kept by one server, or shared by replicas."""

import os
import socket
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from privcirnet.config import ServeConfig
from privcirnet.he.protocol.offline.prepared_work import PreparedWork
from privcirnet.he.protocol.offline.store_files import FolderLockedError
from privcirnet.he.system.private_folder import private_folder
from privcirnet.service.books import ServiceState
from privcirnet.service.counts import Ledger, LocalLedger
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.log import Log, Write, appending
from privcirnet.service.prepared_workers import ActorOptions, PreparedWorkers
from privcirnet.service.quotas import Quotas
from privcirnet.service.shared.inventory import SharedInventory
from privcirnet.service.shared.keys import SharedKeys
from privcirnet.service.shared.ledger import SharedLedger
from privcirnet.service.shared.link import RedisConnection, is_url
from privcirnet.service.store import KeyRegistry, KeyStore

_NAME = "privcirnet"
"""What all keys in a Redis begin with."""


def books_of(config: ServeConfig, stack: ExitStack, write: Write) -> ServiceState:
    """Return a service's state; ``stack`` closes its resources.

    Raises:
        RuleError: a folder is not this user's own, or Redis or Ray is out of reach.
    """
    workers = _workers(config, stack)
    return replace((_shared if is_url(config.state) else _own)(config, stack, write), workers=workers)


def _workers(config: ServeConfig, stack: ExitStack) -> PreparedWorkers | None:
    """Return the workers that prepare in place of this process."""
    if not config.prepared_workers:
        return None
    how = ActorOptions(config.engine, config.weights_gb / max(len(config.programs), 1))
    workers = PreparedWorkers(config.prepared_workers, config.prepared_actors, how)
    stack.callback(workers.close)
    return workers


def _own(config: ServeConfig, stack: ExitStack, write: Write) -> ServiceState:
    """Return the state of this server alone: in a folder, or in memory."""
    state = Path(config.state) if config.state else None
    if state is not None:
        private_folder(state)
    ledger = LocalLedger(state and state / "images.sqlite")
    stack.callback(ledger.close)
    log = Log(write, config.log, appending(state / "audit.jsonl") if state else None)
    prepared_work = _own_prepared_work(config, state, log)
    stack.callback(prepared_work.close)
    return _books(config, ledger, KeyStore(config.keys, state and state / "keys"), prepared_work, log)


def _own_prepared_work(config: ServeConfig, state: Path | None, log: Log) -> PreparedWork:
    """Return the store of prepared work: in its folder, unless another server of the same state has it."""
    note, limit, days = partial(_note, log, "prepared work"), int(1e9 * config.prepared_gb), config.keys.days
    named = Path(config.prepared_folder) if config.prepared_folder else None
    claims = Path(config.prepared_claims) if config.prepared_claims else None
    try:
        return PreparedWork(named or (state and state / "prepared"), limit, days, note, claims=claims)
    except FolderLockedError as error:
        if named:
            raise
        note(f"kept in memory: {error}")
        return PreparedWork(None, limit, days, note)


def _shared(config: ServeConfig, stack: ExitStack, write: Write) -> ServiceState:
    """Return the state that all replicas share in Redis; the audit log is this replica's part of it."""
    link = RedisConnection(config.state, _NAME, partial(_note, Log(write, config.log), "shared state"))
    stack.callback(link.close)
    audits = Path(config.root) / "service"
    private_folder(audits)
    audit = appending(audits / f"audit-{socket.gethostname()}-{os.getpid()}.jsonl")
    log = Log(write, config.log, audit, number=link.number)
    ledger, keys = SharedLedger(link), SharedKeys(config.keys, link)
    stack.callback(keys.close)
    stack.callback(ledger.close)
    folder, note = (
        Path(config.prepared_folder) if config.prepared_folder else None,
        partial(_note, log, "prepared work"),
    )
    inventory = SharedInventory(link, folder is not None, config.keys.days)
    prepared_work = PreparedWork(folder, int(1e9 * config.prepared_gb), config.keys.days, note, inventory=inventory)
    stack.callback(prepared_work.close)
    return _books(config, ledger, keys, prepared_work, log)


def _books(
    config: ServeConfig, ledger: Ledger, keys: KeyRegistry, prepared_work: PreparedWork, log: Log
) -> ServiceState:
    return ServiceState(
        limits=ServiceLimits(config.sessions, config.timeout_s, config.age_s, config.grace_s, config.connections),
        quotas=Quotas(config.quota, config.quotas, ledger),
        store=keys,
        prepared_work=prepared_work,
        log=log,
    )


def _note(log: Log, what: str, why: str) -> None:
    log.event(what, why=why)
