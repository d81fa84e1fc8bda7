"""serve.py and infer.py server= as a user runs them: two commands, two processes, gRPC on loopback, plain and TLS."""

import dataclasses
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from privcirnet.artifact.summaries import InferenceSummary, read_record
from privcirnet.cli.serve import reached
from privcirnet.data import load
from privcirnet.runs.compiled import infer
from privcirnet.service.client import ServiceClient
from tests.conftest import ROOT
from tests.scripts import STAGES, call, documented, refused, summary

IMAGES = 2


@pytest.fixture(scope="module")
def root(digits_chain, tmp_path_factory):
    """The stages' folders, in one in which servers write what they need."""
    folder = tmp_path_factory.mktemp("served")
    for stage in STAGES:
        (folder / stage).symlink_to(digits_chain / stage)
    return folder


@pytest.fixture(scope="module")
def server(root):
    """serve.py in its own process: (it, its address, what it printed so far, images that clients ran: added by tests)."""
    command = [sys.executable, "serve.py", f"root={root}", "port=0", "sessions=2", "metrics=127.0.0.1:0"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, and inherited so, in a shell's "&"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        signal.signal(signal.SIGINT, before)
        lines = []
        while "command" not in (line := process.stdout.readline()):
            assert line, "it ended"
            lines.append(line)
        lines.append(line)
        yield process, re.search(r"server=(\S+)", line)[1], "".join(lines), (ran := [])
        process.send_signal(signal.SIGINT)
        try:
            rest, _ = process.communicate(timeout=20)
        finally:
            process.kill()
        assert process.returncode == 0
        assert rest.endswith("stopped\n")
        assert rest.count(" image client=") >= sum(ran)


@pytest.mark.slow
def test_the_server_says_what_a_client_needs(server):
    _, address, printed, _ = server
    for words in (f"{address}, plain, on loopback, 2 clients at once; Ctrl-C ends it", "rounds an image", "MB so far"):
        assert words in printed
    assert "images of 1 x 8 x 8 integers in [0, 16]; a session takes" in printed
    assert "image 1 of 1, square" in printed, "the rehearsal"


@pytest.fixture(scope="module")
def audited(root, tmp_path_factory):
    """Two processes and the audit of one."""
    out = tmp_path_factory.mktemp("audited")
    with pytest.MonkeyPatch.context() as patch:
        call(patch, "infer", f"root={root}", f"images={IMAGES}", "processes=2", f"out={out}")
    return summary(out)


@pytest.mark.slow
def test_two_processes_are_exact(audited):
    audit = audited["audit"]
    assert (audit["processes"], audited["images"], audit["logits_equal"]) == (2, IMAGES, IMAGES)
    assert audit["wrong_nodes"] == []
    assert set(audited) == documented("infer")
    assert min(audited["memory"].values()) > 1e7


def test_a_client_alone_gets_the_same_result_without_the_program(root, server, audited, tmp_path, monkeypatch, capsys):
    """Up to truncations; it is not even told where the program is."""
    settings = f"images={IMAGES}", f"root={tmp_path}", f"reference={root / 'finetune'}"
    call(monkeypatch, "infer", f"server={server[1]}", *settings)
    server[3].append(IMAGES)
    found = summary(tmp_path, "client")
    assert set(found) == documented("infer server=")
    assert set(found["layers"][0]) == documented("infer server= layers")
    for name in ("bytes_keys", "top1_float", "images"):
        assert found[name] == audited[name], name
    cost = found["cost"]
    for name in ("rounds", "bytes_up", "bytes_down"):
        assert cost[name] == audited["cost"][name], name
    for mine, other in zip(found["predictions"], audited["predictions"], strict=True):
        assert (mine["label"], mine["float"]) == (other["label"], other["float"])
        assert np.abs(np.subtract(mine["logits"], other["logits_clear"])).max() < 0.1 * audited["audit"]["logit_range"]
    shown = capsys.readouterr().out
    assert f"image {IMAGES} of {IMAGES}, square, {(cost['bytes_up'] + cost['bytes_down']) / 1e6:.1f} MB" in shown
    assert "infer: the first 2 images" in shown
    assert f"{cost['rounds']:.0f} rounds an image" in shown


def test_a_client_without_a_reference(root, server, monkeypatch, tmp_path):
    call(monkeypatch, "infer", f"server={server[1]}", "images=1", "reference=", f"out={tmp_path}")
    found = summary(tmp_path)
    assert "top1_float" not in found
    assert "float" not in found["predictions"][0]


def test_a_client_finds_what_it_prepared(server, monkeypatch, capsys, tmp_path):
    """Three inferences are prepared for one image; the next run uses the other two and makes no keys."""
    folder, found = tmp_path / "prepared", []
    for images, prepare in ((1, 3), (2, 3), (1, 0)):
        settings = f"images={images}", f"prepare={prepare}", f"prepared_folder={folder}", f"out={tmp_path / 'out'}"
        call(monkeypatch, "infer", f"server={server[1]}", "reference=", "overwrite=true", *settings)
        found.append(read_record(InferenceSummary, tmp_path / "out" / "summary.json"))
    first, second, third = found
    assert [run.phases.prepared for run in found] == [1, 2, 0], "the last one waits"
    assert [run.bytes_keys > 0 for run in found] == [True, False, True]
    assert [run.phases.offline is None for run in found] == [False, True, False]
    assert second.phases.online.bytes == first.phases.online.bytes == second.cost.bytes
    assert first.phases.offline.bytes > 10 * second.cost.bytes
    assert third.phases.online.bytes == first.phases.online.bytes < third.cost.bytes
    shown = capsys.readouterr().out
    assert re.search(r"prepared +1 of 1 images, before", shown)
    assert "an image, its preparation" in shown
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "owner"]
    error = refused(monkeypatch, capsys, "infer", f"prepared_folder={folder}")
    assert "prepared_folder is for the client of server=: got" in error
    assert "tls is for the client of server=: got trial" in refused(monkeypatch, capsys, "infer", "tls=trial")


def test_a_client_shows_how_far_it_is(server):
    """Every round, with the bytes so far."""
    host, port = server[1].split(":")
    image, steps = load("digits").held_out(1)[0].numpy().astype(np.int64), []
    for _ in range(50):  # until the connections of the test before are forgotten
        try:
            with ServiceClient((host, int(port))) as remote:
                found = infer(remote, image, progress=steps.append)
            break
        except ValueError:
            time.sleep(0.1)
    assert len(steps) == len(found.answers[-1].traffic)
    assert steps[-1].images == 1
    assert [s.bytes for s in steps] == sorted(s.bytes for s in steps)
    assert steps[-1].bytes == sum(found.answers[-1].bytes)


def test_a_killed_server_is_one_line(root, monkeypatch, capsys, tmp_path):
    command = [sys.executable, "serve.py", f"root={root}", "port=0", "engine=cleartext", "warm_up=false"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        address = next(found[1] for line in process.stdout if (found := re.search(r"server=(\S+)", line)))
        host, port = address.split(":")
        with ServiceClient((host, int(port)), "cleartext") as remote:
            process.kill()
            process.wait()
            with pytest.raises(
                ValueError, match=r"a (peer must stay until both are done|server must listen at its address): got"
            ):
                infer(remote, load("digits").held_out(1)[0].numpy().astype(np.int64))
    error = refused(monkeypatch, capsys, "infer", f"server={address}", "reference=", f"out={tmp_path / 'out'}")
    assert re.search(r"a server must listen at its address: got .*refused", error)


@pytest.mark.parametrize(
    ("script", "overrides", "match"),
    [
        (
            "infer",
            ["server=http://127.0.0.1:5050/"],
            "must be HOST:PORT: got 'http://127.0.0.1:5050/'; leave http:// out: server=127.0.0.1:5050",
        ),
        ("infer", ["server=here"], "a server's address must be HOST:PORT: got 'here'; e.g. server=127.0.0.1:5050"),
        ("infer", ["processes=3"], r"processes must be in \[1, 2\]: got 3; use 1"),
        ("infer", ["timeout_s=0"], "timeout_s must be above 0: got 0.0; use 600"),
        ("serve", ["port=70000"], r"port must be in \[0, 65535\]: got 70000"),
        ("serve", ["sessions=0"], "sessions must be at least 1: got 0"),
        ("serve", ["age_s=0"], "age_s must be above 0: got 0.0"),
        ("serve", ["grace_s=-1"], "grace_s must be at least 0: got -1.0"),
        ("serve", ["metrics=9090"], r"must be HOST:PORT: got '9090'; e.g. metrics=127.0.0.1:5050"),
        ("serve", ["log=xml"], "log must be a known one: got 'xml'"),
        ("serve", ["quota.keys=0"], "a quota must have"),
        ("serve", ["keys.days=0"], "a store of keys must have"),
        ("serve", ["state=/dev/null"], "state must be a folder that can be written: got /dev/null"),
        ("serve", ["host=0.0.0.0"], "host beyond loopback needs tls=: got 0.0.0.0"),
        ("serve", ["tls=nowhere"], "a folder for TLS must have its files: got nowhere/server.crt"),
        ("infer", ["server=127.0.0.1:1", "tls=nowhere", "reference="], "a folder for TLS must have its files"),
        ("serve", ["timeout_s=-1"], "timeout_s must be above 0: got -1.0"),
        ("serve", ["program=nowhere"], "a program's manifest must exist"),
        (
            "serve",
            ["program=nowhere", "state=redis://127.0.0.1:1/0"],
            "the state that replicas share must be within reach",
        ),
    ],
)
def test_bad_settings(root, monkeypatch, capsys, script, overrides, match):
    assert re.search(match, refused(monkeypatch, capsys, script, f"root={root}", *overrides))


@pytest.mark.parametrize("program", [[], ["program=nowhere"]])
def test_a_port_that_is_taken_is_one_line_before_anything_is_read(root, server, monkeypatch, capsys, program):
    settings = f"root={root}", f"port={server[1].split(':')[1]}", "engine=cleartext", *program
    words = f"able to listen at its address: got {server[1]}: Address already in use"
    assert words in refused(monkeypatch, capsys, "serve", *settings)


def test_a_server_at_all_addresses_is_named_to_clients():
    """Its certificate is for the machine's name, and 0.0.0.0 is every machine itself."""
    assert reached(("0.0.0.0", 5050)) == f"{socket.gethostname()}:5050"
    assert reached(("::", 5050)) == f"{socket.gethostname()}:5050"
    assert reached(("10.0.0.7", 5050)) == "10.0.0.7:5050"


def test_a_program_that_serves_has_no_room_for_a_pipe(root):
    """Only a harness in the same process can be told shares; nothing in serve.py's settings names one."""
    from privcirnet.config import ServeConfig

    names = {field.name for field in dataclasses.fields(ServeConfig)}
    assert not [name for name in names if any(word in name for word in ("finished", "share", "pipe", "audit", "debug"))]
    assert "finished" not in (ROOT / "serve.py").read_text() + (ROOT / "privcirnet/cli/serve.py").read_text()
