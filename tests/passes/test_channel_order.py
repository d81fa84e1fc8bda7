"""Hidden channels of networks in another order: which are hidden, and that the network computes what it did."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.models.vit import Operations, Size, VisionTransformer
from privcirnet.nn.functional import channel_order as mathematics
from privcirnet.nn.graph import trace
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.passes import channel_order
from privcirnet.passes.channel_order import hidden_channels, order_channels_
from privcirnet.passes.convert import circulant_, dense_state_dict, uniform_sizes
from tests.nn.networks import randomize_norms_

IMAGES = torch.randn(32, 4, 8, 8, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    """A block with hidden channels, whose ends a stream shares."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.expand, self.norm = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.depthwise, self.act = nn.Conv2d(16, 16, 3, groups=16, stride=2, padding=1), nn.PReLU(16)
        self.project, self.head = nn.Conv2d(16, 8, 1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        hidden = self.act(self.depthwise(torch.relu(self.norm(self.expand(x)))))
        return self.head((nn.functional.avg_pool2d(x, 2) + self.project(hidden)).mean((2, 3)))


def ordered(model: nn.Module, b: int = 4, images: torch.Tensor = IMAGES) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A copy with its channels in order, and the orders."""
    copied = copy.deepcopy(model).eval()
    return copied, order_channels_(copied, trace(copy.deepcopy(model).eval()), uniform_sizes(model, b), images)


@pytest.mark.parametrize("b", [2, 4])
def test_a_residual_block_computes_what_it_did(b):
    torch.manual_seed(0)
    model = Residual().eval()
    randomize_norms_(model)
    moved, orders = ordered(model, b)
    assert list(orders) == ["expand"]
    assert not torch.equal(orders["expand"], torch.arange(16))
    assert_close(moved(IMAGES), model(IMAGES))
    assert_close(moved.norm.running_var, model.norm.running_var[orders["expand"]])


def test_a_transformers_hidden_layers_are_ordered():
    torch.manual_seed(0)
    model, images = VisionTransformer(Size(16, 4, 2, 16, 2), Operations()), torch.randn(16, 3, 16, 16)
    names = [of.first for of in hidden_channels(trace(model))]
    assert names
    assert all(name.endswith("fc1") for name in names)
    moved, orders = ordered(model, 2, images)
    assert list(orders) == names
    assert_close(moved(images), model.eval()(images))


def test_a_chain_of_layers_counts_with_the_order_before(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    images, counted = torch.randn(32, 4), []
    by_outputs = mathematics.by_outputs
    monkeypatch.setattr(channel_order, "by_outputs", lambda *given: counted.append(given[1]) or by_outputs(*given))
    moved, orders = ordered(model, 2, images)
    assert list(orders) == ["0", "2"]
    assert not torch.equal(orders["0"], torch.arange(8))
    assert_close(counted[1], moved[:2](images).double().T.cov(correction=0), rtol=1e-5, atol=1e-6)


TOKENS = nn.Sequential(nn.Linear(4, 8), TokenBatchNorm(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 4))
KEPT = {
    "an axis of its own": nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)),
    "slopes of an axis": nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.Linear(8, 4)),
    "a pool of channels": nn.Sequential(nn.Linear(4, 8), nn.AvgPool1d(1), nn.Linear(8, 4)),
    "groups": nn.Sequential(nn.Conv2d(4, 8, 1), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 1)),
    "a flat map": nn.Sequential(nn.Conv2d(4, 8, 8), nn.Flatten(), nn.Linear(8, 4)),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_does_not_work_on_channels_keeps_their_order(case):
    assert hidden_channels(trace(KEPT[case])) == []


def test_only_plain_layers_with_whole_blocks_are_ordered():
    assert list(ordered(TOKENS, 2, torch.randn(9, 5, 4))[1]) == ["0"]
    normed = copy.deepcopy(TOKENS)
    nn.utils.parametrizations.weight_norm(normed[0])
    assert order_channels_(normed, trace(copy.deepcopy(TOKENS).eval()), {"0": 2, "4": 2}, torch.randn(9, 5, 4)) == {}
    assert ordered(TOKENS, 1, torch.randn(9, 5, 4))[1] == {}


def test_circulant_layers_in_disorder_are_put_in_order(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3)).eval()
    circulant_(model, {"0": 4, "2": 4})
    weights, disorder = dense_state_dict(model), torch.randperm(16)
    dense = nn.Sequential(nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3)).eval()
    dense.load_state_dict(weights)
    dense[0].weight.data, dense[0].bias.data = dense[0].weight[disorder].data, dense[0].bias[disorder].data
    dense[2].weight.data = dense[2].weight[:, disorder].data
    errors = []
    for rounds in (mathematics.ROUNDS, 0):
        monkeypatch.setattr(channel_order, "best_order", lambda layers, n=rounds: mathematics.best_order(layers, n))
        fitted = circulant_(copy.deepcopy(dense), {"0": 4, "2": 4}, images=IMAGES)
        errors.append((fitted(IMAGES) - dense(IMAGES)).square().mean().item())
    assert errors[0] < 0.2 * errors[1]


class Tied(nn.Module):
    """Two layers whose weights are one, and a third whose weight the forward reads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.third(self.second(torch.relu(self.first(x))).relu())
        return x @ self.third.weight


def test_weights_that_others_read_keep_their_order():
    model, images = Tied().eval(), torch.randn(9, 8)
    assert ordered(model, 2, images)[1] == {}


def test_blocks_of_several_sizes_are_whole_in_both_layers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)).eval()
    images = torch.randn(32, 6)
    for sizes, moved in (({"0": 3, "2": 2}, ["0"]), ({"0": 6, "2": 4}, []), ({"2": 3}, ["0"])):
        copied = copy.deepcopy(model)
        assert list(order_channels_(copied, trace(copy.deepcopy(model)), sizes, images)) == moved
        assert_close(copied(images), model(images))
