"""A proxy between clients and replicas that can be cut at any moment: all of its connections end at once."""

import select
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress


class Relay:
    """Passes bytes on, at an address of its own.

    Attributes:
        target: of the connections to come.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self, target: tuple[str, int] | None = None) -> None:
        """End all connections; later ones lead to ``target``, if one is named."""
        self.target = target or self.target
        for end in [*self._open]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut, and listen no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._pass_on, args=(near, self.target))
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, near: socket.socket, target: tuple[str, int]) -> None:
        with near, suppress(OSError), socket.create_connection(target) as far:
            ends = {near: far, far: near}
            self._open.update(ends)
            try:
                while True:
                    for source in select.select([*ends], [], [])[0]:
                        if not (data := source.recv(1 << 16)):
                            return
                        ends[source].sendall(data)
            finally:
                self._open.difference_update(ends)


@contextmanager
def relaying(target: tuple[str, int]) -> Generator[Relay]:
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
