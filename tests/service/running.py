"""A service in a thread, and what it wrote."""

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from privcirnet.errors import Lost
from privcirnet.he.layers.integer import Values
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.ring import sampling
from privcirnet.service.access import PLAIN_SERVER
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits, ServiceState
from privcirnet.service.log import Log
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.server import Service
from tests.conftest import ROOT
from tests.he.networks import network, random_image


def rest(exchange, remote, message):
    """The logits of an image that has begun."""
    while True:
        try:
            message = exchange.send(remote.handle(message))
        except StopIteration as finished:
            return finished.value


def until(condition, seconds=10.0):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def reopened(remote: ServiceClient) -> bool:
    """Whether the server is there again."""
    try:
        remote.reopen()
    except Lost:
        return False
    return True


class Lines(list):
    """JSON lines of a log."""

    def of(self, event):
        return [found for line in self if (found := json.loads(line))["event"] == event]


def digests_of_masks(write) -> None:
    """Write a line about all that this process draws from now on: masks, shares."""
    original = sampling.uniform

    def uniform(shape, t):
        values = original(shape, t)
        if values.size:
            write(hashlib.sha256(values.tobytes()).hexdigest() + "\n")
        return values

    sampling.uniform = uniform


STANDING = """
import sys
from pathlib import Path
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.server import Server
from privcirnet.service.limits import ServiceState
from privcirnet.service.server import Service
from privcirnet.service.store import KeyStore
from tests.he.networks import network
from tests.service.running import catalogue

folder, port = Path(sys.argv[1]), int(sys.argv[2])
books = ServiceState(store=KeyStore(folder=folder / "keys"), prepared_work=PreparedWork(folder / "server"))
service = Service(catalogue(only=Server(network(), "cleartext")), ("127.0.0.1", port), books=books)
print(service.address[1], flush=True)
service.run()
"""


@contextmanager
def started(folder: Path, port: int = 0, program: str = STANDING) -> Generator[tuple[int, subprocess.Popen[str]]]:
    """A server in a process of its own, killed at the end: (the port that it prints, the process).

    Args:
        folder: of what it keeps.
        port: to listen at; 0: a free one.
        program: Python, with the folder and the port as arguments.
    """
    command = [sys.executable, "-c", program, str(folder), str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


def ask(service: Service, image: Values | None = None, **given) -> Values:
    """A client comes, asks for one image and goes; returns its logits.

    Args:
        service: of tests.he.networks.network, or of what the image is for.
        image: None: a random one.
        given: to the client besides.
    """
    with ServiceClient(service.address, "cleartext", **given) as remote:
        return run(remote.client, remote, random_image(network()) if image is None else image)[0]


def catalogue(**servers: Server) -> Catalogue:
    return Catalogue({name: ProgramVersion.of(name, server) for name, server in servers.items()})


@contextmanager
def serving(server, limits=None, access=PLAIN_SERVER, **more) -> Generator[Service]:
    """A service in a thread; when the block ends it must end too, without a thread left.

    Args:
        server: or a catalogue.
        limits: of the service.
        access: to it.
        more: ``books`` without limits and log, ``finished``, ``reload``; ``probes``: answer them at a port of their own.
    """
    lines, audit = Lines(), Lines()
    books = ServiceState(
        limits=limits or ServiceLimits(), log=Log(lines.append, "json", audit.append), **more.pop("books", {})
    )
    probes = more.pop("probes", False)
    offered = catalogue(only=server) if isinstance(server, Server) else server
    service = Service(offered, access=access, books=books, **more)
    service.lines, service.audited, service.books = lines, audit, books
    if probes:
        service.probes = service.answer_probes(("127.0.0.1", 0))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(20)
        assert not thread.is_alive()
        assert not [t for t in service._turns._worker._threads if t.is_alive()]
