"""Bars of the scripts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from privcirnet import console
from privcirnet.console import counting, progress_bar


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


def test_help_that_nobody_reads_to_its_end():
    """`--help | head -1`."""
    root = Path(__file__).parents[1]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "bench.py", "--help"], stdout=write, stderr=subprocess.PIPE, text=True, cwd=root, check=False
    )
    os.close(write)
    assert done.stderr == ""
