"""Mutated messages against a running service: no crash, no hang, no growth, and a correct client is served.

10,000 in ``make test-all``, else an eighth of them.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from privcirnet.service import messages
from tests.conftest import ROOT
from tests.he.protocol import mutations
from tests.service.fuzz import MUTATIONS, PREPARED

MOST_SECONDS, GROWTH = 1200, 64 << 20
SHORT = ("opening", "chunk", "ahead agree", "ahead prepare")
"""Messages of which few mutations are right."""


def test_there_are_ten_thousand():
    assert sum(MUTATIONS.values()) + sum(PREPARED.values()) >= 10_000


@pytest.mark.parametrize("method", messages.METHODS.values(), ids=list(messages.METHODS))
def test_bytes_that_are_no_message_are_no_traceback(method):
    assert method.read_request(b"\xff" * 9) is None


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.slow
def test_mutated_messages(tmp_path):
    """Memory is compared from the fourth image of the correct client on: by then every path has been taken."""
    tried = tmp_path / "tried"
    tried.write_bytes(bytes(64))
    module = [sys.executable, "-m", "tests.service.fuzz"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    with subprocess.Popen([*module, "serve"], **pipes) as server:
        try:
            port = server.stdout.readline().strip()
            assert port, server.stderr.read()
            with subprocess.Popen([*module, port, str(tried)], **pipes) as driver:
                assert driver.stdout.read(4) == "....", driver.stderr.read()
                before = resident(server.pid)
                rest, error = driver.communicate(timeout=MOST_SECONDS)
            last = tried.read_bytes().decode().strip()
            assert driver.returncode == 0, f"at mutation {last}\n{error}"
            assert server.poll() is None, f"the service ended at mutation {last}"
            assert resident(server.pid) - before < GROWTH
        finally:
            server.kill()
        assert server.stderr.read() == "", "of a failure of the server's own"
    found = json.loads(rest.splitlines()[-1])
    assert {name: kind["tried"] for name, kind in found.items()} == mutations.due(MUTATIONS | PREPARED)
    for name, kind in found.items():
        assert kind["processed"] < kind["tried"] / 2, name
        assert kind["processed"] > kind["tried"] / 80 or name in SHORT, name
