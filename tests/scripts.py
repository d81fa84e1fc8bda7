"""The scripts in this process, what they leave, and what the docs say of it."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from privcirnet.runs import profiles
from tests.conftest import ROOT

FORMATS = (ROOT / "docs" / "formats.md").read_text()
STAGES = ("train", "search", "finetune", "qat", "export", "infer")


def call(monkeypatch: pytest.MonkeyPatch, script: str, *overrides: str) -> None:
    """Run a script in this process."""
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *overrides])
    importlib.import_module(script).main()


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str, *overrides: str) -> str:
    """Run a script that must stop with status 2; returns its one line of error."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        call(monkeypatch, script, *overrides)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert re.fullmatch(r"error: .+: got .+; .+\n", error), f"not rule, value, remedy, in one line: {error}"
    return error


def chain(folder: Path) -> None:
    """Run a short chain on the digits, from training to encrypted answers and the report; the machine is timed thrice."""
    at, calibrate = f"root={folder}", profiles.calibrate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiles, "calibrate", lambda n, bits, rounds, *more: calibrate(n, bits, 3, *more))
        call(patch, "train", at, "recipe.epochs=6")
        call(patch, "search", at, "samples=64")
        call(patch, "train", at, "recipe=finetune", "recipe.epochs=4")
        call(patch, "train", at, "recipe=qat", "recipe.epochs=1")
        call(patch, "export", at, "plaintexts=full")
        call(patch, "infer", at, "images=3")
        call(patch, "report", str(folder))


def summary(root: Path, stage: str = ".") -> dict:
    """What a stage wrote; without a stage, what lies in the folder itself."""
    return json.loads((root / stage / "summary.json").read_text())


def documented(stage: str) -> set[str]:
    """Top-level keys that docs/formats.md documents for a stage."""
    row = next(line for line in FORMATS.splitlines() if line.startswith("|") and f"`{stage}`" in line.split("|")[1])
    outside_brackets = re.sub(r"\([^()]*\)", "", row.split("|", 2)[2])
    return set(re.findall(r"`(\w+)`", outside_brackets))
