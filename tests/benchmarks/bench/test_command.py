"""bench.py as a user runs it: what it writes, and what it refuses."""

import re

import pytest

from benchmarks.bench import command
from privcirnet.he.layers.shape import LinearShape
from tests.scripts import call, documented, refused, summary


def test_bench_meets_its_targets_and_documents_its_keys(monkeypatch, tmp_path):
    call(
        monkeypatch,
        "bench",
        "layer=conv",
        "dims=[16,16,64,64,3]",
        "block_size=8",
        "he.profile=counted",
        "repetitions=1",
        f"out={tmp_path}",
    )
    result = summary(tmp_path)
    assert result["rotations"] <= 4
    assert result["pmults"] <= 32
    assert result["max_abs_error"] == 0
    assert result["speedup"] == 1
    assert set(result) == documented("bench") - {"compared"}


def test_bench_runs_two_engines_in_turns(monkeypatch, tmp_path):
    settings = "he.profile=counted", "repetitions=1", "compare=cleartext", f"out={tmp_path}"
    call(monkeypatch, "bench", "layer=gemm", "dims=[4,16,16]", "block_size=8", *settings)
    result = summary(tmp_path)
    other = result["compared"]
    assert set(result) == documented("bench")
    assert result["speedup"] == pytest.approx(other["seconds"]["server"] / result["seconds"]["server"])
    assert other["speedup"] == 1
    assert result["max_abs_error"] == other["max_abs_error"] == 0
    layers = {"first": LinearShape.gemm(4, 16, 16), "second": LinearShape.gemm(4, 16, 32)}
    monkeypatch.setattr(command, "network_shapes", lambda _: layers)
    call(monkeypatch, "bench", "network=vit_cifar", "block_size=8", "weights_gb=1", *settings)
    result = summary(tmp_path)
    other = result["compared"]
    assert set(result) == documented("bench network=") - {"against"}
    assert 0 < result["memory"]["weights_kept"] == result["memory"]["weights"] < result["memory"]["peak"]
    assert result["speedup"] == pytest.approx(other["seconds_server"] / result["seconds_server"])
    assert result["saved"]["measured"] == pytest.approx(1 - result["seconds_total"] / other["seconds_total"])
    assert result["saved"]["predicted_local"] == 0
    assert [layer["name"] for layer in other["layers"]] == list(layers)


@pytest.mark.parametrize("network", ["mobilenetv2_cifar", "vit_cifar", "vit_tiny_imagenet", "resnet18_cifar"])
def test_networks_are_counted(monkeypatch, tmp_path, network):
    call(monkeypatch, "bench", f"network={network}", "engine=count", "he.profile=counted", f"out={tmp_path}")
    counted = summary(tmp_path)
    ran = {"seconds_total", "seconds_server", "bytes_up", "bytes_down", "max_abs_error", "speedup", "compared"}
    ran |= {"server_ratio_median", "server_off_median", "memory"}
    assert set(counted) == documented("bench network=") - ran - {"against", "saved"}
    for name in ("rotations", "pmults", "ciphertexts_up", "ciphertexts_down"):
        assert counted[name] == sum(layer[name] for layer in counted["layers"]) > 0
    settings = "engine=count", "he.profile=counted", "layout=best", "against=paper", f"out={tmp_path}"
    call(monkeypatch, "bench", f"network={network}", *settings)
    compared = summary(tmp_path)
    assert set(compared) == documented("bench network=") - ran
    assert compared["saved"]["predicted_local"] > 0


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        (["he.ring_degree=0", "he.coefficient_bits=[]"], "bench.py needs one set of primes: got none"),
        (["compare=kernel"], "compare must be another engine, of one layout that runs: got kernel"),
        (["dims=[1,2]"], r"dims of a gemm must be \[d1,d2,d3\]: got \[1, 2\]"),
        (["block_size=3"], r"block_size must be powers of two: got \[3\]; use 1, 2, 4"),
        (
            ["dims=[4,8,12]", "he.profile=nowhere"],  # before it asks for operation times
            r"block size must divide .*: got 8 for \(12, 8\)",
        ),
        (["plain_bits=61", "he.profile=counted"], "plain modulus must have at most 60 bits: got 61 bits"),
    ],
)
def test_bad_settings(monkeypatch, capsys, tmp_path, overrides, match):
    error = refused(monkeypatch, capsys, "bench", *overrides, f"out={tmp_path / 'out'}")
    assert re.search(match, error), error
    assert not (tmp_path / "out").exists(), "something was written"
