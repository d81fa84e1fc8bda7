"""Scales in front of squares moved into what feeds them, through residuals and depthwise layers."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.models import resnet18_cifar
from privcirnet.nn.activations import Aespa2d, Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.example import IMAGE
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse, fuse_at


class Chain(nn.Module):
    """Activations behind sums of every kind: two layers, a layer and an activation, twice in a row."""

    def __init__(self, pool: bool = False) -> None:
        super().__init__()
        self.stem, self.stem_norm, self.stem_act = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), Aespa2d(8)
        self.left, self.right = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.norm, self.act1 = nn.BatchNorm2d(8), Aespa2d(8)
        self.conv2, self.inner, self.conv3, self.act2 = nn.Conv2d(8, 8, 1), Aespa2d(8), nn.Conv2d(8, 8, 1), Aespa2d(8)
        self.conv4, self.act3 = nn.Conv2d(8, 8, 1), Aespa2d(8)
        self.pool = nn.AvgPool2d(4) if pool else None
        self.head = nn.Conv2d(8, 2, 4)

    def forward(self, x):
        x = self.stem_act(self.stem_norm(self.stem(x)))
        x = self.act1(self.norm(self.left(x)) + self.right(x))
        x = self.act2(x + self.conv3(self.inner(self.conv2(x))))
        y = self.act3(self.conv4(x) + x)
        return self.head(y) if self.pool is None else self.head(y) + self.pool(x)


def chain(**options):
    torch.manual_seed(0)
    model = Chain(**options).double()
    for _ in range(50):
        model(2 * torch.randn(16, 4, 4, 4, dtype=torch.float64))
    for module in model.modules():
        if isinstance(module, Aespa2d):
            nn.init.normal_(module.log_gamma, std=0.3)
    return model.eval()


PLAN = {"stem": 2, "left": 4, "right": 2, "conv2": 8, "conv3": 2, "conv4": 4}


@pytest.mark.parametrize("plan", [{}, PLAN], ids=["dense", "circulant"])
def test_an_activation_behind_a_residual_folds_into_every_summand(plan):
    model = circulant_(chain(), plan)
    fused, x = fuse(model), 2 * torch.randn(8, 4, 4, 4, dtype=torch.float64)
    assert not [m for m in fused.modules() if isinstance(m, Aespa2d | nn.BatchNorm2d)]
    assert sum(isinstance(m, Square) for m in fused.modules()) == 5
    assert {name: block_size_of(fused.get_submodule(name)) for name in plan} == plan
    assert_close(fused(x), model(x), rtol=1e-9, atol=1e-9)


def test_activations_in_a_chain_are_shared_by_the_largest_block_they_reach():
    model = circulant_(chain(), PLAN)
    blocks = {name: module.block_size for name, module in model.named_modules() if isinstance(module, Aespa2d)}
    assert blocks == {"stem_act": 2, "act1": 4, "inner": 8, "act2": 8, "act3": 8}


class Depthwise(nn.Module):
    """Depthwise layers on either side of activations behind sums, with a norm of their own or none."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act1 = nn.Conv2d(4, 8, 1), Aespa2d(8)
        self.depthwise, self.norm = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8)
        self.act2, self.wide = Aespa2d(8), nn.Conv2d(8, 16, 3, 2, 1, groups=8)
        self.act3, self.pairs = Aespa2d(16), nn.Conv2d(16, 4, 2, groups=4)

    def forward(self, x):
        x = self.act1(self.stem(x))
        x = self.act2(x + self.norm(self.depthwise(x)))
        return self.pairs(self.act3(self.wide(x)))


@pytest.mark.parametrize("plan", [{}, {"stem": 4}], ids=["dense", "circulant"])
def test_scales_move_into_depthwise_layers(plan):
    """Their rows and inputs are scaled channel by channel, and what is shared with a circulant layer by its blocks."""
    torch.manual_seed(0)
    model = Depthwise().double()
    for _ in range(50):
        model(2 * torch.randn(16, 4, 5, 5, dtype=torch.float64))
    for module in model.modules():
        if isinstance(module, Aespa2d):
            nn.init.normal_(module.log_gamma, std=0.3)
    model = circulant_(model.eval(), plan)
    shared = plan.get("stem", 1)
    assert [model.act1.block_size, model.act2.block_size, model.act3.block_size] == [shared, shared, 1]
    assert type(model.norm) is nn.BatchNorm2d
    fused, x = fuse(model), 2 * torch.randn(8, 4, 5, 5, dtype=torch.float64)
    assert sum(isinstance(m, Square) for m in fused.modules()) == 3
    assert_close(fused(x), model(x), rtol=1e-9, atol=1e-9)


def test_a_square_that_is_added_and_read_by_something_else_is_refused():
    model = chain()
    model.pool, model.head = nn.AvgPool2d(4), nn.Conv2d(8, 8, 4).double()
    x = 2 * torch.randn(8, 4, 4, 4, dtype=torch.float64)
    assert_close(fuse_at(model, x)(x), model(x), rtol=1e-9, atol=1e-9)  # which makes a layer of the pool
    model.meta = {IMAGE: (4, 4, 4)}
    with pytest.raises(RuleError, match="must feed only that sum and layers: got 'act2' feeds add_3"):
        fuse(model)


def test_resnet18_fuses_to_squares_whatever_its_plan():
    torch.manual_seed(0)
    model = resnet18_cifar(width=8, activation="aespa").double()
    for _ in range(5):
        model(torch.randn(16, 3, 32, 32, dtype=torch.float64))
    names = [name for name, m in model.named_modules() if isinstance(m, nn.Conv2d) and name != "stem"]
    model = circulant_(model, {name: 2 ** (i % 4) for i, name in enumerate(names)}).eval()
    fused, x = fuse(model), torch.randn(4, 3, 32, 32, dtype=torch.float64)
    assert sum(isinstance(m, Square) for m in fused.modules()) == 17
    assert_close(fused(x), model(x), rtol=1e-7, atol=1e-7)
