"""Compiled training steps give the same weights under the same names; traced only, without a C++ compiler."""

import dataclasses

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from privcirnet.train.loop import fit
from tests.train.runs import DATA as SINGLE
from tests.train.runs import quantized, without_times
from tests.train.test_distributed import DATA, OUTLIERS, TOLERANCE, UNEVEN, with_aespa, with_batch_norm


@pytest.fixture
def trained(monkeypatch):
    torch.compiler.reset()
    counters.clear()
    monkeypatch.setattr("privcirnet.train.callbacks.LIMIT", 2.0)

    def run(build, data, backend="", **changes) -> tuple[nn.Module, list[dict[str, float]]]:
        monkeypatch.setattr("privcirnet.train.loop.COMPILE_BACKEND", backend)
        model = build()
        return model, fit(model, data, dataclasses.replace(UNEVEN, compile=bool(backend), **changes), 3)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("build", [with_batch_norm, with_aespa])
def test_circulant_weights_norms_and_aespa_compile_in_one_piece(build, backend, trained):
    """Also the last batch, which is smaller."""
    expected, history = trained(build, DATA, ema=0.9, **OUTLIERS)
    assert not counters["stats"]
    found, compiled_history = trained(build, DATA, backend, ema=0.9, **OUTLIERS)
    assert counters["stats"]["unique_graphs"] >= 1
    assert not counters["graph_break"]
    assert list(found.state_dict()) == list(expected.state_dict())
    size = max(value.abs().max().item() for value in expected.state_dict().values())
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, rtol=0, atol=TOLERANCE * size, msg=name)
    for entry, wanted in zip(*map(without_times, (compiled_history, history)), strict=True):
        assert entry == pytest.approx(wanted, rel=TOLERANCE)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_quantizers_are_left_out(trained):
    """Their steps are read as numbers, so the graph is cut there; chance is drawn alike."""
    expected, _ = trained(quantized, SINGLE)
    found, _ = trained(quantized, SINGLE, "eager")
    assert counters["stats"]["unique_graphs"] > 1
    assert list(found.state_dict()) == list(expected.state_dict())
    for name, value in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name
