"""``python -m papers.falcon2020`` as a user meets it: from the ladder's network to answers that are compared."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.scripts import call, refused

COMMAND = "papers.falcon2020.command"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """LoLa's network for digits, circulant in the second layer, an epoch of each training."""
    root = tmp_path_factory.mktemp("falcon2020")
    short = [f"stages.{stage}.recipe.epochs=1" for stage in ("train", "finetune")]
    words = [sys.executable, "ladder.py", "experiment=lola_digits", f"root={root}", *short]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, timeout=600)
    return root


def summary(folder):
    return json.loads((folder / "falcon2020" / "summary.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "processes"), [("kernel", 1), ("kernel", 2), ("tenseal", 1)])
def test_every_image_is_the_integer_network_s(root, monkeypatch, capsys, engine, processes):
    given = "images=2", f"engine={engine}", f"processes={processes}", "overwrite=true"
    call(monkeypatch, COMMAND, f"root={root}", *given)
    found, said = summary(root), capsys.readouterr().out
    audit, cost = found["audit"], found["cost"]
    assert (audit["logits_equal"], audit["wrong_nodes"], cost["rounds"]) == (2, [], 1)
    assert found["program"]["block_sizes"] == {"conv": 1, "fc1": 8, "fc2": 1}
    assert min(cost["bytes_up"], cost["bytes_down"], found["bytes_keys"], cost["seconds"]) > 0
    assert "2 of 2 images follow the integer network exactly" in said


@pytest.mark.slow
def test_a_program_without_images_is_what_it_takes(root, monkeypatch):
    call(monkeypatch, COMMAND, f"root={root}", "images=0", "plan=periodic", "overwrite=true")
    found = summary(root)
    assert (found["program"]["planner"], found["program"]["security_bits"]) == ("periodic", 128)
    assert "audit" not in found


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("plan=other", "plan must be a known one"),
        ("weight_bits=40", "weight_bits must be in [2, 16]"),
        ("pixel_bits=0", "pixel_bits must be in [1, 8]"),
        ("images=-1", "images must be 0 or more"),
        ("init=nowhere", "the result of train.py must exist"),
    ],
)
def test_what_is_refused_is_one_line(monkeypatch, capsys, tmp_path, setting, rule):
    assert rule in refused(monkeypatch, capsys, COMMAND, f"root={tmp_path}", setting)
