"""ladder.py as a user runs it: killed with its script, started again, left alone when everything is there."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

SETTINGS = ["chain=[train,finetune]", "stages.train.recipe.epochs=6", "stages.finetune.recipe.epochs=1"]
UNIFORM = ["++stages.finetune.recipe.uniform=4", "+stages.finetune.recipe.start=frobenius"]


def command(root: Path, *overrides: str) -> list[str]:
    return [sys.executable, "ladder.py", f"root={root}", *SETTINGS, *UNIFORM, *overrides]


def run(root: Path, *overrides: str) -> str:
    done = subprocess.run(command(root, *overrides), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def epochs(root: Path, stage: str) -> list[int]:
    return [entry["epoch"] for entry in json.loads((root / stage / "summary.json").read_text())["history"]]


@pytest.mark.slow
def test_killed_and_started_again(tmp_path):
    state = tmp_path / "train" / "resume.pt"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command(tmp_path), cwd=ROOT, start_new_session=True, **quiet) as process:
        while not state.exists():
            assert process.poll() is None, "it ended before its first epoch was saved"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (tmp_path / "train" / "summary.json").exists(), "the run was over before it was killed"
    first = (tmp_path / "train" / "history.csv").read_text().splitlines()[1]
    said = run(tmp_path)
    assert "train: to be run" in said
    assert f"train.py root={tmp_path} recipe=finetune" in said
    assert first in (tmp_path / "train" / "history.csv").read_text(), "it trained that epoch again"
    assert epochs(tmp_path, "train") == list(range(1, 7))
    before = (tmp_path / "train" / "checkpoint.safetensors").read_bytes()
    said = run(tmp_path, "stages.finetune.recipe.epochs=2")
    assert "train: complete" in said
    assert "finetune: again, with recipe.epochs=2 after 1" in said
    assert epochs(tmp_path, "finetune") == [1, 2]
    assert (tmp_path / "train" / "checkpoint.safetensors").read_bytes() == before


@pytest.mark.slow
def test_several_ladders_in_one_command(tmp_path):
    varied = ["stages.train.recipe.epochs=0", "stages.finetune.recipe.epochs=0", "++stages.finetune.recipe.uniform=2,4"]
    words = [*command(tmp_path / "b${stages.finetune.recipe.uniform}", *varied, f"hydra.sweep.dir={tmp_path}"), "-m"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = {b: json.loads((tmp_path / f"b{b}" / "finetune" / "summary.json").read_text()) for b in (2, 4)}
    assert {b: max(summary["block_sizes"].values()) for b, summary in found.items()} == {2: 2, 4: 4}


@pytest.mark.slow
def test_a_stage_s_error_is_one_line_and_its_status_the_ladder_s(tmp_path):
    done = subprocess.run(
        command(tmp_path, "experiment=mobilenetv2_cifar10_short", f"data.root={tmp_path}"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the images must be there: got nothing in {tmp_path}")
    assert done.stderr.count("\n") == 1
    assert "ladder: train ended with status 2; the same command continues" in done.stdout
