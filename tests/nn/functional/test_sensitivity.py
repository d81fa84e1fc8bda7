import pytest
import torch
from torch.testing import assert_close

from privcirnet.nn.functional.circulant import expand, sensitivity
from tests import tolerances
from tests.nn.functional.test_circulant import random_importance, random_weight, slow_expand, slow_project


@pytest.mark.parametrize("b", [1, 2, 4])
@pytest.mark.parametrize("shape", [(8, 4), (4, 8, 3, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matches_equation_2_entry_by_entry(shape, b, dtype):
    weight = random_weight(shape, dtype=dtype)
    fisher = random_importance(weight)
    w, f = weight.double(), fisher.double()
    nearest = slow_expand(slow_project(w, b, f), b)
    terms = [(f[i] * (w[i] - nearest[i]) ** 2).item() for i in map(tuple, torch.ones(shape).nonzero().tolist())]
    omega = sensitivity(weight, fisher, b)
    assert omega.shape == ()
    assert omega.dtype == torch.float64
    bound = tolerances.dot_product(torch.float64, len(terms) + 6 * b, sum(terms) + 1)
    assert_close(omega.item(), sum(terms), rtol=0, atol=bound)


def test_is_zero_without_compression_or_on_a_circulant_weight():
    weight = random_weight((8, 8))
    assert sensitivity(weight, torch.ones(8, 8), 1) == 0
    circulant = expand(weight[:2], 4)
    assert sensitivity(circulant, random_importance(circulant), 4) == 0
    assert sensitivity(weight, torch.ones(8, 8), 4) > 0


def test_small_numbers_do_not_underflow():
    weight = 1e-20 * random_weight((4, 4))
    fisher = torch.full((4, 4), 1e-30)
    assert sensitivity(weight, fisher, 4) > 0
