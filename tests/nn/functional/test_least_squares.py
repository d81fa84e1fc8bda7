"""The nearest block-circulant weight on given inputs: that of a dense solver, and better than any near it."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.functional.circulant import expand, project
from privcirnet.nn.functional.least_squares import Moments, fit_rows

SHAPES = pytest.mark.parametrize(
    ("out", "into", "kernel", "b"),
    [(8, 8, (), 2), (8, 16, (), 4), (8, 8, (3, 3), 4), (6, 4, (), 1), (16, 8, (2,), 8), (6, 12, (1, 1), 3)],
)
SAMPLES = 60


def drawn(out: int, into: int, kernel: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Moments]:
    """Inputs that correlate and have means, wanted outputs, a weight, and the moments: float64."""
    torch.manual_seed(0)
    weight = torch.randn(out, into, *kernel, dtype=torch.float64)
    n = weight[0].numel()
    x = torch.randn(SAMPLES, n, dtype=torch.float64) @ torch.randn(n, n, dtype=torch.float64) + torch.randn(n)
    z = torch.randn(SAMPLES, out, dtype=torch.float64) + 2
    moments = Moments.zeros(out, n)
    moments.add(x, z)
    return x, z, weight, moments


@SHAPES
@pytest.mark.parametrize("offset", ["none", "each", "block"])
def test_a_dense_solver_finds_the_same(out, into, kernel, b, offset):
    x, z, weight, moments = drawn(out, into, kernel)
    ridge, unknowns = 0.3, out // b * weight[0].numel()
    unit = torch.eye(unknowns, dtype=torch.float64).reshape(unknowns, out // b, into, *kernel)
    basis = torch.stack([expand(each, b).flatten(1) for each in unit])  # (unknowns, out, n)
    design = torch.einsum("qon,sn->soq", basis, x).reshape(-1, unknowns)
    if offset != "none":
        size = 1 if offset == "each" else b
        ones = torch.eye(out // size, dtype=torch.float64).repeat_interleave(size, 0)
        design = torch.cat([design, ones.repeat(SAMPLES, 1)], 1)
    held = torch.zeros(weight.numel(), design.shape[1], dtype=torch.float64)
    held[:, :unknowns] = basis.reshape(unknowns, -1).T * (ridge * SAMPLES) ** 0.5
    wanted = torch.cat([z.flatten(), weight.flatten() * (ridge * SAMPLES) ** 0.5])
    solution = torch.linalg.lstsq(torch.cat([design, held]), wanted[:, None]).solution[:, 0]

    rows, offsets = fit_rows(moments, weight, b, ridge, offset)
    assert_close(rows.flatten(), solution[:unknowns])
    free = solution[unknowns:] if offset != "none" else torch.zeros(out, dtype=torch.float64)
    assert_close(offsets, free.repeat_interleave(out // len(free)))


@SHAPES
def test_whatever_is_changed_makes_it_worse(out, into, kernel, b):
    x, z, weight, moments = drawn(out, into, kernel)
    rows, offsets = fit_rows(moments, weight, b, 0.3)

    def error(rows: Tensor, offsets: Tensor) -> float:
        near = expand(rows, b)
        missed = x @ near.flatten(1).T + offsets - z
        return float(missed.square().sum() / SAMPLES + 0.3 * (near - weight).square().sum())

    least = error(rows, offsets)
    for seed in range(5):
        torch.manual_seed(seed)
        assert error(rows + 1e-2 * torch.randn_like(rows), offsets) > least
        assert error(rows, offsets + 1e-2 * torch.randn_like(offsets)) > least


@SHAPES
def test_of_inputs_that_do_not_correlate_it_is_the_projection(out, into, kernel, b):
    weight = drawn(out, into, kernel)[2]
    n = weight[0].numel()
    moments = Moments.zeros(out, n)
    x = torch.cat([torch.eye(n), -torch.eye(n)]).double()
    moments.add(x, x @ weight.flatten(1).T)
    assert_close(fit_rows(moments, weight, b, 0.0)[0], project(weight, b))


def test_few_samples_hold_on_to_the_weight_more():
    _, _, weight, moments = drawn(8, 16, (3, 3))
    assert moments.ridge(1) > moments.ridge(4) > 0
    rows, _ = fit_rows(moments, weight, 4, 1e9)
    assert_close(rows, project(weight, 4), atol=1e-5, rtol=1e-5)


def test_a_block_size_that_does_not_divide_is_refused():
    _, _, weight, moments = drawn(6, 4, ())
    with pytest.raises(RuleError, match="must divide both weight dimensions"):
        fit_rows(moments, weight, 4, 0.1)
