"""A run that is killed in the middle of a step and started again ends with the weights of one that is left alone."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
SETTINGS = ["recipe.epochs=8", "recipe.ema=0.9", "recipe.mixup=0.2", "recipe.crop=1", "recipe.flip=true"]


def command(out: Path) -> list[str]:
    return [sys.executable, "train.py", f"out={out}", *SETTINGS]


def run(out: Path) -> None:
    done = subprocess.run(command(out), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_killed_at_a_random_step(tmp_path):
    run(tmp_path / "whole")
    killed = tmp_path / "killed"
    with subprocess.Popen(command(killed), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (killed / "resume.pt").exists():
            assert process.poll() is None, "it ended before its first epoch was saved"
            time.sleep(0.01)
        time.sleep(random.random() / 2)
        process.kill()
    assert not (killed / "summary.json").exists(), "the run was over before it was killed"
    (killed / ".resume.pt.abc.draft").write_bytes(b"killed while it was written")
    run(killed)
    recorded = [line.split(",")[:4] for line in (killed / "history.csv").read_text().splitlines()]
    assert len(recorded) == 9
    assert recorded == [line.split(",")[:4] for line in (tmp_path / "whole" / "history.csv").read_text().splitlines()]
    found, expected = (load_file(folder / "checkpoint.safetensors") for folder in (killed, tmp_path / "whole"))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert sorted(path.name for path in killed.iterdir()) == sorted(
        path.name for path in (tmp_path / "whole").iterdir()
    )
