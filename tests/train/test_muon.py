"""Muon's matrices are orthogonalized in float32 where bfloat16 would be emulated."""

import pytest
import torch
from torch import nn

from privcirnet.config import RecipeConfig
from privcirnet.train import muon
from privcirnet.train.optimization import optimizer_of

COEFFICIENTS = [(3.4445, -4.7750, 2.0315)]


@pytest.mark.parametrize("shape", [(6, 6), (4, 12), (12, 4), (3, 4, 5)])
def test_singular_values_become_about_one(shape, monkeypatch):
    monkeypatch.setattr(muon, "has_bfloat16", lambda: False)
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = muon.orthogonal(matrix, 5, COEFFICIENTS)
    assert found.dtype == torch.float32
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5
    assert values.max() < 1.5
    coarse = muon._orthogonal(matrix, 5, COEFFICIENTS).float()
    torch.testing.assert_close(found, coarse, rtol=0, atol=0.1)


@pytest.mark.parametrize("native", [False, True])
def test_the_optimizer_asks_for_what_the_processor_has(native, monkeypatch):
    asked = []

    def remember(matrix, steps, coefficients, *, dtype, **_):
        asked.append(dtype)
        return matrix

    monkeypatch.setattr(muon, "_orthogonal", remember)
    monkeypatch.setattr(muon, "has_bfloat16", lambda: native)
    layers = nn.Sequential(nn.Linear(8, 8))
    optimizer = optimizer_of(layers, RecipeConfig(optimizer="muon"))
    layers(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    muon.orthogonal(torch.zeros(2, 2, device="meta"), 5, COEFFICIENTS)
    assert asked == [torch.bfloat16 if native else torch.float32, torch.bfloat16]


@pytest.mark.parametrize(("flags", "has"), [("avx2 avx512f", False), ("avx512_bf16 avx2", True), ("asimd bf16", True)])
def test_instructions_are_what_the_system_says(flags, has, tmp_path):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : fpu {flags} sse\n")
    assert muon.has_bfloat16(tmp_path / "cpuinfo") is has
    assert not muon.has_bfloat16(tmp_path / "none")
