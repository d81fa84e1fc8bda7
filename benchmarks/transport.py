"""What gRPC and TLS cost an image: the same session behind TLS, behind plain gRPC and behind a bare socket, in turns.

python benchmarks/transport.py outputs/export/program --images 10

Each server is a process of its own; all of them are there all the time, and one works. The bare socket has a length
before each message, and nothing else: no limits, no names, no chunks. Its server makes ahead what hides replies while
it waits, as the service does. Processor seconds are those of both processes.
"""

import argparse
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from phases import noise, worked

from privcirnet.artifact.program import read_program
from privcirnet.cli.console import progress_bar, show_rows
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import Handler, prepare, run
from privcirnet.he.system import threads
from privcirnet.service.access import ClientAccess, ServerAccess
from privcirnet.service.certificates import make_trial
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits, ServiceState
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.server import Service

_HEADER = struct.Struct("<I")
KINDS = ("socket", "plain", "tls")
PHASES = ("preparation", "online")
_PATIENT = ServiceLimits(sessions=1, timeout_s=1e6, age_s=1e7)


class Remote(NamedTuple):
    """A client, who replies to it, and the number of the server's process."""

    client: Client
    handler: Handler
    process: int


class SocketHandler:
    """The server's session at the other end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def handle(self, message: bytes) -> bytes:
        """Return the reply to a request."""
        send(self._connection, message)
        return receive(self._connection)


def send(connection: socket.socket, message: bytes) -> None:
    """Send a message after its length."""
    connection.sendall(_HEADER.pack(len(message)) + message)


def receive(connection: socket.socket) -> bytes:
    """Return the next message."""
    (size,) = _HEADER.unpack(_exactly(connection, _HEADER.size))
    return bytes(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytearray:
    found, done = bytearray(size), 0
    while done < size:
        more = connection.recv_into(memoryview(found)[done:])
        if not more:
            raise EOFError
        done += more
    return found


def serve(folder: Path, kind: str, trial: Path, count: int) -> None:
    """Serve a program until the process is killed; the first line of its output is the port."""
    threads.use(count)
    program, spectra = read_program(folder)
    server = Server(program, "kernel", spectra, watched=False)
    if kind != "socket":
        access = ServerAccess.of(trial / "server" if kind == "tls" else None)
        books = ServiceState(limits=_PATIENT, quotas=Quotas(Quota(prepared=1 << 20)))
        service = Service(Catalogue({"": ProgramVersion.of("", server)}), access=access, books=books)
        print(service.address[1], flush=True)
        service.run()
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send(connection, server.greeting())
        with server.session(receive(connection)) as session:
            send(connection, b"")
            while True:
                while not select.select([connection], [], [], 0)[0] and session.make_ahead():
                    pass
                send(connection, session.handle(receive(connection)))


@contextmanager
def connected(folder: Path, kind: str, trial: Path) -> Generator[Remote]:
    """Start a server and connect to it."""
    command = [sys.executable, __file__, str(folder), "--serve", kind, "--trial", str(trial)]
    process = subprocess.Popen([*command, "--threads", str(threads.count())], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = "127.0.0.1", int(process.stdout.readline())
        if kind == "socket":
            with socket.create_connection(address) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with Client(receive(connection)) as client:
                    send(connection, client.keys())
                    receive(connection)
                    yield Remote(client, SocketHandler(connection), process.pid)
            return
        access = ClientAccess.of(trial / "client") if kind == "tls" else ClientAccess()
        with ServiceClient(address, access=access) as remote:
            yield Remote(remote.client, remote, process.pid)
    finally:
        process.kill()
        process.wait()


class Cost(NamedTuple):
    """What a phase of one image took: seconds, and processor seconds of both processes."""

    seconds: float
    processor: float


def turn(remote: Remote) -> dict[str, Cost]:
    """Return the cost of each phase of one image."""
    client, handler, process = remote
    image, found = noise(client.program), dict[str, Cost]()
    for phase in PHASES:
        before, started = worked("self") + worked(process), perf_counter()
        prepare(client, handler) if phase == "preparation" else run(client, handler, image)
        found[phase] = Cost(perf_counter() - started, worked("self") + worked(process) - before)
    return found


def row(kind: str, phase: str, turns: dict[str, list[dict[str, Cost]]]) -> dict[str, str]:
    """Return medians in milliseconds, and the median of what is more than behind the bare socket in the same turn."""
    own, bare = ([each[phase] for each in turns[which]] for which in (kind, KINDS[0]))
    more = [Cost(a.seconds - b.seconds, a.processor - b.processor) for a, b in zip(own, bare, strict=True)]
    found = {"phase": phase, "behind": kind}
    for name, values in (("", own), ("more ", more)):
        for part in Cost._fields:
            found[f"{name}{part}, ms"] = f"{1e3 * median(getattr(one, part) for one in values):.1f}"
    share = median(a.seconds / b.seconds for a, b in zip(own, bare, strict=True)) - 1
    cpu = median(a.processor / b.processor for a, b in zip(own, bare, strict=True)) - 1
    return found | {"more seconds": f"{share:+.1%}", "more processor": f"{cpu:+.1%}"}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="folder of export.py")
    parser.add_argument("--images", type=int, default=10, help="of each kind, after two that warm up")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--threads", type=int, default=0, help="of each process; 0: as many as cores")
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--trial", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    threads.use(given.threads)
    if given.serve:
        serve(given.program, given.serve, given.trial, given.threads)
        return
    with ExitStack() as stack, progress_bar("images", given.images) as advance:
        trial = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_trial(trial, ["localhost", "127.0.0.1"])
        remotes = {kind: stack.enter_context(connected(given.program, kind, trial)) for kind in given.kinds}
        turns: dict[str, list[dict[str, Cost]]] = {kind: [] for kind in given.kinds}
        for number in range(given.images + 2):
            for kind, remote in remotes.items():
                turns[kind].append(turn(remote))
            advance(to=max(0, number - 1))
    turns = {kind: each[2:] for kind, each in turns.items()}
    show_rows("images", [row(kind, phase, turns) for phase in PHASES for kind in given.kinds])


if __name__ == "__main__":
    main()
