"""Quantizers' compiled passes give what torch's operations give, in every layout and on any number of threads."""

import math

import pytest
import torch
from torch.testing import assert_close

from privcirnet.nn.functional import quantize
from privcirnet.nn.functional.quantize import quantize_activation, quantize_learned

SEEDED = torch.Generator().manual_seed(0)
LAYOUTS = {
    "maps": 30 * torch.randn(5, 6, 7, 9, generator=SEEDED),
    "channels last": 30 * torch.randn(5, 6, 7, 9, generator=SEEDED).contiguous(memory_format=torch.channels_last),
    "turned": 30 * torch.randn(70, 6, 5, generator=SEEDED).permute(2, 0, 1),
    "ties": torch.arange(-40, 41) / 4,
}
LIMITS = (-100, 90)


@pytest.fixture(params=[1, 3])
def _threads(request, monkeypatch):
    monkeypatch.setattr(quantize, "PER_THREAD", 16)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def run(x, function, *others):
    """Return a result, and the gradients of all that the function was given."""
    given = [v.detach().clone(memory_format=torch.preserve_format).requires_grad_() for v in (x, *others)]
    found = function(*given)
    found.backward(torch.randn(found.shape, generator=torch.Generator().manual_seed(1)))
    return [found.detach(), *(v.grad for v in given)]


def learned(x, number, stochastic=False):
    return quantize_learned(x, number, -1, LIMITS, stochastic=stochastic)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rounding_to_nearest_is_torchs(layout, monkeypatch):
    x, number = LAYOUTS[layout], torch.tensor(-1.0)
    assert quantize.compiled_for(x)
    found = [run(x, learned, number), run(x, lambda x: quantize_activation(x, -1))]
    monkeypatch.setattr(quantize, "compiled_for", lambda x: False)
    expected = [run(x, learned, number), run(x, lambda x: quantize_activation(x, -1))]
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])
    assert_close(found[0][2], expected[0][2], rtol=1e-4, atol=1e-3)
    assert found[0][0].stride() == x.stride()


@pytest.mark.usefixtures("_threads")
def test_a_backward_pass_finds_the_random_numbers_of_its_forward_pass():
    x = LAYOUTS["channels last"]
    value, of_x, of_number = run(x, lambda *given: learned(*given, stochastic=True), torch.tensor(-1.0))
    gradient = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    assert ((value - x).abs() < 0.5).logical_or(x.abs() > 44).all()
    sure = (x > LIMITS[0] / 2 + 1) & (x < LIMITS[1] / 2 - 1)  # whatever was drawn
    assert torch.equal(of_x[sure], gradient[sure])
    lost = (x < LIMITS[0] / 2 - 1) | (x > LIMITS[1] / 2 + 1)
    assert lost.any()
    assert not of_x[lost].any()
    inside = of_x != 0
    slope = 0.5 * math.log(2) * torch.where(inside, (value - x) / 0.5, value / 0.5)
    assert_close(of_number, (slope * gradient).sum(), rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("log_step", [0, -1])
@pytest.mark.parametrize("value", [3.0, 3.125, 3.5, 3.9, -0.3, -100.25])
def test_values_go_up_as_often_as_what_is_left_after_flooring(value, log_step):
    count, step = 200_000, 2.0**log_step
    below = math.floor(value / step)
    share = value / step - below
    up = quantize_activation(torch.full((count,), value), log_step, stochastic=True) / step - below
    assert set(up.tolist()) <= {0.0, 1.0}
    assert up.mean().item() == pytest.approx(share, abs=5 * math.sqrt(0.25 / count) + 1e-5)
    beside = (up[1:] - share) * (up[:-1] - share)
    assert beside.mean().item() == pytest.approx(0, abs=5 * share * (1 - share) / math.sqrt(count) + 1e-9)


@pytest.mark.usefixtures("_threads")
def test_seeds_are_torchs():
    x = LAYOUTS["maps"]
    torch.manual_seed(3)
    first, second = (quantize_activation(x, 0, stochastic=True) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(quantize_activation(x, 0, stochastic=True), first)
    assert not torch.equal(first, second)


@pytest.mark.usefixtures("_threads")
def test_what_is_not_a_number_stays():
    x = torch.tensor([float("nan"), float("inf")] * 20)
    value, of_x, of_number = run(x, learned, torch.tensor(-1.0))
    assert value[0].isnan()
    assert value[1] == LIMITS[1] / 2
    assert not of_x.any()
    assert of_number.isnan()


def test_other_values_are_left_to_torch():
    x = torch.randn(2**13, 4)
    assert quantize.compiled_for(x)
    assert not any(map(quantize.compiled_for, (x[:, :3], x.double(), x.bfloat16(), x[:4], x.expand(2, 2**13, 4))))
