"""Serve programs to clients over gRPC. `privcirnet serve --help`.

Programs come from their folders, also while they are served. What the service knows of its clients is kept by one
server, or shared by replicas.
"""

import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from privcirnet.artifact.folder import CKKS, format_of, read_signature
from privcirnet.artifact.program import read_ckks, read_program
from privcirnet.cli.console import as_started, console, inference_bar, progress_bar, show
from privcirnet.cli.settings import again, script
from privcirnet.config import ServeConfig
from privcirnet.config.checks import check_place
from privcirnet.errors import RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.program.program import Program
from privcirnet.he.program.signature import PublicKey, pinned
from privcirnet.he.protocol.interface import Served
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.offline.store_files import FolderLockedError
from privcirnet.he.protocol.one_message.session import OneMessageServer
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.system import threads
from privcirnet.he.system.files import private_folder
from privcirnet.he.system.process import peak_bytes
from privcirnet.runs.memory import check_sessions
from privcirnet.runs.parties import rehearse
from privcirnet.service.access import ServerAccess
from privcirnet.service.address import check_free, parse_address, show_address
from privcirnet.service.certificates import TRIAL_DAYS, make_trial
from privcirnet.service.limits import ServiceLimits, ServiceState
from privcirnet.service.log import Log, Write, appending
from privcirnet.service.prepared_workers import ActorOptions, PreparedWorkers
from privcirnet.service.programs import Catalogue, ProgramVersion, version_of
from privcirnet.service.quotas import Ledger, LocalLedger, Quotas
from privcirnet.service.server import Reloaded, Service
from privcirnet.service.shared.keys import SharedKeys
from privcirnet.service.shared.ledger import SharedInventory, SharedLedger
from privcirnet.service.shared.link import RedisConnection, is_url
from privcirnet.service.store import KeyRegistry, KeyStore, StoreLimits

Advance = Callable[[str], None]

_REDIS_PREFIX = "privcirnet"
"""What all keys in a Redis begin with."""


@dataclass(frozen=True)
class ProgramFolders:
    """Program folders and their serving options.

    Attributes:
        folders: folders by name.
        gigabytes: memory of all programs' encoded weights together, in GB.
        weights_folder: folder that keeps encoded weights between starts; "" for none.
        key: the key that must have signed them; None for any program.
    """

    folders: Mapping[str, Path]
    engine: str
    gigabytes: float
    weights_folder: str = ""
    key: PublicKey | None = None

    def load(self, before: Catalogue | None = None, advance: Advance = lambda note: None) -> Catalogue:
        """Return the present programs of the folders; those unchanged since ``before`` are kept.

        Raises:
            RuleError: a folder is missing or damaged, or its program is refused.
        """
        earlier = {offer.name: offer for offer in before.offers} if before else {}
        return Catalogue({name: self._offer(name, earlier.get(name), advance) for name in self.folders})

    def _offer(self, name: str, before: ProgramVersion | None, advance: Advance) -> ProgramVersion:
        folder = self.folders[name]
        try:
            version = version_of(folder)
        except OSError:
            version = ""  # reading it says what is missing
        if before is not None and before.version == version:
            return before
        _, signature = read_signature(folder)
        server = self._server(folder, signature, partial(_advance, advance, name))
        if version_of(folder) != version:
            raise RuleError("a program must not change while it is read", got=folder, remedy="try again")
        return ProgramVersion(name, version, server)

    def _server(self, folder: Path, signature: bytes, progress: Advance) -> Served:
        """Return the server of a folder's program, interactive or CKKS."""
        gigabytes = self.gigabytes / len(self.folders)
        if format_of(folder) == CKKS:
            cache = WeightCache.of(gigabytes)
            return OneMessageServer(read_ckks(folder, self.key), self.engine, None, progress, cache, signature)
        program, spectra = read_program(folder, self.key)
        cache = WeightCache.of(gigabytes, self.weights_folder)
        return Server(program, self.engine, spectra, progress, cache, signature, watched=False)


def check_room(catalogue: Catalogue, limits: StoreLimits) -> None:
    """Raise unless the store has room for the keys of a client of each program."""
    for offer in catalogue.offers:
        if offer.most.keys > 1e9 * limits.gigabytes:
            rule, size = "the store of keys must have room for a client's", offer.most.keys / 1e9
            got, remedy = f"{size:.2f} GB of {offer.name} for {limits.gigabytes:g} GB", "raise keys.gigabytes"
            raise RuleError(rule, got=got, remedy=remedy)


def check_sessions_of(catalogue: Catalogue, weights_gb: float, sessions: int) -> None:
    """Raise unless the memory has room for all sessions of any interactive program; arguments as below."""
    programs = (offer.server.known for offer in catalogue.offers)
    check_sessions([cast(Program, program) for program in programs if program.prepares], weights_gb, sessions)


def in_words(offer: ProgramVersion) -> str:
    """Return a program and its cost in words, for the operator."""
    keys = f"a client sends at most {offer.most.keys / 1e6:.1f} MB of keys once"
    return f"version {offer.version}, {offer.server.in_words()}; {keys}"


def _advance(advance: Advance, name: str, layer: str) -> None:
    advance(f"{name}: {layer}")


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
        check_place("state", config.state)
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
    link = RedisConnection(config.state, _REDIS_PREFIX, partial(_note, Log(write, config.log), "shared state"))
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


_ONLY = "default"
"""Name of the program where there is only one."""

_EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that stand for all addresses of this machine: a client needs its name."""


@script(ServeConfig)
def main(config: ServeConfig) -> None:
    """Encode the weights, listen, and serve until interrupted."""
    check_free((config.host, config.port))  # again when it listens, but encoding and rehearsal take long
    threads.use(config.threads)
    named = config.programs or {_ONLY: config.program}
    folders = ProgramFolders(
        {name: Path(folder) for name, folder in named.items()},
        config.engine,
        config.weights_gb,
        config.weights_folder,
        pinned(config.model_key),
    )
    tls, commands = _tls(config)
    access = ServerAccess.of(tls)

    def reload(before: Catalogue) -> Reloaded:
        now: ServeConfig = again("serve", ServeConfig)
        return Reloaded(folders.load(before), ServerAccess.of(tls), (now.quota, now.quotas))

    with ExitStack() as stack:
        books, more = books_of(config, stack, _write), dict[str, str]()  # whatever may be missing, before it takes long
        catalogue = _encoded(config, folders)
        if books.workers:
            more["preparation"] = f"by {books.workers.actors} actors of {books.workers.cores} cores"
        service = Service(catalogue, (config.host, config.port), access, books, reload)
        if config.metrics:
            host, port = parse_address(config.metrics)
            listening = books.metrics.listen(host, port)
            stack.callback(listening.close)
            probes = service.answer_probes((host, port and port + 1))
            more["metrics"] = f"http://{show_address((host, listening.port))}/metrics"
            more["health"] = f"{show_address((host, probes))}, plain"
        _describe(config, catalogue, service, commands, more)
        _run(service, books.log)


def _encoded(config: ServeConfig, folders: ProgramFolders) -> Catalogue:
    """Return the programs on offer, encoded and rehearsed."""
    with progress_bar("Encoding weights", 0) as advance:
        catalogue = folders.load(advance=advance)
    check_room(catalogue, config.keys)
    check_sessions_of(catalogue, config.weights_gb, config.sessions)
    if config.warm_up:
        for offer in catalogue.offers:
            with inference_bar(1) as progress:
                rehearse(offer.server, config.engine, progress)
    return catalogue


def _tls(config: ServeConfig) -> tuple[Path | None, str]:
    """Return the folder of certificates, and the client's setting for them."""
    if config.tls != "trial":
        return (Path(config.tls), " tls=DIR") if config.tls else (None, "")
    names = dict.fromkeys([config.host, "localhost", "127.0.0.1", socket.gethostname()])
    server, client = make_trial(Path(config.root) / "trial", [name for name in names if name not in _EVERYWHERE])
    return server, f" tls={client}"


def reached(address: tuple[str, int]) -> str:
    """Return a client's address of a server that listens at one: by name, where it listens at all addresses."""
    host, port = address
    return show_address((socket.gethostname() if host in _EVERYWHERE else host, port))


def _describe(config: ServeConfig, catalogue: Catalogue, service: Service, commands: str, more: dict[str, str]) -> None:
    """Show the programs served, their clients and their cost."""
    address, facts = show_address(service.address), {offer.name: in_words(offer) for offer in catalogue.offers}
    secured = "TLS 1.3" if config.tls else "plain, on loopback"
    trial = f", certificates for {TRIAL_DAYS} days" if config.tls == "trial" else ""
    show(
        f"serve: engine {config.engine}" + (", NOTHING IS ENCRYPTED" if config.engine == "cleartext" else ""),
        {
            "address": f"{address}, {secured}{trial}, {config.sessions} clients at once; Ctrl-C ends it",
            **facts,
            "memory": f"{peak_bytes() / 1e6:.0f} MB so far",
            **more,
            "command": as_started(f"python infer.py server={reached(service.address)}{commands}"),
        },
    )


def _run(service: Service, log: Log) -> None:
    """Serve until Ctrl-C or SIGTERM; SIGHUP reads programs, certificates, tokens, quotas again."""
    signal.signal(signal.SIGTERM, lambda number, frame: service.stop())
    signal.signal(signal.SIGINT, lambda number, frame: service.stop())
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda number, frame: service.reload())
    service.run()
    log.event("stopped")


_write = partial(console.print, markup=False, soft_wrap=True)
"""Function that prints a line; markup in a client's text stays text."""
