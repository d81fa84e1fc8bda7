import copy

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.functional.batch_norm import block_mean
from privcirnet.nn.norm import BlockBatchNorm2d, check_can_share
from tests import tolerances


def images(channels: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(0.5, 2, channels).reshape(-1, 1, 1)
    return (torch.randn(5, channels, 4, 3, generator=generator, dtype=dtype) * spread + spread).to(dtype)


def trained(channels: int, **options) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, dtype=torch.float64, **options)
    for value in norm.state_dict().values():
        if value.is_floating_point():
            value.uniform_(0.5, 1.5)
    return norm


def test_block_size_one_is_batch_norm():
    x, plain, shared = images(6), nn.BatchNorm2d(6).double(), BlockBatchNorm2d(6, 1).double()
    for _ in range(2):
        assert torch.equal(shared(x), plain(x))
    assert_close(shared.running_var, plain.running_var, rtol=1e-14, atol=0)
    assert_close(shared.eval()(x), plain.eval()(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("b", [2, 3, 6])
def test_training_normalizes_each_block_as_a_whole(b):
    x = images(6)
    norm = BlockBatchNorm2d(6, b, momentum=1.0, eps=1e-30, dtype=torch.float64)
    y = norm(x)
    bound = tolerances.dot_product(torch.float64, 2 * x.numel(), 100)
    for block in range(6 // b):
        channels = slice(block * b, block * b + b)
        values = x[:, channels]
        expected = (values - values.mean()) / values.std(unbiased=False)
        assert_close(y[:, channels], expected, rtol=0, atol=bound)
        assert_close(norm.running_mean[block], values.mean(), rtol=0, atol=bound)
        assert_close(norm.running_var[block], values.var(), rtol=0, atol=bound)
    assert norm.weight.shape == norm.bias.shape == norm.running_mean.shape == norm.running_var.shape == (6 // b,)


def test_evaluation_is_one_affine_map_for_each_block():
    x = images(4)
    norm = BlockBatchNorm2d.from_batch_norm(trained(4), 2).eval()
    gamma, beta, mean, var = (
        value.repeat_interleave(2).reshape(-1, 1, 1)
        for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    )
    expected = gamma * (x - mean) / (var + norm.eps).sqrt() + beta
    assert_close(norm(x), expected, rtol=0, atol=tolerances.dot_product(torch.float64, 10, 100))


def test_bfloat16_keeps_channels_innermost():
    norm, x = (
        BlockBatchNorm2d(8, block_size=4),
        torch.randn(4, 8, 3, 3).to(torch.bfloat16, memory_format=torch.channels_last),
    )
    y = norm(x)
    assert y.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=torch.channels_last)
    blocks = x.float().reshape(4, 2, 4 * 3, 3)
    assert_close(norm.running_mean, 0.1 * blocks.mean((0, 2, 3)))


@pytest.mark.parametrize("b", [1, 2, 4])
def test_from_batch_norm(b):
    norm = trained(8, eps=1e-2, momentum=0.3).eval()
    norm.weight.requires_grad_(False)
    norm.num_batches_tracked.fill_(7)
    before = copy.deepcopy(norm.state_dict())
    shared = BlockBatchNorm2d.from_batch_norm(norm, b)
    assert torch.equal(shared.weight, block_mean(norm.weight, b))
    assert torch.equal(shared.bias, block_mean(norm.bias, b))
    assert torch.equal(shared.running_mean, block_mean(norm.running_mean, b))
    means = norm.running_mean.reshape(-1, b)
    total = norm.running_var.reshape(-1, b).mean(1) + means.var(1, unbiased=False)
    assert_close(shared.running_var, total, rtol=0, atol=tolerances.dot_product(torch.float64, 3 * b, 4))
    assert (shared.eps, shared.momentum, shared.training, shared.block_size) == (1e-2, 0.3, False, b)
    assert shared.weight.dtype == torch.float64
    assert (shared.weight.requires_grad, shared.bias.requires_grad) == (False, True)
    assert shared.num_batches_tracked == 7
    assert all(torch.equal(value, before[key]) for key, value in norm.state_dict().items())


@pytest.mark.parametrize("options", [{"affine": False}, {"track_running_stats": False}])
def test_options_are_kept(options):
    shared = BlockBatchNorm2d.from_batch_norm(nn.BatchNorm2d(4, **options), 2)
    assert (shared.weight is None) == ("affine" in options)
    assert (shared.running_var is None) == ("track_running_stats" in options)
    assert shared(images(4, torch.float32)).shape == (5, 4, 4, 3)


def test_an_activation_inside_is_kept_under_its_name():
    norm = BatchNormAct2d(4, act_layer=nn.PReLU)
    norm.act.weight.data.fill_(0.5)
    shared = BlockBatchNorm2d.from_batch_norm(norm, 2)
    assert shared.state_dict().keys() == norm.state_dict().keys()
    x = images(4, torch.float32)
    bare = BlockBatchNorm2d(4, 2)
    assert torch.equal(shared(x), nn.functional.prelu(bare(x), torch.tensor([0.5])))


@pytest.mark.parametrize("b", [0, 4])
def test_blocks_that_do_not_divide_the_channels(b):
    message = f"block size must divide the number of channels: got {b} for 6"
    with pytest.raises(RuleError, match=message):
        BlockBatchNorm2d(6, b)
    with pytest.raises(RuleError, match=message):
        BlockBatchNorm2d.from_batch_norm(nn.BatchNorm2d(6), b)


class Frozen(nn.BatchNorm2d):
    pass


SHARED_ALREADY = [BlockBatchNorm2d(4, 2), BlockBatchNorm2d.from_batch_norm(BatchNormAct2d(4), 2)]


@pytest.mark.parametrize("norm", [Frozen(4), nn.SyncBatchNorm(4), nn.ReLU(), *SHARED_ALREADY])
def test_norms_of_unknown_behaviour(norm):
    message = f"must be a BatchNorm1d, BatchNorm2d or timm's BatchNormAct2d: got {type(norm).__name__}"
    with pytest.raises(RuleError, match=message):
        check_can_share(norm)
    with pytest.raises(RuleError, match=message):
        BlockBatchNorm2d.from_batch_norm(norm, 2)
