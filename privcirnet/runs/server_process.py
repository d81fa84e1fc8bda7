"""A server in a process of its own that reports its shares to the harness that started it.

The harness talks to the server as any client does, over gRPC on loopback. The server's shares, which only an audit of
both parties may see, come through a pipe that the harness made and the server's process inherited. No message of the
protocol asks for them, and serve.py has no such pipe.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, cast

from privcirnet.errors import RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.served import Meter, Served, ServedSession
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads
from privcirnet.he.system.memory import peak_bytes
from privcirnet.service.books import ServiceState
from privcirnet.service.client import Party
from privcirnet.service.limits import ServiceLimits
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
        seen: values of :meth:`protocol.served.ServedSession.seen`.
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
    process = subprocess.Popen(command, pass_fds=[there.fileno()], env=environment)
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted harness closes the pipe
    pipe = Connection(inherited)
    task = cast(ServerTask, pipe.recv())
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
