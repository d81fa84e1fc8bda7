import math

import pytest
import torch
from torch.testing import assert_close

from privcirnet.nn.functional.polynomial import aespa_square, scaled_square

HERMITE = (1 / math.sqrt(2 * math.pi), 1 / 2, 1 / math.sqrt(4 * math.pi))


def paper(x, gamma, var, square_var, eps):
    """AESPA term by term, its means and beta left out: they only add a constant."""
    first, second = x, (x**2 - 1) / math.sqrt(2)
    second_var = square_var / 2
    return gamma * (HERMITE[1] * first / math.sqrt(var + eps) + HERMITE[2] * second / math.sqrt(second_var + eps))


@pytest.mark.parametrize(("gamma", "var", "square_var"), [(1.0, 1.0, 2.0), (0.3, 4.0, 0.5), (7.0, 0.01, 90.0)])
def test_the_square_is_the_papers_polynomial_up_to_a_constant(gamma, var, square_var):
    x = torch.linspace(-3, 3, 41, dtype=torch.float64)
    values = (torch.tensor([v], dtype=torch.float64) for v in (gamma, var, square_var))
    scale, shift = aespa_square(*values, eps=1e-5)
    difference = (scale * (x + shift)) ** 2 - paper(x, gamma, var, square_var, 1e-5)
    assert (difference - difference.mean()).abs().max() < 1e-9 * max(1.0, difference.abs().max().item())


def test_it_is_close_to_relu_on_unit_normal_values():
    """The best square in the mean: error against ReLU plus a constant under a third of ReLU's deviation."""
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    scale, shift = aespa_square(one, one, 2 * one, eps=0.0)
    difference = (scale * (x + shift)) ** 2 - x.relu()
    assert difference.std() < x.relu().std() / 3
    assert scale.item() == pytest.approx((8 * math.pi) ** -0.25)


@pytest.mark.parametrize(("shape", "axis"), [((3, 4, 2, 5), 1), ((3, 5, 4), -1), ((6, 4), 1), ((3, 1, 2, 2), 1)])
def test_the_scaled_square_and_its_gradients(shape, axis):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    scale, shift = (torch.randn(shape[axis], dtype=torch.float64, requires_grad=True) for _ in range(2))
    inner = scale * x.movedim(axis, -1) + shift
    assert_close(scaled_square(x, scale, shift, axis), (inner**2).movedim(-1, axis))
    assert torch.autograd.gradcheck(lambda *given: scaled_square(*given, axis), (x, scale, shift))


def test_channels_last_stays_so():
    x = torch.randn(2, 4, 3, 3).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = scaled_square(x, torch.ones(4), torch.ones(4), 1)
    assert y.is_contiguous(memory_format=torch.channels_last)
