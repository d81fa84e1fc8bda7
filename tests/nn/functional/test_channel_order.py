"""The order of channels: explained variances against the least-squares fit, exchanges against the sums made anew."""

import pytest
import torch
from torch.testing import assert_close

from privcirnet.nn.functional import channel_order
from privcirnet.nn.functional.channel_order import ExplainedVariance, best_order, by_inputs, by_outputs
from privcirnet.nn.functional.circulant import expand, project
from privcirnet.nn.functional.least_squares import Moments, fit_rows

CHANNELS, INTO = 16, 12


@pytest.fixture(autouse=True)
def no_ridge(monkeypatch):
    monkeypatch.setattr(channel_order, "RIDGE", 0.0)


def layer(kernel: tuple[int, ...] = (), seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight, and samples of its correlated inputs, of mean zero."""
    random = torch.Generator().manual_seed(seed)
    samples = torch.randn(200, INTO, generator=random) @ torch.randn(INTO, INTO, generator=random)
    return torch.randn(CHANNELS, INTO, *kernel, generator=random), samples - samples.mean(0)


def orders(count: int = 3) -> list[torch.Tensor]:
    return [torch.randperm(CHANNELS, generator=torch.Generator().manual_seed(seed)) for seed in range(count)]


@pytest.mark.parametrize("b", [2, 4])
@pytest.mark.parametrize("order", orders())
def test_outputs_explain_what_the_fit_does(b, order):
    weight, x = layer()
    moments = Moments.zeros(CHANNELS, INTO)
    moments.add(x, x @ weight[order].T)
    rows, _ = fit_rows(moments, weight[order], b, 0.0)
    error = moments.output_errors(weight[order] - expand(rows, b)).sum() / moments.output_errors(weight).sum()
    explained = by_outputs(weight, x.double().T.cov(correction=0), b).of(order)
    assert explained.item() == pytest.approx(1 - error.item(), rel=1e-4)


@pytest.mark.parametrize("kernel", [(), (3, 3)])
@pytest.mark.parametrize("order", orders())
def test_inputs_explain_what_the_projection_does(kernel, order):
    weight, variances = layer(kernel)[0].transpose(0, 1).contiguous(), torch.rand(CHANNELS) + 0.1
    moved, sizes = weight[:, order], variances[order].reshape(1, -1, *[1] * len(kernel))
    nearest = expand(project(moved, 4, sizes.expand_as(moved)), 4)
    error = (sizes * (moved - nearest).square()).sum() / (sizes * moved.square()).sum()
    assert by_inputs(weight, variances, 4).of(order).item() == pytest.approx(1 - error.item(), rel=1e-4)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("b", [2, 4])
def test_gains_are_those_of_the_exchange(b, same):
    weight, x = layer((2, 2))
    (order,), runs = orders(1), torch.arange(CHANNELS).reshape(-1, 4)
    near, far = (runs, runs) if same else (runs[:2], runs[2:])
    for explained in (by_outputs(weight, x.double().T.cov(), b), by_inputs(weight.transpose(0, 1), x.new_ones(16), b)):
        gains = explained.gains(order, near, far)
        for pair, i, j in torch.cartesian_prod(*map(torch.arange, gains.shape)).tolist():
            exchanged = order.clone()
            here, there = near[pair, i], far[pair, j]
            exchanged[here], exchanged[there] = order[there], order[here]
            assert gains[pair, i, j].item() == pytest.approx(
                float(explained.of(exchanged) - explained.of(order)), abs=1e-5
            )


def test_the_best_order_is_one_of_the_channels_and_explains_more():
    weight, x = layer()
    layers = [by_outputs(weight, x.double().T.cov(), 4), by_inputs(layer(seed=1)[0].T.contiguous(), torch.ones(16), 2)]
    order = best_order(layers)
    assert_close(order.sort().values, torch.arange(CHANNELS))
    assert sum(one.of(order) for one in layers) > 1.1 * sum(one.of(torch.arange(CHANNELS)) for one in layers)


def test_a_circulant_weight_in_disorder_is_put_in_order():
    circulant = expand(torch.randn(4, 12, generator=torch.Generator().manual_seed(0)), 4)
    explained = by_outputs(circulant[orders(1)[0]], torch.eye(INTO, dtype=torch.float64), 4)
    assert explained.of(torch.arange(CHANNELS)) < 0.6
    assert explained.of(best_order([explained])) > 0.9


def in_few_directions(count: int, length: int) -> ExplainedVariance:
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(CHANNELS, 4, count, generator=random) @ torch.randn(count, length, generator=random)
    return ExplainedVariance(vectors / length**0.5, torch.rand(CHANNELS, generator=random) + 0.1)


def test_a_projection_loses_nothing_where_vectors_have_few_directions():
    explained = in_few_directions(8, 40)
    projected = explained.projected(8)
    assert projected.vectors.shape == (CHANNELS, 4, 8)
    for order in orders():
        assert_close(projected.of(order), explained.of(order))
    assert explained.projected(40) is explained


def test_an_order_of_projected_vectors_explains_nearly_as_much(monkeypatch):
    explained, orders_found = in_few_directions(60, 400), {}
    for directions in (400, 16):
        monkeypatch.setattr(channel_order, "_DIRECTIONS", directions)
        orders_found[directions] = float(explained.of(best_order([explained])))
    first = float(explained.of(torch.arange(CHANNELS)))
    assert orders_found[16] - first > 0.5 * (orders_found[400] - first) > 0
