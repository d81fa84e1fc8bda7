import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.functional.batch_norm import block_mean, block_variance, fold_batch_norm, scale_inputs
from privcirnet.nn.functional.circulant import expand, is_circulant
from tests import tolerances
from tests.nn.functional.test_circulant import random_weight

EPS = 1e-3


def statistics(channels: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gamma of both signs, beta, mean, variance."""
    gamma, beta, mean = (random_weight((channels,), seed, dtype) for seed in (5, 6, 7))
    return gamma, beta, mean, random_weight((channels,), 8, dtype).square()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_bias", [False, True])
def test_folding_equals_batch_norm_after_the_convolution(dtype, with_bias):
    x, weight = random_weight((2, 6, 7, 7), 0, dtype), random_weight((4, 6, 3, 3), 1, dtype)
    bias = random_weight((4,), 2, dtype) if with_bias else None
    gamma, beta, mean, var = statistics(4, dtype)
    expected = nn.functional.batch_norm(conv2d(x, weight, bias), mean, var, gamma, beta, eps=EPS)
    folded, shift = fold_batch_norm(weight, bias, gamma, beta, mean, var, EPS)
    scale = (gamma / (var + EPS).sqrt()).abs().reshape(1, -1, 1, 1)
    reach = scale * (
        conv2d(x.abs(), weight.abs(), None if bias is None else bias.abs()) + mean.abs().reshape(1, -1, 1, 1)
    )
    magnitude = (reach + beta.abs().reshape(1, -1, 1, 1)).max().item()
    # 54 products and two constants, and on each the rounding of the scale, its product, the division and the root
    assert_close(conv2d(x, folded, shift), expected, rtol=0, atol=tolerances.dot_product(dtype, 54 + 2 + 4, magnitude))


@pytest.mark.parametrize("with_bias", [False, True])
def test_folding_rows_equals_folding_the_weight(with_bias):
    b, rows = 4, random_weight((2, 8, 3, 3))
    bias = random_weight((8,), 3) if with_bias else torch.zeros(8)
    values = statistics(2, torch.float32)
    folded_rows, shift = fold_batch_norm(rows, bias, *values, EPS)
    dense, dense_shift = fold_batch_norm(expand(rows, b), bias, *(v.repeat_interleave(b) for v in values), EPS)
    assert torch.equal(expand(folded_rows, b), dense)
    assert torch.equal(shift, dense_shift)
    assert is_circulant(dense, b)


@pytest.mark.parametrize(("channels", "groups", "out"), [(6, 1, 4), (6, 6, 6), (6, 6, 12), (6, 2, 4), (1, 1, 1)])
def test_scaled_inputs_are_scaled_before_the_convolution(channels, groups, out):
    weight, x = random_weight((out, channels // groups, 3, 3), 0), random_weight((2, channels, 5, 5), 1)
    scale = 2.0 ** torch.arange(-2, channels - 2)  # powers of two: products stay exact
    expected = conv2d(x * scale.reshape(1, -1, 1, 1), weight, groups=groups)
    scaled = scale_inputs(weight, scale, groups)
    magnitude = conv2d(x.abs(), scaled.abs(), groups=groups).max().item()
    bound = tolerances.dot_product(torch.float32, 9 * channels // groups, magnitude)
    assert_close(conv2d(x, scaled, groups=groups), expected, rtol=0, atol=bound)


def test_without_a_bias_there_is_one_shift_for_each_row():
    weight, bias = fold_batch_norm(random_weight((2, 8)).bfloat16(), None, *statistics(2, torch.float32), EPS)
    assert weight.dtype == torch.bfloat16
    assert bias.shape == (2,)


@pytest.mark.parametrize(("rows", "bias"), [(3, None), (2, 5)])
def test_channels_that_do_not_fit(rows, bias):
    with pytest.raises(RuleError, match=rf"must have the channels of the weight .*: got 2 for a weight of {rows}"):
        fold_batch_norm(torch.ones(rows, 4), bias and torch.ones(bias), *statistics(2, torch.float32), EPS)


def test_block_mean():
    assert block_mean(torch.arange(12.0), 4).tolist() == [1.5, 5.5, 9.5]
    assert block_mean(torch.arange(3.0), 1).tolist() == [0, 1, 2]


def test_block_variance_is_that_of_the_pooled_channels():
    samples = random_weight((100, 6), dtype=torch.float64) * torch.arange(1, 7) + torch.arange(6)
    mean, var = samples.mean(0), samples.var(0, unbiased=False)
    pooled = samples.reshape(100, 2, 3).transpose(0, 1).reshape(2, 300).var(1, unbiased=False)
    bound = tolerances.dot_product(torch.float64, 310, samples.square().sum().item() / 100)
    assert_close(block_variance(mean, var, 3), pooled, rtol=0, atol=bound)
    assert (block_variance(mean, var, 3) > block_mean(var, 3) + 0.1).all()


@pytest.mark.parametrize("b", [0, 4])
def test_blocks_that_do_not_divide_the_channels(b):
    with pytest.raises(RuleError, match=f"block size must divide the number of channels: got {b} for 6"):
        block_mean(torch.ones(6), b)
    with pytest.raises(RuleError, match=f"block size must divide the number of channels: got {b} for 6"):
        block_variance(torch.ones(6), torch.ones(6), b)
