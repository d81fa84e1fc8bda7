"""Both ends of TCP connections on loopback."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

from privcirnet.he.protocol.server import Server
from privcirnet.he.protocol.transport.server import ConnectionLimits, TcpServer


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        return here, listener.accept()[0]


class Guarded(TcpServer):
    """A service that remembers what it logged."""

    def __init__(self, server: Server, limits: ConnectionLimits, **more: object) -> None:
        self.lines: list[str] = []
        super().__init__(server, limits=limits, log=self.lines.append, **more)


@contextmanager
def serving(server: Server, limits: ConnectionLimits | None = None, **more: object) -> Generator[Guarded]:
    """A service in a thread; when the block ends it must end too, without a thread left."""
    service = Guarded(server, limits or ConnectionLimits(), **more)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(20)
        assert not thread.is_alive()
        assert not [t for t in threading.enumerate() if t.name.startswith("client ")]
