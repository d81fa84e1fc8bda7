"""Small checkpoints: how far numbers move, what stays, and what is refused."""

import dataclasses

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.artifact.records import KINDS, STEPS, compacted, expanded, read_checkpoint, write_checkpoint
from privcirnet.config.train import COMPACT
from privcirnet.errors import RuleError
from privcirnet.models import digits_resnet
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from tests.artifact.samples import CHECKPOINT

QUANTIZER = "v.parametrizations.weight.0."
OWN = {"v.parametrizations.weight.original": np.ones((2, 2), np.int8), QUANTIZER + "log_step": np.array(0)}
SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)


@given(SHAPES, st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_a_row_moves_by_half_of_its_step(shape, seed, scale):
    weight = (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)
    small = compacted({"w": weight}, "rows8")
    assert small["w"].dtype == np.int8
    found = expanded(small)
    assert found.keys() == {"w"}
    assert (found["w"].shape, found["w"].dtype) == (shape, np.float32)
    moved = np.abs(found["w"] - weight).reshape(shape[0], -1).max(axis=1)
    assert (moved <= small["w" + STEPS] * (0.5 + 1e-4)).all()


def test_rows_of_zeros_and_what_has_one_dimension_stay():
    given = {"w": np.zeros((2, 3), np.float32), "bias": np.float32([0.1, 1e9]), "count": np.int64(3)}
    found = expanded(compacted(given, "rows8"))
    assert found.keys() == given.keys()
    assert all(np.array_equal(found[name], tensor) for name, tensor in given.items())


def test_a_file_is_a_quarter_and_reads_as_any_other(tmp_path):
    tensors = {"w": np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32), "n": np.int64([1])}
    whole = dataclasses.replace(CHECKPOINT, tensors=tensors)
    sizes = {}
    for kind in ("", "float16", "rows8"):
        kept = dataclasses.replace(whole, tensors=compacted(tensors, kind)) if kind else whole
        write_checkpoint(tmp_path / "c", kept)
        sizes[kind] = (tmp_path / "c").stat().st_size
        found = read_checkpoint(tmp_path / "c")
        assert dataclasses.replace(found, tensors={}) == dataclasses.replace(whole, tensors={})
        assert found.tensors.keys() == tensors.keys()
        assert np.allclose(found.tensors["w"], tensors["w"], atol=0.02)
    assert sizes["float16"] < 0.55 * sizes[""]
    assert sizes["rows8"] < 0.35 * sizes[""]


def test_settings_name_all_kinds():
    assert COMPACT == KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(kind, number):
    with pytest.raises(RuleError, match="must be finite and in its range: got w"):
        compacted({"w": np.full((2, 2), number, np.float32)}, kind)


def test_numbers_beyond_float16_are_refused():
    with pytest.raises(RuleError, match="in its range"):
        compacted({"w": np.float32([1e6])}, "float16")


@pytest.mark.parametrize(
    "damage",
    [
        {"w": np.zeros((2, 2), np.float32)},
        {"w": np.zeros(2, np.int8)},
        {"w" + STEPS: np.ones(3, np.float32)},
        {"w" + STEPS: np.ones(2, np.float64)},
        {"w" + STEPS: np.float32([1, np.nan])},
        {"v" + STEPS: np.ones(2, np.float32)},
        OWN,
        OWN | {QUANTIZER + "exponents": np.zeros((2, 1), np.int8)},
        OWN | {QUANTIZER + "exponents": np.zeros(2, np.int8), QUANTIZER + "log_step": np.array(200)},
    ],
)
def test_steps_that_do_not_fit_are_refused(damage, tmp_path):
    write_checkpoint(tmp_path / "c", dataclasses.replace(CHECKPOINT, tensors={}))
    about = safetensors.safe_open(tmp_path / "c", "numpy").metadata()
    tensors = {"w": np.zeros((2, 2), np.int8), "w" + STEPS: np.ones(2, np.float32)} | damage
    safetensors.numpy.save_file(tensors, tmp_path / "c", about)
    with pytest.raises(RuleError, match="8-bit rows must have a finite float32 step each: got"):
        read_checkpoint(tmp_path / "c")


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_a_quantized_network_computes_the_same_bit_for_bit(bits):
    images = torch.rand(8, 1, 8, 8)
    model = digits_resnet().eval()
    circulant_(model, uniform_sizes(model, 4))
    network = quantize(fuse(model), images, weight_bits=bits)
    tensors = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
    small = compacted(tensors, "rows8", bits)
    assert small.keys() == tensors.keys()
    assert sum(tensor.dtype == np.int8 and tensor.ndim > 1 for tensor in small.values()) == 5
    wanted = network(images)
    found = {name: torch.from_numpy(np.asarray(tensor)) for name, tensor in expanded(small).items()}
    network.load_state_dict(found)
    assert torch.equal(network(images), wanted)
    assert any(not np.array_equal(found[name].numpy(), tensors[name]) for name in tensors)


def test_signs_stay_and_float16_keeps_no_grid():
    tensors = {"a.parametrizations.weight.original": np.float32([[1, -2]]), "b": np.float32([[1]])}
    tensors["a.parametrizations.weight.0.log_step"] = np.int64(-1)
    tensors["a.parametrizations.weight.0.exponents"] = np.int8([0])
    assert compacted(tensors, "rows8", 1) == tensors
    with pytest.raises(RuleError, match="quantized weights must keep their grid: got float16 for 8 bits; use rows8"):
        compacted(tensors, "float16", 8)
