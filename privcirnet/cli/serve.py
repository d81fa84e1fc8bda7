"""Serve programs to clients over gRPC. `privcirnet serve --help`."""

import signal
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from privcirnet.cli.console import as_started, console, inference_bar, progress_bar, show
from privcirnet.cli.settings import again, script
from privcirnet.config import ServeConfig
from privcirnet.he.program.signature import pinned
from privcirnet.he.system import threads
from privcirnet.he.system.memory import peak_bytes
from privcirnet.runs.service_state import books_of
from privcirnet.runs.serving import ProgramFolders, check_room, check_sessions_of, in_words
from privcirnet.runs.warm_up import rehearse
from privcirnet.service.access import ServerAccess
from privcirnet.service.address import check_free, parse_address, show_address
from privcirnet.service.certificates import TRIAL_DAYS, make_trial
from privcirnet.service.log import Log
from privcirnet.service.programs import Catalogue
from privcirnet.service.server import Reloaded, Service

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
