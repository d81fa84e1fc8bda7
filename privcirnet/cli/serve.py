"""Serve programs to clients over gRPC. `privcirnet serve --help`."""

import signal
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from privcirnet.cli.console import as_started, console, inference_bar, progress_bar, show
from privcirnet.cli.settings import again, script
from privcirnet.config import ServeConfig
from privcirnet.he.program.operations import Input
from privcirnet.he.program.signature import pinned
from privcirnet.he.protocol.framing import message_sizes
from privcirnet.he.protocol.leveled.leveled_program import LeveledProgram
from privcirnet.he.protocol.leveled.session import LeveledClient, LeveledServer
from privcirnet.he.protocol.offline.correlated import Form
from privcirnet.he.protocol.offline.prepared_work import PreparedWork
from privcirnet.he.protocol.offline.store_files import InUse
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.system import threads
from privcirnet.he.system.memory import peak_bytes
from privcirnet.he.system.private_folder import private_folder
from privcirnet.runs.answers import answers
from privcirnet.runs.serving import ProgramFolders
from privcirnet.service.access import ServerAccess
from privcirnet.service.address import check_free, show_address
from privcirnet.service.books import Books
from privcirnet.service.certificates import TRIAL_DAYS, make_trial
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.log import Log, appending
from privcirnet.service.programs import Catalogue, Offer
from privcirnet.service.quotas import Quotas
from privcirnet.service.server import Reloaded, Service
from privcirnet.service.store import KeyStore

_ONLY = "default"
"""What the program is called where there is only one."""


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
    access = ServerAccess.of(tls)  # before the weights are encoded, which takes long
    with progress_bar("Encoding weights", 0) as advance:
        catalogue = folders.load(advance=advance)
    if config.rehearsal:
        for offer in catalogue.offers:
            _rehearse(offer, config.engine)

    def reload(before: Catalogue) -> Reloaded:
        now: ServeConfig = again("serve", ServeConfig)
        return Reloaded(folders.load(before), ServerAccess.of(tls), (now.quota, now.quotas))

    with ExitStack() as stack:
        books, more = _books(config, stack), dict[str, str]()
        service = Service(catalogue, (config.host, config.port), access, books, reload)
        if config.metrics_port >= 0:
            listening = books.metrics.listen(config.metrics_host, config.metrics_port)
            stack.callback(listening.close)
            more = {"metrics": f"http://{show_address((config.metrics_host, listening.port))}/metrics"}
        _describe(config, catalogue, service, commands, more)
        _run(service, books.log)


def _tls(config: ServeConfig) -> tuple[Path | None, str]:
    """The folder of certificates, and what a client must be told of them."""
    if config.tls != "trial":
        return (Path(config.tls), " tls=DIR") if config.tls else (None, "")
    names = dict.fromkeys([config.host, "localhost", "127.0.0.1", socket.gethostname()])
    server, client = make_trial(Path(config.root) / "trial", [name for name in names if name not in ("0.0.0.0", "::")])
    return server, f" tls={client}"


def _books(config: ServeConfig, stack: ExitStack) -> Books:
    """What is kept about clients; the stack closes its files."""
    state = Path(config.state) if config.state else None
    if state is not None:
        private_folder(state)
    quotas = Quotas(config.quota, config.quotas, state and state / "images.sqlite")
    stack.callback(quotas.close)
    log = Log(_write, config.log, appending(state / "audit.jsonl") if state else None)
    prepared_work = _prepared_work(config, state, log)
    stack.callback(prepared_work.close)
    return Books(
        limits=ServiceLimits(config.sessions, config.timeout_s, config.age_s, config.grace_s, config.connections),
        quotas=quotas,
        store=KeyStore(config.keys, state and state / "keys"),
        prepared_work=prepared_work,
        log=log,
    )


def _prepared_work(config: ServeConfig, state: Path | None, log: Log) -> PreparedWork:
    """Where prepared work is kept: in its folder, unless another server of the same state has it."""

    def note(why: str) -> None:
        log.event("prepared work", why=why)

    limit, named = int(1e9 * config.prepared_gb), Path(config.prepared_folder) if config.prepared_folder else None
    try:
        return PreparedWork(named or (state and state / "prepared"), limit, config.keys.days, note)
    except InUse as error:
        if named:
            raise
        note(f"kept in memory: {error}")
        return PreparedWork(None, limit, config.keys.days, note)


def _describe(config: ServeConfig, catalogue: Catalogue, service: Service, commands: str, more: dict[str, str]) -> None:
    """Say what is served, to whom, and what it takes."""
    address, facts = show_address(service.address), dict[str, str]()
    for offer in catalogue.offers:
        if isinstance(offer.server, LeveledServer):
            facts[offer.name] = _in_words_leveled(offer, offer.server.program)
            continue
        program, source = offer.server.program, offer.server.program.nodes[0]
        assert isinstance(source.operation, Input)
        facts[offer.name] = (
            f"version {offer.version}, {len(program.linear_nodes)} layers with weights, "
            f"{message_sizes.rounds(program)} rounds an image, n = {program.parameters.ring_degree}, "
            f"log q = {program.parameters.log_q}; images of {' x '.join(map(str, source.shape))} integers in "
            f"[{source.operation.low}, {source.operation.high}]; a client sends {offer.most.keys / 1e6:.1f} MB of keys "
            f"once, its session takes {message_sizes.keys_in_memory(program) / 1e6:.0f} MB, "
            f"an inference that it prepares {Form('server', program, bytes(32)).length / 1e6:.1f} MB"
        )
    secured = "TLS 1.3" if config.tls else "plain, on loopback"
    trial = f", certificates for {TRIAL_DAYS} days" if config.tls == "trial" else ""
    show(
        f"serve: engine {config.engine}" + (", NOTHING IS ENCRYPTED" if config.engine == "cleartext" else ""),
        {
            "address": f"{address}, {secured}{trial}, {config.sessions} clients at once; Ctrl-C ends it",
            **facts,
            "memory": f"{peak_bytes() / 1e6:.0f} MB so far",
            **more,
            "command": as_started(f"python infer.py server={address}{commands}"),
        },
    )


def _in_words_leveled(offer: Offer, program: LeveledProgram) -> str:
    plan, parameters = program.plan.public, program.parameters
    images = f"{plan.batch} images of" if plan.batch > 1 else "an image of"
    return (
        f"version {offer.version}, leveled, {len(program.chain.layers)} layers, one request for {images} "
        f"{' x '.join(map(str, plan.image))} integers in [{plan.low}, {plan.high}], n = {parameters.ring_degree}, "
        f"log q = {sum(parameters.coefficient_bits)}, {len(parameters.moduli)} plain moduli; "
        f"a client sends at most {offer.most.keys / 1e6:.1f} MB of keys once; mode=leveled"
    )


def _run(service: Service, log: Log) -> None:
    """Serve until Ctrl-C or SIGTERM; SIGHUP reads programs, certificates, tokens, quotas again."""
    signal.signal(signal.SIGTERM, lambda number, frame: service.stop())
    signal.signal(signal.SIGINT, lambda number, frame: service.stop())
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda number, frame: service.reload())
    service.run()
    log.event("stopped")


def _rehearse(offer: Offer, engine: str) -> None:
    """Run one image through both parties here, so that no client waits for what is compiled on first use."""
    if isinstance(offer.server, LeveledServer):
        _rehearse_leveled(offer, offer.server, engine)
        return
    source = offer.server.program.nodes[0]
    assert isinstance(source.operation, Input)
    client = Client(offer.greeting, engine)
    session = offer.server.session(client.keys())
    image = np.full(source.shape, source.operation.high)
    with inference_bar(1) as progress:
        list(answers(client, session, [image], progress))
    if offer.server.program.masks == "uniform":
        prepare(client, session)
        list(answers(client, session, [image]))
    session.close()


def _rehearse_leveled(offer: Offer, server: LeveledServer, engine: str) -> None:
    client = LeveledClient(offer.greeting, engine)
    session, plan = server.session(client.keys()), client.description.plan
    image = np.full(plan.image, plan.high)
    run(client, session, image if plan.lanes is None else image[None])
    session.close()
    client.close()


_write = partial(console.print, markup=False, soft_wrap=True)
"""Print one line; markup in what a client sent stays text."""
