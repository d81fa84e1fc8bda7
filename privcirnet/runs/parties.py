"""Both parties of encrypted inference, or a client whose server is elsewhere, ready for images.

The server may be a process of its own. The harness talks to it as any client does, over gRPC on loopback. The server's
shares, which only an audit of both parties may see, come through a pipe that the harness made and the server's process
inherited. No message of the protocol asks for them, and serve.py has no such pipe.

A warm-up image comes before the first one, for which kernels are compiled or loaded: later timings are then typical.
CKKS has none: its keys are gigabytes.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.protocol.interface import Meter, Served, ServedClient, ServedSession
from privcirnet.he.protocol.offline.store import MemoryStore
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import Handler
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads
from privcirnet.he.system.process import keep_freed_memory, peak_bytes
from privcirnet.runs.answers import Answer, Persist, PreparedStock, StepProgress, answers, no_progress, once, requests
from privcirnet.runs.progress import ProgressBar
from privcirnet.service.client import Party, ServiceClient
from privcirnet.service.limits import ServiceLimits, ServiceState
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.server import Service
from privcirnet.service.store import KeyStore, StoreLimits

_AT_END = 10.0
_HARNESS = ServiceLimits(sessions=1, timeout_s=1e6, age_s=1e7, grace_s=0.0)
"""Limits for one client, which may take its time: between two images it audits."""
_ANY, _ROOM = Quota(prepared=1 << 20), StoreLimits(gigabytes=64)


@dataclass(frozen=True)
class ServerTask:
    """A server's task: a program and its options.

    Attributes:
        spectra: weight spectra by node, of an interactive program.
        engine: engine: "kernel", "tenseal" or "cleartext".
        limit: limit of :class:`WeightCache`.
        folder: folder of :class:`WeightCache`.
        threads: number of threads; 0 for all cores.
        audited: whether it reports its shares after each inference; the harness must then read each report.
        served: function that makes the server.
        party: function that makes its client.
    """

    program: Any
    spectra: Mapping[str, Residues]
    engine: str
    limit: int | None = None
    folder: Path | None = None
    threads: int = 0
    audited: bool = True
    served: Callable[..., Served] = Server
    party: Party = Client

    def server(self) -> Served:
        """Return the server, its weights encoded.

        Raises:
            RuleError: it refuses the program.
        """
        cache = WeightCache(self.limit, self.folder)
        return self.served(self.program, self.engine, self.spectra, cache=cache, watched=self.audited)


class ServerReport(NamedTuple):
    """A server's report after a request, to a harness that has both parties.

    Attributes:
        seen: values of :meth:`protocol.interface.ServedSession.seen`.
        meters: meters of all inferences so far, and of all offline work, if there is any.
        peak: peak memory of its process, bytes.
    """

    seen: Any
    meters: Sequence[Meter]
    peak: int


def report_of(session: ServedSession) -> ServerReport:
    """Return a watched session's report of its last request."""
    return ServerReport(session.seen(), session.meters, peak_bytes())


class ServerProcess:
    """The harness's handle of a server's process.

    Args:
        address: host and port at which the server listens.
    """

    def __init__(self, pipe: Connection, address: tuple[str, int], number: int) -> None:
        self._pipe, self.address, self.number = pipe, address, number

    def report(self) -> ServerReport:
        """Return the report of the inference that has just ended; to be called once for each."""
        return cast(ServerReport, self._pipe.recv())


@contextmanager
def start_server(task: ServerTask) -> Generator[ServerProcess]:
    """Start a server in another process, which ends with the block.

    Yields:
        the process, ready for clients.
    """
    here, there = Pipe()
    command = [sys.executable, "-c", f"from {__name__} import serve; serve({there.fileno()})"]
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(command, pass_fds=[there.fileno()], env=environment, process_group=0)
    there.close()
    try:
        here.send(task)
        reply = here.recv()
        if isinstance(reply, RuleError):
            raise reply
        yield ServerProcess(here, reply, process.pid)
    except (EOFError, ConnectionError):
        rule, remedy = "the server's process must not end by itself", "see above what it said"
        raise RuleError(rule, got=f"status {process.wait()}", remedy=remedy) from None
    finally:
        here.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_AT_END)
        process.kill()
        process.wait()


def serve(inherited: int) -> None:
    """Run the server's process until the harness closes the pipe."""
    pipe = Connection(inherited)
    task = cast(ServerTask, pipe.recv())
    keep_freed_memory()
    threads.use(task.threads)

    def report(session: ServedSession) -> None:
        if task.audited:
            pipe.send(report_of(session))

    try:
        server = task.server()
        offers = Catalogue({task.engine: ProgramVersion.of(task.engine, server)})
        books = ServiceState(limits=_HARNESS, quotas=Quotas(_ANY), store=KeyStore(_ROOM))
        service = Service(offers, books=books, finished=report)
    except RuleError as error:
        pipe.send(error)
        return

    def watch() -> None:
        with suppress(EOFError, OSError):
            pipe.recv()
        service.stop()

    threading.Thread(target=watch, daemon=True).start()
    pipe.send(service.address)
    service.run()


def rehearse(server: Served, engine: str, progress: StepProgress = no_progress) -> None:
    """Warm up both parties in this process, with a client of its own."""
    if server.known.warms_up:
        client = server.client(engine)
        with closing(client), closing(server.session(client.keys())) as session:
            warm_up(client, session, progress)


def warm_up(
    client: ServedClient,
    server: Handler,
    progress: StepProgress = no_progress,
    answered: Callable[[], object] = lambda: None,
) -> None:
    """Run an image of the largest pixels.

    Args:
        server: session of the client.
        answered: function called after each image.
    """
    if not client.known.warms_up:
        return
    pixels = client.known.pixels
    image = np.full(pixels.shape, pixels.high)
    for _ in answers(client, server, [image], progress):
        answered()


@dataclass(frozen=True)
class Throttled:
    """A session behind a link, whose messages are delayed, whatever is between the parties.

    The machine's network settings are not touched. Falcon 2023 (table II) limits bandwidths the same way.

    Attributes:
        link: link with the bandwidth and round trip of each message and its reply.
        wait: function that sleeps for some seconds.
    """

    session: Handler
    link: NetworkLink
    wait: Callable[[float], object] = time.sleep

    def handle(self, message: bytes) -> bytes:
        self.wait(self.link.round_trip / 2 + len(message) / self.link.bandwidth)
        reply = self.session.handle(message)
        self.wait(self.link.round_trip / 2 + len(reply) / self.link.bandwidth)
        return reply


def throttled(session: Handler, name: str) -> Handler:
    """Return a session behind a link.

    Args:
        name: name of the link in :data:`LINKS`; "" for the session as it is.
    """
    return Throttled(session, LINKS[name]) if name else session


Requests = Callable[[Sequence[Values] | Values, StepProgress], Iterator[tuple[Values, list[Answer]]]]
"""Function that runs requests on images, see :func:`runs.answers.requests`."""


@dataclass(frozen=True)
class RunOptions:
    """The options of both parties.

    Attributes:
        engine: "kernel", "tenseal" (BFV) or "cleartext", which hides nothing.
        weights_gb: most GB of encoded weights in memory; None: all, 4 for CKKS. Others are encoded for each image.
        weights_folder: folder that keeps encoded weights between starts; "" for none.
        keys_gb: most GB of a CKKS program's keys.
        apart: whether the server is a process of its own, with gRPC on loopback between the parties.
        prepare: number of inferences to keep prepared; 0: none.
        pause_s: seconds between two images, in which inferences are prepared.
        throttle: name of the link that delays messages; "" for none.
        audited: whether every step is checked.
        warm: whether a warm-up image comes first, for which kernels are compiled or loaded.
    """

    engine: str = "kernel"
    weights_gb: float | None = None
    weights_folder: str = ""
    keys_gb: float = 8.0
    apart: bool = False
    prepare: int = 0
    pause_s: float = 0.0
    throttle: str = ""
    audited: bool = True
    warm: bool = False

    @property
    def served(self) -> bool:
        """True if the server's work is out of sight, in a process of its own or behind a link."""
        return self.apart or bool(self.throttle)

    def task(self, program: Any, server: Callable[..., Served], party: Party, spectra: Any = None) -> ServerTask:
        """Return the task of a program's server; for the arguments see :class:`ServerTask`."""
        limit = None if self.weights_gb is None else int(1e9 * self.weights_gb)
        folder = Path(self.weights_folder) if self.weights_folder else None
        return ServerTask(
            program, spectra or {}, self.engine, limit, folder, threads.count(), self.audited, server, party
        )


@dataclass(frozen=True)
class Parties:
    """A client, and the server that replies to it.

    Attributes:
        server: handler that replies to it; for CKKS in one process, the client itself, which is both.
        requests: function that runs images.
        meters: the client's meters, of all images, and of all offline work, if there is any.
        report: function that reports the server's work for the last request; None if nobody may know.
        seconds_setup: seconds until the first request: making and loading keys, and encoding weights if that was done.
        seconds_warm_up: seconds of the warm-up after that; None without one.
        bytes_keys: bytes of all keys, sent once.
        ahead: preparation before images; None for none.
        how: options of both parties.
    """

    client: Any
    server: Any
    requests: Requests
    meters: Sequence[Meter]
    report: Callable[[], ServerReport] | None
    seconds_setup: float
    bytes_keys: int
    ahead: PreparedStock | None = None
    how: RunOptions = field(default_factory=RunOptions)
    seconds_warm_up: float | None = None


def parties(  # noqa: PLR0913, PLR0917
    client: ServedClient,
    server: Handler,
    report: Callable[[], ServerReport] | None,
    seconds_setup: float,
    bytes_keys: int,
    ahead: PreparedStock,
    how: RunOptions,
    persist: Persist = once,
) -> Parties:
    """Return a client and the handler of its requests, behind a link if the settings name one.

    Args:
        persist: function that makes each request, see :func:`runs.answers.requests`.
    """
    handler = throttled(server, how.throttle)

    def run(images: Sequence[Values] | Values, progress: StepProgress) -> Iterator[tuple[Values, list[Answer]]]:
        return requests(client, handler, images, progress, ahead, persist)

    return Parties(
        client, handler, run, client.meters, report if how.audited else None, seconds_setup, bytes_keys, ahead, how
    )


@contextmanager
def open_parties(task: ServerTask, how: RunOptions, bar: ProgressBar) -> Iterator[Parties]:
    """Yield both parties as in a service, in this process or each in its own. They are closed in the end.

    Raises:
        RuleError: the server refuses the program, or its process ended.
    """
    started = time.perf_counter()
    with ExitStack() as stack:
        if not how.apart:
            with bar("Setting up", 0):
                store, server = MemoryStore(), task.server()
                client = stack.enter_context(closing(task.party(server.greeting(), how.engine, None, store, b"")))
                keys = client.keys()
                session = stack.enter_context(closing(server.session(keys)))
            ahead = PreparedStock(how.prepare, store, False, lambda: None, how.pause_s)
            setup = time.perf_counter() - started
            warm = _warmed(how, bar, partial(rehearse, server, how.engine))
            here = parties(client, session, partial(report_of, session), setup, len(keys), ahead, how)
            yield replace(here, seconds_warm_up=warm)
            return
        with bar("Setting up", 0):
            process = stack.enter_context(start_server(task))
        warm = _warmed(how, bar, partial(_with_another, process, task, how))
        started += warm or 0.0
        with bar("Connecting", 0):
            remote = stack.enter_context(ServiceClient(process.address, how.engine, party=task.party))
        ahead = PreparedStock(how.prepare, remote.store, False, remote.reopen, how.pause_s)
        setup = time.perf_counter() - started
        remote_parties = parties(remote.party, remote, process.report, setup, remote.bytes_keys, ahead, how)
        yield replace(remote_parties, seconds_warm_up=warm)


def _warmed(how: RunOptions, bar: ProgressBar, run: Callable[[], object]) -> float | None:
    """Warm up, if the settings say so, and return the seconds that it took."""
    if not how.warm:
        return None
    started = time.perf_counter()
    with bar("Warming up", 0):
        run()
    return time.perf_counter() - started


def _with_another(process: ServerProcess, task: ServerTask, how: RunOptions) -> None:
    """Warm up both processes with a client of its own, which leaves nothing in the other's meters."""
    report = process.report if how.audited else lambda: None
    with ServiceClient(process.address, how.engine, party=task.party) as remote:
        warm_up(remote.party, remote, answered=report)
