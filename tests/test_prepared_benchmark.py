"""The benchmarks of prepared inference as a user runs them, on a small program and an engine that hides nothing."""

import importlib
import json
import re
import sys

import pytest

from tests.conftest import ROOT

MODULES = ("prepared", "endurance", "phases", "untrained", "network_coverage")


@pytest.fixture
def script(monkeypatch):
    """A script of benchmarks/ by name, imported as when it is run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module
    for name in MODULES:
        sys.modules.pop(name, None)


def run(module, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words), "--engine", "cleartext"])
    module.main()


@pytest.mark.slow
def test_phases_are_measured_in_turns_and_go_on(script, small_program, tmp_path, monkeypatch, capsys):
    module, out = script("prepared"), tmp_path / "out"
    monkeypatch.setattr(module, "_CONNECTIONS", 2)
    words = "--programs", f"toy={small_program}", "--out", out
    run(module, monkeypatch, *words, "--turns", 1)
    first = json.loads((out / "toy.json").read_text())
    assert (first["wrong"], len(first["turns"]), len(first["connections"])) == ([], 1, 2)
    run(module, monkeypatch, *words, "--turns", 2)
    row = json.loads((out / "toy.json").read_text())
    assert row["turns"][0] == first["turns"][0]
    assert len(row["turns"]) == 2
    phases = module.figures(row)
    assert phases["online"]["bytes"] < phases["preparation"]["bytes"]
    assert phases["online"]["links"]["wan"]["round_trips"] == pytest.approx(0.08 * phases["online"]["rounds"])
    assert "| toy | online |" in (out / "prepared.md").read_text()
    monkeypatch.setattr(module, "start_server", None)  # nothing is measured again
    run(module, monkeypatch, *words, "--turns", 2)
    assert "| toy | online |" in capsys.readouterr().out


def test_block_sizes_have_a_table_and_a_picture(script, tmp_path):
    module = script("prepared")
    for b, seconds in ((1, 4.0), (8, 1.0)):
        phase = {"client": 0.1, "bytes": 1e6, "rounds": 2}
        turn = {name: phase | {"seconds": seconds} for name in ("preparation", "online")}
        row = {"network": "toy", "title": "Toy", "block_size": b, "n": 8192, "log_q": 214, "t_bits": 50, "load": 0.0}
        row["cores"] = 2
        row |= {"turns": [turn], "connections": [{"seconds": 1.0, "bytes": 9}] * 2, "server_bytes": 1e9, "wrong": []}
        (tmp_path / f"toy-b{b}.json").write_text(json.dumps(row))
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{module.BEGIN}old\n{module.END}After.\n")
    module.report(tmp_path, page)
    assert (tmp_path / "page_blocks.png").read_bytes().startswith(b"\x89PNG")
    assert re.fullmatch(r"Before\.\n.*\n\| Toy, b = 8 \| online \|.*After\.\n", page.read_text(), re.DOTALL)
    assert "old" not in page.read_text()
    module.report(tmp_path, None)
    assert "| Toy | 8 | 1.00 | 1.000 | 2.00 | 4.00 |" in (tmp_path / "prepared.md").read_text()
    assert (tmp_path / "block_sizes.png").read_bytes().startswith(b"\x89PNG")


def test_the_verdict_on_many_in_a_row(script, small_program, tmp_path, monkeypatch, capsys):
    module = script("endurance")
    run(module, monkeypatch, small_program, "--images", 5, "--count", 2, "--turns", 1, "--out", tmp_path)
    printed = capsys.readouterr().out
    found = json.loads(printed[printed.index("{\n") :])
    assert (found["prepared"], found["equal"], found["preparation"].keys()) == (5, 5, {"1", "2"})
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert kept["verdict"] == found["verdict"]
    samples = kept["samples"]
    assert found["verdict"]["store_flat"]
    assert max(one["left"] for one in samples) == 1
    later = [one | {"server_bytes": 2 * one["server_bytes"]} if one["image"] == 4 else one for one in samples]
    assert not module.verdict(found | {"samples": later})["server_memory_flat"]
    assert not module.verdict(found | {"samples": samples, "equal": 4})["all_equal"]
