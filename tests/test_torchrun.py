"""The scripts under torchrun, two processes on the CPU: one set of results, of one text, equal to one process's."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
TOLERANCE = 1e-3
"""Relative, in float32: a rounding is 6e-8, and some hundred steps of AdamW amplify it. Weaker than what
tests/train/test_distributed.py shows in float64; here the scripts are tested."""
SETTINGS = ["recipe.epochs=2", "recipe.batch_size=100", "recipe.optimizer=sgd", "recipe.mixup=0.2"]
pytestmark = pytest.mark.slow


def start(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )


def together(script: str, *settings: str) -> subprocess.CompletedProcess[str]:
    return start("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"{script}.py", *settings)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Trained by one process and by two."""
    root = tmp_path_factory.mktemp("outputs")
    alone, both = start("train.py", f"out={root}/one", *SETTINGS), together("train", f"out={root}/two", *SETTINGS)
    assert alone.returncode == both.returncode == 0, alone.stderr + both.stderr
    assert both.stdout.count("train: digits_resnet on digits") == 1
    assert both.stdout.count("train (epochs)") == alone.stdout.count("train (epochs)")
    return root


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def test_training(root):
    one, two = root / "one", root / "two"
    assert sorted(path.name for path in two.iterdir()) == sorted(path.name for path in one.iterdir())
    for entry, expected in zip(summary(two)["history"], summary(one)["history"], strict=True):
        assert entry["loss"] == pytest.approx(expected["loss"], rel=TOLERANCE)
    weights, expected = (load_file(folder / "checkpoint.safetensors") for folder in (two, one))
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert (weights[name] - value).abs().max() <= TOLERANCE * value.abs().max(), name


def test_searching(root):
    settings = [f"init={root}/two", "samples=33", "he.profile=counted", "race=2"]
    runs = start("search.py", f"out={root}/alone", *settings), together("search", f"out={root}/both", *settings)
    for run in runs:
        assert run.returncode == 0, run.stderr
        assert run.stdout.count("search: block sizes") == 1
    alone, both = summary(root / "alone"), summary(root / "both")
    assert both["block_sizes"] == alone["block_sizes"]
    assert both["latency"] == alone["latency"]
    for name, sizes in alone["sensitivity"].items():
        assert both["sensitivity"][name] == pytest.approx(sizes, rel=TOLERANCE), name
    for plan, expected in zip(both["candidates"], alone["candidates"], strict=True):
        assert plan["raced"] == pytest.approx(expected["raced"], rel=TOLERANCE), plan["name"]


def test_an_error_of_one_process_ends_all(root, tmp_path):
    """Only the first process writes: it fails after an epoch, while the other waits for the next step's gradients."""
    (tmp_path / "resume.pt").mkdir()
    ended = together("train", f"out={tmp_path}", *SETTINGS)
    assert ended.returncode != 0
    assert "IsADirectoryError" in ended.stderr


def test_a_broken_rule_is_told_on_one_line():
    """By whichever process comes to it first: torchrun may end the others before they do."""
    ended = together("train", "data.name=digitz")
    assert ended.returncode != 0
    found = re.findall(r"^error(?: \(process 1\))?: data.name must be a known one: got 'digitz'", ended.stderr, re.M)
    assert 1 <= len(found) <= 2
