"""infer.py ui=true as a user runs it: a command, its page, its server in a process of its own, Ctrl-C."""

import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest

from privcirnet.artifact.program import write_ckks, write_program
from privcirnet.cli import infer
from privcirnet.config import InferConfig
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.server import Server
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.server import Service
from tests.artifact.samples import ckks_program
from tests.conftest import ROOT
from tests.page import samples
from tests.scripts import refused
from tests.service.running import until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("outputs") / "program"
    write_program(found, samples.program(), {})
    return found


@contextmanager
def running(*settings):
    """The command: its page's address, and what it printed before."""
    command = [sys.executable, "infer.py", "ui=true", "engine=cleartext", *settings]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, and inherited so, in a shell's "&"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        signal.signal(signal.SIGINT, before)
        printed = []
        while "keep " not in (line := process.stdout.readline()):
            assert line, "it ended"
            printed.append(line)
        try:
            yield re.search(r"http://\S+", "".join(printed))[0], " ".join("".join(printed).split())
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=90)
        finally:
            process.kill()
        assert (process.returncode, rest) == (0, ""), "it ends without a word"


def post(address: str, content: bytes = b"") -> str:
    origin = "/".join(address.split("/")[:3])
    request = urllib.request.Request(address, data=content, headers={"Origin": origin}, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def test_the_page_s_own_server_is_warmed_up_before_the_page_is_there(folder, monkeypatch, tmp_path):
    warmed = []
    monkeypatch.setattr(infer, "warm_up", lambda client, server: warmed.append((client, server)))
    settings = InferConfig(root=str(tmp_path), program=str(folder.parent), engine="cleartext", ui=True)
    with infer._connected(settings, PreparedWork(None)) as remote:
        assert warmed == [(remote.party, remote)]


@pytest.mark.slow
def test_the_page_has_a_server_of_its_own(folder):
    with running(f"program={folder}") as (address, printed):
        assert (
            "infer: a page for digits, its server is another process of this machine, NOTHING IS ENCRYPTED" in printed
        )
        told = post(f"{address}classify/0") + post(f"{address}classify", samples.picture())
        assert told.count("event: answer") == 2
        assert told.count("event: reply") == 4
        with pytest.raises(HTTPError, match="403"):
            urllib.request.urlopen(address.replace(address.split("/")[3], "guessed"), timeout=60)


@pytest.mark.slow
def test_the_page_prepares_while_nobody_waits(folder):
    with running(f"program={folder}", "prepare=2") as (address, _):
        for _ in range(2):
            until(lambda: '"prepared":2' in urllib.request.urlopen(f"{address}stock", timeout=60).read().decode(), 60)
            assert '"prepared": true' in post(f"{address}classify/0")


@pytest.mark.slow
def test_the_page_is_a_client_of_another_server(folder, tmp_path):
    """Without the data set's files there are no test images; uploads are classified all the same."""
    server = Service(Catalogue({"only": ProgramVersion.of("only", Server(samples.program(3, 255), "cleartext"))}))
    threading.Thread(target=server.run, daemon=True).start()
    address = ":".join(map(str, server.address))
    settings = f"server={address}", "data=cifar10", f"data.root={tmp_path}", "program=nowhere"
    with running(*settings) as (page, printed):
        assert f"server {address}" in printed
        facts = urllib.request.urlopen(f"{page}facts", timeout=60).read().decode()
        assert "No test images: " in facts
        told = post(f"{page}classify", samples.picture())
        assert '"name": "class ' in told
        server.stop()
    assert "event: answer" in told


@pytest.mark.slow
def test_a_ckks_program_has_a_page(tmp_path):
    write_ckks(tmp_path / "program", ckks_program(), {})
    settings = f"program={tmp_path / 'program'}", "mode=ckks", "data=cifar10", f"data.root={tmp_path}"
    with running(*settings) as (address, _):
        told = post(f"{address}classify", samples.picture())
    assert told.count("event: answer") == told.count("event: reply") == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["server=127.0.0.1:9"], "a server must listen at its address"),
        (["program=nowhere"], "a program's manifest must exist"),
        (["ui=99999"], "ui must be in [0, 65535]: got 99999; use 0"),
    ],
)
def test_what_is_missing_is_one_line(monkeypatch, capsys, settings, words):
    assert words in refused(monkeypatch, capsys, "infer", "ui=true", "engine=cleartext", *settings)


@pytest.mark.slow
def test_a_port_that_is_taken_is_one_line(monkeypatch, capsys, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        at = f"program={folder}", "engine=cleartext", f"ui={port}"
        assert "listen at its port: got 127.0.0.1" in refused(monkeypatch, capsys, "infer", "ui=true", *at)
