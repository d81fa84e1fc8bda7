"""Two forms of a network are compared by numbers, and the first layer that differs is named."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.nn.agreement import agree, check_traced
from privcirnet.nn.graph import trace
from privcirnet.passes import fuse as fuse_module
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.surgery import arithmetic
from tests.nn.networks import Written


@pytest.mark.parametrize(
    ("found", "same"),
    [
        ([[1.0, 2.0]], True),
        ([[1.0, 2.0000001]], True),
        ([[1.0, 2.01]], False),
        ([[1.0, torch.nan]], True),
        ([[1.0, 2.0, 3.0]], False),
        ([1.0, 2.0], True),
    ],
)
def test_agree(found, same):
    assert agree(torch.tensor(found), torch.tensor([[1.0, 2.0]])) == same


def test_each_image_has_its_own_scale():
    assert not agree(torch.tensor([[1e6], [1.1]]), torch.tensor([[1e6], [1.0]]))


def misread() -> nn.Module:
    """A number of which tracing sees another value."""
    forward = lambda net, x: net.second(net.first(x) + (0.0 if isinstance(x, torch.Tensor) else 1.0))  # noqa: E731
    return Written(forward, first=nn.Conv2d(3, 4, 3), second=nn.Conv2d(4, 2, 3))


def test_a_traced_network_that_differs_names_the_layer():
    model, images = misread().eval(), torch.rand(2, 3, 8, 8)
    with pytest.raises(
        RuleError, match="must compute what its modules and operations say: got other values from 'second'"
    ):
        check_traced(trace(model), model, images)
    with pytest.raises(RuleError, match="got other values from 'second' on"):
        pc.polynomial_(model, images)
    with pytest.raises(RuleError, match="got other values from 'second' on"):
        pc.fuse(model)


def squared() -> nn.Module:
    """A square of its own, behind an activation that surgery replaces."""
    forward = lambda net, x: ((y := net.second(torch.relu(net.first(x)))) * y).flatten(1)  # noqa: E731
    return Written(forward, first=nn.Conv2d(3, 4, 3), second=nn.Conv2d(4, 4, 3))


class Wrong(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1.1 * x.square()


def test_a_wrong_change_that_should_be_exact_is_found(monkeypatch):
    pc.polynomial_(squared(), torch.rand(2, 3, 8, 8))
    monkeypatch.setattr(arithmetic, "Square", Wrong)
    with pytest.raises(RuleError, match="a change that is exact must leave the network's values as they were: got"):
        pc.polynomial_(squared(), torch.rand(2, 3, 8, 8))


def test_a_wrong_fold_is_found(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model(torch.randn(8, 3, 8, 8))
    x = torch.rand(1, 3, 5, 5)
    assert type(fuse_at(model, x).get_submodule("0")) is nn.Conv2d
    assert not hasattr(pc.fuse(model), "1")
    monkeypatch.setattr(fuse_module, "fold_norm_", lambda layer, norm, name: None)
    with pytest.raises(RuleError, match="a fused network must compute what the network does"):
        fuse_at(model, x)
    unfolded = pc.fuse(model)
    assert type(unfolded.get_submodule("1")) is nn.BatchNorm2d
    assert torch.equal(unfolded(x), model.eval()(x))
    with pytest.raises(RuleError, match="a fused network must compute what the network does"):
        pc.quantize(unfolded, x)


def test_a_wrong_fold_behind_a_large_bias_is_found(monkeypatch):
    """All logits are 10,000 and a little: 1e-4 of them is all that the network computes."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2)).eval()
    with torch.no_grad():
        model[1].weight.fill_(3)
        model[3].bias.add_(1e4)
    fuse_at(model, torch.rand(2, 3, 5, 5))
    monkeypatch.setattr(fuse_module, "fold_norm_", lambda layer, norm, name: None)
    with pytest.raises(RuleError, match="a fused network must compute what the network does"):
        fuse_at(model, torch.rand(2, 3, 5, 5))


def test_a_network_that_cancels_large_values_is_folded():
    torch.manual_seed(0)
    images = torch.rand(8, 3, 5, 5)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2))
    model(images)
    with torch.no_grad():
        model.eval()[3].weight.mul_(1e5)
        model[3].bias -= model(images[:1])[0]
    fused = fuse_at(model, images)
    assert {weight.dtype for weight in fused.state_dict().values()} == {torch.float32}


class Heads(nn.Module):
    """Two classifiers; what is returned depends on ``returns``."""

    def __init__(self, returns) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), pc.Square(), nn.Flatten())
        self.first, self.second, self.returns = nn.Linear(64, 2), nn.Linear(64, 2), returns

    def forward(self, x: Tensor) -> object:
        x = self.body(x)
        return self.returns(self, self.first(x), self.second(x))


IMAGES = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def test_the_output_is_the_one_that_is_returned():
    model = Heads(lambda net, a, b: (a, b) if net.training else a).eval()
    wanted = model(IMAGES)
    program = pc.compile(
        pc.quantize(pc.fuse(model), IMAGES, activation_bits=12), IMAGES, profile="counted", progress=False
    )
    torch.testing.assert_close(program(IMAGES[:2], check=True), wanted[:2], atol=0.02, rtol=0)
    pc.polynomial_(model, IMAGES)
    torch.testing.assert_close(model.eval()(IMAGES), wanted)


class Named(NamedTuple):
    logits: object
    other: object = None


@dataclass
class Record:
    logits: object


@pytest.mark.parametrize(
    ("returns", "got"),
    [
        (lambda net, a, b: Named(a), "Named"),
        (lambda net, a, b: Record(a), "Record"),
        (lambda net, a, b: a.chunk(2, 1), "tuple"),
        (lambda net, a, b: (a, b), "tuple"),
        (lambda net, a, b: [a], "list"),
        (lambda net, a, b: {"logits": a, "other": b}, "dict"),
    ],
)
@pytest.mark.parametrize("verb", [lambda model: pc.polynomial_(model, IMAGES), pc.fuse])
def test_several_outputs_are_refused(returns, got, verb):
    with pytest.raises(RuleError, match=f"a network must return one tensor: got Heads returns a {got}"):
        verb(Heads(returns))
