"""Settings and bars of the scripts."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra._internal.hydra import Hydra
from rich.console import Console

from privcirnet.cli import console
from privcirnet.cli.console import counting, fail, progress_bar, readable_errors


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (160, 1)])
def test_a_bar_moves_within_an_epoch_and_has_room_for_its_note(monkeypatch, capsys, width, lines):
    monkeypatch.setattr(console, "console", Console(width=width, highlight=False))
    note = "loss 0.332  top-1 99.17 %  12,345 images/s"
    with progress_bar("finetune (preparation)", 40) as advance:
        advance(note, to=2.5)
    drawn = capsys.readouterr().out
    assert "2/40" in drawn
    assert note in drawn
    assert len(drawn.splitlines()) == lines


def test_a_bar_appears_with_the_first_step_only(capsys):
    with counting("Images") as step:
        assert capsys.readouterr().out == ""
        step(3, 9)
        step(9, 9)
    assert "9/9" in capsys.readouterr().out
    with counting("Images"):
        pass
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train.py", "interrupted; the same command resumes from the last epoch"),
        ("privcirnet ladder", "interrupted; the same command continues"),
        ("export.py", "interrupted"),
    ],
)
def test_an_interrupted_command_says_what_goes_on(monkeypatch, capsys, command, said):
    monkeypatch.setattr(sys, "argv", [command])
    with pytest.raises(SystemExit, match="130"), readable_errors():
        raise KeyboardInterrupt
    assert capsys.readouterr().err == f"error: {said}\n"


def test_help_that_nobody_reads_to_its_end():
    """`--help | head -1`."""
    root = Path(__file__).parents[2]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "bench.py", "--help"], stdout=write, stderr=subprocess.PIPE, text=True, cwd=root, check=False
    )
    os.close(write)
    assert done.stderr == ""


@pytest.mark.parametrize(("own", "times"), [([], 1), (["hydra.job.name=other"], 3)])
def test_settings_are_composed_once_unless_hydra_runs_for_its_own(monkeypatch, capsys, tmp_path, own, times):
    composed, compose = [], Hydra.compose_config
    monkeypatch.setattr(Hydra, "compose_config", lambda *a, **k: (composed.append(a), compose(*a, **k))[1])
    monkeypatch.setattr(sys, "argv", ["infer.py", f"program={tmp_path / 'none'}", *own])
    with pytest.raises(SystemExit):
        importlib.import_module("infer").main()
    assert f"error: a program's manifest must exist: got {tmp_path / 'none'}" in capsys.readouterr().err
    assert len(composed) == times


def test_a_command_fails_in_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        fail("no result can be used")
    assert (ended.value.code, capsys.readouterr().err) == (1, "error: no result can be used\n")
