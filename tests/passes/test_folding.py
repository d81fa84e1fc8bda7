"""Batch norms and scales folded into one layer."""

import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.nn.circulant import BlockCirculantConv2d, block_size_of
from privcirnet.nn.norm import BlockBatchNorm2d
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from tests import tolerances
from tests.nn.networks import assert_same_outputs, randomize_norms_


def test_fuse_of_one_layer_in_single_precision():
    torch.manual_seed(0)
    model = circulant_(nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16)), {"0": 4}).eval()
    randomize_norms_(model)
    x, fused = torch.randn(2, 16, 6, 6), fuse(model)
    conv, norm = model
    scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).repeat_interleave(4)
    reach = nn.functional.conv2d(x.abs(), conv.weight.abs(), conv.bias.abs()) + norm.running_mean.max()
    magnitude = (reach * scale.reshape(-1, 1, 1) + norm.bias.max()).max().item()
    # 144 products, bias, mean and shift, and four roundings of the scale on each
    assert_close(fused(x), model(x), rtol=0, atol=tolerances.dot_product(torch.float32, 144 + 3 + 4, magnitude))


def test_fuse_of_a_norm_shared_more_widely_than_the_blocks():
    model = nn.Sequential(BlockCirculantConv2d(2, 8, 1, block_size=2), BlockBatchNorm2d(8, 4)).double()
    randomize_norms_(model)
    fused = fuse(model)
    assert block_size_of(fused.get_submodule("0")) == 2
    assert_same_outputs(model, fused)


def test_fuse_without_affine_parameters():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, affine=False)).double()
    randomize_norms_(model)
    assert_same_outputs(model, fuse(model))
