"""The benchmark of replicas, shortly: a replica is killed while clients ask, and everything must hold."""

import importlib
import json
import shutil
import sys

import pytest

from tests.conftest import ROOT
from tests.page import samples

pytestmark = pytest.mark.slow


@pytest.fixture
def script(monkeypatch):
    """The script as it is imported when it is run."""
    pytest.importorskip("redis", reason="the redis extra is not installed")
    for names in (("nginx",), ("redis-server", "valkey-server"), ("taskset",)):
        if not any(shutil.which(name) or shutil.which(name, path="/usr/sbin") for name in names):
            pytest.skip(f"no {' or '.join(names)}")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("replicas")
    sys.modules.pop("replicas", None)


def run(script, monkeypatch, *words) -> int:
    monkeypatch.setattr(sys, "argv", ["replicas.py", *map(str, words), "--engine", "cleartext"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    return ended.value.code


def test_faults(script, digits_chain, tmp_path, monkeypatch, capsys):
    program = digits_chain / "export" / "program"
    settings = "--seconds", 15, "--every", 6, "--clients", 2, "--out", tmp_path
    assert run(script, monkeypatch, "faults", program, *settings) == 0, capsys.readouterr().out
    found = json.loads((tmp_path / "faults.json").read_text())
    assert found["kills"] >= 1
    assert found["clients"]["prepared"] > 0
    assert all(found["checks"].values())
    assert "no serial twice" in capsys.readouterr().out


def test_what_does_not_hold_is_said(script):
    """Each check fails for what it is there for."""
    given = type("Given", (), {"clients": 1, "tolerance": 0.1, "prepare": 1})
    samples_ = [script.Sample(0, 1.0, 0.1, "", True, 0.01), script.Sample(0, 2.0, 0.1, "", False, 0.5)]
    begun = {"event": "image begun", "prepared": True, "serial": "a"}
    lines = [begun | {"number": 1}, begun | {"number": 1}, {"event": "preparation begun", "count": 2, "number": 9}]
    seen = {"errors": {}, "crashed": 1}
    checks = script._checks(given, seen, samples_, 1, 9, lines)
    held = {name for name, holds, _ in checks if holds}
    assert held == {"there were answers and kills", "no more answers than begun"}


def test_throughput(script, tmp_path, monkeypatch, capsys):
    from privcirnet.artifact.program import write_program

    write_program(tmp_path / "program", samples.program(), {})
    settings = "--seconds", 4, "--turns", 1, "--clients", 1, "--out", tmp_path
    run(script, monkeypatch, "throughput", tmp_path / "program", *settings)
    measured = json.loads((tmp_path / "throughput.json").read_text())["measured"]
    for count in ("1", "2"):
        assert measured[count][0]["errors"] == 0
        assert all(measured[count][0][name] > 0 for name in ("images_per_second", "replicas", "clients", "nginx"))
    assert "times as fast as one" in capsys.readouterr().out
