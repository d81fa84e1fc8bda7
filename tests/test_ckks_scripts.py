"""Chains of CKKS as a user meets them: summaries, bad input in one line, and nothing half-written."""

import json
import re
import subprocess
import sys
import time

import pytest

from privcirnet.artifact.program import read_ckks
from tests.artifact.samples import contents
from tests.conftest import ROOT
from tests.scripts import FORMATS, call, refused, summary

SMALL = ("model=resnet20_cifar", *(f"+model.arguments.{a}" for a in ("activation=aespa", "width=4", "blocks=1")))
TRAIN = (*SMALL, "+model.arguments.image_size=8", "recipe.epochs=1", "recipe.clip_gradient=1")


def _export(root, *more):
    return [f"root={root}", f"init={root}/train", "mode=ckks", *more]


def _infer(root, *more):
    return [f"root={root}", f"reference={root}/train", "mode=ckks", "engine=cleartext", "images=2", *more]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A network of an epoch, its program at n = 65536, and two images through the twin in clear."""
    root = tmp_path_factory.mktemp("ckks")
    with pytest.MonkeyPatch.context() as patch:
        call(patch, "train", f"root={root}", *TRAIN)
        call(patch, "export", *_export(root))
        call(patch, "infer", *_infer(root))
    return root


@pytest.mark.parametrize("stage", ["export", "infer"])
def test_the_formats_name_every_key(root, stage):
    (described,) = [line for line in FORMATS.splitlines() if line.startswith(f"| `{stage} mode=ckks`")]
    known = set(re.findall(r"`(\w+)`", described))
    if stage == "infer":
        known |= set(re.findall(r"`(\w+)`", next(o for o in FORMATS.splitlines() if o.startswith("| `infer` |"))))
    written = summary(root, "infer_rehearsal" if stage == "infer" else stage)
    assert not {*written, *written.get("audit", {}), *written.get("circuit", {})} - known


def test_the_chain_says_what_it_is(root):
    exported, inferred = summary(root, "export"), summary(root, "infer_rehearsal")
    audit, circuit = inferred["audit"], inferred["audit"]["circuit"]
    assert exported["mode"] == audit["mode"] == "ckks"
    assert exported["circuit"]["bootstrappings"] == circuit["bootstrappings"] == 3
    assert exported["circuit"]["precision_bits"] == circuit["precision_bits"]
    assert audit["argmax_equal"] == 2
    assert 15 < audit["logits_bits"] < 40
    assert (root / "infer_rehearsal" / "images.npz").is_file()
    assert read_ckks(root / "export" / "program").log_step == -4


@pytest.mark.slow
def test_ckks_in_two_processes_is_the_same_circuit(root, monkeypatch):
    call(monkeypatch, "infer", *_infer(root, "processes=2", f"out={root}/apart"))
    apart, together = summary(root, "apart"), summary(root, "infer_rehearsal")
    audit, operations = apart["audit"], together["audit"]["circuit"]["operations"]
    assert (audit["processes"], audit["argmax_equal"], audit["circuit"]["operations"]) == (2, 2, operations)
    assert "seconds" not in apart["layers"][1]
    assert min(apart["memory"]["client"], apart["memory"]["server"], audit["seconds_server"]) > 0


def test_an_export_that_is_refused_leaves_the_old_program(root, monkeypatch, capsys):
    before = contents(root / "export" / "program")
    for out in ("export", "fresh"):
        settings = _export(root, "he.bound_images=0", f"out={root}/{out}", "overwrite=true")
        assert "he.bound_images must be at least 1" in refused(monkeypatch, capsys, "export", *settings)
    assert contents(root / "export" / "program") == before
    assert not (root / "fresh" / "program").exists()


def test_leveled_bfv_is_refused_with_its_command(root, monkeypatch, capsys):
    remedy = "use mode=ckks, or python -m papers.falcon2020 for leveled BFV"
    for stage in ("search", "export", "infer"):
        assert remedy in refused(monkeypatch, capsys, stage, f"root={root}", "mode=leveled")
    for setting in ("leveled.scheme=bfv", "leveled.examples=64"):
        assert remedy in refused(monkeypatch, capsys, "export", f"root={root}", "mode=leveled", setting)


def test_a_program_that_was_changed_is_refused(root, monkeypatch, capsys):
    """Cut short, or with a manifest that says something else."""
    program, settings = root / "export" / "program", _infer(root, f"out={root}/refused")
    for name, text in (("weights.safetensors", b"cut"), ("manifest.json", b'"mode"')):
        whole = (program / name).read_bytes()
        (program / name).write_bytes(whole[:-1] if text == b"cut" else whole.replace(b'"source"', text))
        assert "must match their checksums" in refused(monkeypatch, capsys, "infer", *settings)
        (program / name).write_bytes(whole)
    assert not (root / "refused").exists()


def test_settings_that_are_not_for_ckks_leave_nothing(root, monkeypatch, capsys):
    out = f"out={root}/refused"
    for setting, rule in (
        ("weights_folder=here", "a CKKS program's encoded weights are kept in memory"),
        ("engine=tenseal", "a CKKS program runs with engine=kernel or cleartext"),
        ("keys_gb=0", "keys_gb must be above 0"),
        ("mode=interactive", "this reads programs of mode=interactive"),
    ):
        assert rule in refused(monkeypatch, capsys, "infer", *_infer(root, out, setting))
    for apart in ("processes=1", "processes=2"):
        keys = _infer(root, out, "engine=kernel", "keys_gb=1", apart)
        assert "keys must fit keys_gb = 1: got 4.56 GB" in refused(monkeypatch, capsys, "infer", *keys)
    assert not (root / "refused").exists()


@pytest.mark.slow
def test_a_search_knows_the_family(root, monkeypatch, capsys):
    """It prices every block size as dense weights, and so chooses dense ones."""
    call(monkeypatch, "search", f"root={root}", "mode=ckks", "he.profile=counted", "samples=8")
    found = summary(root, "search")
    assert {*found["block_sizes"].values()} == {1}
    assert found["ckks"]["bootstrappings"] == 3
    seconds = found["ckks"]["seconds_layers"] + found["ckks"]["seconds_bootstrapping"]
    assert found["latency_predicted_s"] == pytest.approx(seconds)
    assert "no block size is faster" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("script", ["export", "infer"])
def test_a_killed_run_leaves_nothing(root, script):
    """Killed at three points of it, the last while the simulator or the images run; a run that was faster is whole.

    A lock may be left: the next run takes it.
    """
    given = [f"root={root}", f"init={root}/train", "mode=ckks"]
    given = given if script == "export" else _infer(root, "images=200")
    for seconds in (3, 5, 8):
        out = root / f"killed {script} {seconds}"
        command = [sys.executable, f"{script}.py", *given, f"out={out}"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(seconds)
            process.kill()
        written = {path.name for path in out.glob("*")} - {".lock"}
        assert not written or json.loads((out / "summary.json").read_text())["stage"] == script
