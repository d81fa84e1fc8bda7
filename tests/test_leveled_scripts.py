"""Bad input of the leveled chain as a user meets it: one line, and nothing half-written."""

import json

import pytest

from tests.artifact.samples import contents
from tests.scripts import call, refused


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A network of an epoch, and its program."""
    folder = tmp_path_factory.mktemp("leveled")
    with pytest.MonkeyPatch.context() as patch:
        call(patch, "train", f"root={folder}", "model=lola_digits", "recipe.epochs=1")
        call(patch, "export", f"root={folder}", f"init={folder}/train", "mode=leveled", "leveled.weight_bits=4")
    return folder


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("leveled.plan=batch", "this plan is for three layers on a vector"),
        ("leveled.plan=other", "leveled.plan must be a known one"),
        ("leveled.weight_bits=40", "leveled.weight_bits must be in"),
    ],
)
def test_an_export_that_is_refused_leaves_the_old_program(root, monkeypatch, capsys, setting, rule):
    before = contents(root / "export" / "program")
    assert rule in refused(monkeypatch, capsys, "export", f"root={root}", f"init={root}/train", "mode=leveled", setting)
    assert contents(root / "export" / "program") == before
    fresh = f"out={root}/fresh"
    refused(monkeypatch, capsys, "export", f"root={root}", f"init={root}/train", "mode=leveled", setting, fresh)
    assert not (root / "fresh" / "program").exists()


def test_an_inference_that_is_refused_leaves_no_summary(root, monkeypatch, capsys):
    """Of a program that is cut short, or whose manifest says something else."""
    program = root / "export" / "program"
    weights, manifest = program / "weights.safetensors", program / "manifest.json"
    whole, said = weights.read_bytes(), manifest.read_text()
    weights.write_bytes(whole[:-1])
    assert "must match their checksums" in refused(monkeypatch, capsys, "infer", f"root={root}", "mode=leveled")
    weights.write_bytes(whole)
    manifest.write_text(json.dumps({**json.loads(said), "planner": "other"}))
    refused(monkeypatch, capsys, "infer", f"root={root}", "mode=leveled")
    manifest.write_text(said)
    assert not (root / "infer").exists()
