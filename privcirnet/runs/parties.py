"""Both parties of encrypted inference, or a client whose server is elsewhere, ready for images."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from privcirnet.he.layers.integer import Values
from privcirnet.he.protocol.offline.store import MemoryStore
from privcirnet.he.protocol.parties.session import Handler
from privcirnet.he.protocol.served import Meter, Served, ServedClient
from privcirnet.he.system import threads
from privcirnet.runs.answers import Answer, Persist, StepProgress, once, requests
from privcirnet.runs.preparation import Ahead
from privcirnet.runs.progress import Bar
from privcirnet.runs.server_process import ServerProcess, ServerReport, ServerTask, report_of, start_server
from privcirnet.runs.throttle import throttled
from privcirnet.runs.warm_up import rehearse, warm_up
from privcirnet.service.client import Party, ServiceClient

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
    ahead: Ahead | None = None
    how: RunOptions = field(default_factory=RunOptions)
    seconds_warm_up: float | None = None


def parties(  # noqa: PLR0913, PLR0917
    client: ServedClient,
    server: Handler,
    report: Callable[[], ServerReport] | None,
    seconds_setup: float,
    bytes_keys: int,
    ahead: Ahead,
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
def open_parties(task: ServerTask, how: RunOptions, bar: Bar) -> Iterator[Parties]:
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
            ahead = Ahead(how.prepare, store, False, lambda: None, how.pause_s)
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
        ahead = Ahead(how.prepare, remote.store, False, remote.reopen, how.pause_s)
        setup = time.perf_counter() - started
        remote_parties = parties(remote.party, remote, process.report, setup, remote.bytes_keys, ahead, how)
        yield replace(remote_parties, seconds_warm_up=warm)


def _warmed(how: RunOptions, bar: Bar, run: Callable[[], object]) -> float | None:
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
