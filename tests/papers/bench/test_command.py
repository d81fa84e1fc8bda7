"""python -m papers.bench as a user runs it: what bench.py does, against the papers' own plans."""

import sys

import pytest

from benchmarks.bench import runs
from benchmarks.bench.networks import allowed_block_size, network_shapes
from papers.bench import command
from papers.layouts.named import published_layer
from privcirnet.artifact.records import read_json
from privcirnet.he.layers.shape import LinearShape


def test_a_network_is_counted_against_its_published_plans(monkeypatch, tmp_path):
    settings = "engine=count", "he.profile=counted", "layout=best", "against=published", f"out={tmp_path}"
    monkeypatch.setattr(sys, "argv", ["papers.bench", "network=resnet18_cifar", *settings])
    command.main()
    found = read_json(tmp_path / "summary.json", "it", "")
    layers = [
        published_layer(shape, allowed_block_size(shape, 8), 8192)
        for shape in network_shapes("resnet18_cifar").values()
    ]
    assert found["against"]["rotations"] == sum(layer.rotations for layer in layers)
    assert found["saved"]["predicted_local"] > 0


def test_the_plan_of_a_layer_is_explained(monkeypatch, tmp_path, capsys):
    settings = "layer=conv", "dims=[16,16,64,64,3]", "engine=count", "he.profile=counted", f"out={tmp_path}"
    monkeypatch.setattr(sys, "argv", ["papers.bench", "layout=published", "explain=true", *settings])
    command.main()
    assert "layout published" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["cheetah", "falcon"])
def test_encodings_of_polynomials_run_by_name(encoding, monkeypatch, tmp_path):
    settings = "layer=conv", "dims=[6,6,8,8,3]", "groups=8", "block_size=1", "engine=cleartext", "he.profile=counted"
    monkeypatch.setattr(sys, "argv", ["papers.bench", f"encoding={encoding}", *settings, f"out={tmp_path}"])
    command.main()
    found = read_json(tmp_path / "summary.json", "it", "")
    assert (found["encoding"], found["rotations"], found["max_abs_error"]) == (encoding, 0, 0)


def test_the_suite_has_cheetah_beside_ours(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "SHAPES", {f"gemm {tokens}": LinearShape.gemm(tokens, 16, 16) for tokens in (4, 5)})
    settings = "suite=papers", "engine=cleartext", "he.profile=counted", "repetitions=1", "block_sizes=[8]"
    monkeypatch.setattr(sys, "argv", ["papers.bench", *settings, f"out={tmp_path}"])
    command.main()
    names = [row["name"] for row in read_json(tmp_path / "summary.json", "it", "")["rows"]]
    assert names == ["Bolt, NeuJeans (b = 1)", "Cheetah (b = 1)", "PrivCirNet b = 8"] * 2
