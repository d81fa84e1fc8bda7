"""The chain of a CKKS program as a user meets it: its summaries, bad input in one line, and nothing half-written."""

import json
import re
import subprocess
import sys
import time

import pytest

from privcirnet.artifact.ckks import read_ckks
from tests.artifact.samples import contents
from tests.conftest import ROOT
from tests.scripts import FORMATS, call, refused

SMALL = ("model=resnet20_cifar", *(f"+model.arguments.{a}" for a in ("activation=aespa", "width=4", "blocks=1")))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A residual network of an epoch, its program at n = 65536, and two images through the twin in clear."""
    folder = tmp_path_factory.mktemp("ckks")
    with pytest.MonkeyPatch.context() as patch:
        size, recipe = "+model.arguments.image_size=8", ("recipe.epochs=1", "recipe.clip_gradient=1")
        call(patch, "train", f"root={folder}", *SMALL, size, *recipe)
        call(patch, "export", f"root={folder}", f"init={folder}/train", "mode=leveled", "leveled.scheme=ckks")
        call(patch, "infer", *_infer(folder))
    return folder


def _infer(root, *more):
    return [f"root={root}", f"reference={root}/train", "mode=leveled", "engine=cleartext", "images=2", *more]


@pytest.mark.parametrize(
    ("stage", "row"), [("export", "export leveled.scheme=ckks"), ("infer", "infer mode=leveled` of a CKKS")]
)
def test_the_formats_name_every_key(root, stage, row):
    (described,) = [line for line in FORMATS.splitlines() if line.startswith(f"| `{row}")]
    known = set(re.findall(r"`(\w+)`", described))
    if stage == "infer":
        known |= set(re.findall(r"`(\w+)`", next(o for o in FORMATS.splitlines() if o.startswith("| `infer` |"))))
    folder = "infer_rehearsal" if stage == "infer" else stage
    missing = json.loads((root / folder / "summary.json").read_text()).keys() - known
    assert not missing


def test_the_chain_says_what_it_is(root):
    folders = "export", "infer_rehearsal"
    exported, inferred = (json.loads((root / folder / "summary.json").read_text()) for folder in folders)
    assert (exported["scheme"], inferred["scheme"], inferred["mode"]) == ("ckks", "ckks", "leveled")
    assert exported["bootstrappings"] == inferred["bootstrappings"] == 3
    assert exported["precision_bits"] == inferred["precision_bits"]
    assert inferred["argmax_equal"] == 2
    assert 15 < inferred["logits_bits"] < 40
    assert (root / "infer_rehearsal" / "images.npz").is_file()
    assert read_ckks(root / "export" / "program").log_step == -4


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (("leveled.scheme=other",), "leveled.scheme must be a known one"),
        (("leveled.plan=maps",), "leveled.plan is for leveled.scheme=bfv"),
        (("leveled.examples=0",), "leveled.examples must be at least 1"),
    ],
)
def test_an_export_that_is_refused_leaves_the_old_program(root, monkeypatch, capsys, settings, rule):
    before = contents(root / "export" / "program")
    given = f"root={root}", f"init={root}/train", "mode=leveled", "leveled.scheme=ckks", *settings
    assert rule in refused(monkeypatch, capsys, "export", *given)
    assert contents(root / "export" / "program") == before


def test_an_inference_that_is_refused_leaves_nothing(root, monkeypatch, capsys):
    """Settings that are not for it, keys beyond their budget, a folder that was changed."""
    out = f"out={root}/refused"
    for setting, rule in (
        ("processes=2", "a CKKS program runs in one process"),
        ("throttle=wan", "a CKKS program runs in one process"),
        ("engine=tenseal", "a CKKS program runs with engine=kernel or cleartext"),
        ("keys_gb=0", "keys_gb must be positive"),
        ("mode=interactive", "a CKKS program is run by serve.py, or by infer.py in one process"),
    ):
        assert rule in refused(monkeypatch, capsys, "infer", *_infer(root, out, setting))
    keys = _infer(root, out, "engine=kernel", "keys_gb=1")
    assert "keys must fit keys_gb = 1: got 4.56 GB" in refused(monkeypatch, capsys, "infer", *keys)
    weights = root / "export" / "program" / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert "must match their checksums" in refused(monkeypatch, capsys, "infer", *_infer(root, out))
    weights.write_bytes(whole)
    assert not (root / "refused").exists()


@pytest.mark.slow
def test_a_search_knows_the_family(root, monkeypatch, capsys):
    """It prices every block size as dense weights, and so chooses dense ones."""
    call(
        monkeypatch, "search", f"root={root}", "mode=leveled", "leveled.scheme=ckks", "he.profile=counted", "samples=8"
    )
    found = json.loads((root / "search" / "summary.json").read_text())
    assert {*found["block_sizes"].values()} == {1}
    assert found["leveled"]["bootstrappings"] == 3
    seconds = found["leveled"]["seconds_layers"] + found["leveled"]["seconds_bootstrapping"]
    assert found["latency_predicted_s"] == pytest.approx(seconds)
    assert "no block size is faster" in capsys.readouterr().out


def test_what_is_no_ckks_network_is_refused(digits_chain, monkeypatch, capsys, tmp_path):
    given = f"root={tmp_path}", f"init={digits_chain}/train", "mode=leveled", "leveled.scheme=ckks"
    assert "a network in CKKS cannot have" in refused(monkeypatch, capsys, "export", *given)
    assert not (tmp_path / "export").exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["export", "infer"])
def test_a_killed_run_leaves_nothing(root, script):
    """Killed at three points of it, the last while the simulator or the images run; a run that was faster is whole."""
    given = [f"root={root}", f"init={root}/train", "mode=leveled", "leveled.scheme=ckks"]
    given = given if script == "export" else _infer(root, "images=200")
    for seconds in (3, 5, 8):
        out = root / f"killed {script} {seconds}"
        command = [sys.executable, f"{script}.py", *given, f"out={out}"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(seconds)
            process.kill()
        assert not out.exists() or json.loads((out / "summary.json").read_text())["stage"] == script
