"""A network that surgery cannot change is refused with what stands in the way, whatever happens inside."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.passes.surgery import polynomial as surgery
from privcirnet.passes.surgery import polynomial_
from tests.nn.networks import Written

IMAGES = torch.rand(2, 3, 8, 8)


@pytest.mark.parametrize(
    ("activation", "form"),
    [("own", "an exact form"), ("aespa", "a polynomial form"), ({"act": "aespa"}, "an exact form")],
    ids=str,
)
def test_the_rule_is_that_of_the_road(activation, form):
    model = Written(lambda net, x: net.act(net.conv(x)).sort(1)[0], conv=nn.Conv2d(3, 4, 1), act=nn.ReLU())
    with pytest.raises(RuleError, match=rf"every operation must have {form}: got sort \(sort\)"):
        polynomial_(model, IMAGES, activation)


def test_an_operation_that_surgery_stumbles_over_is_named(monkeypatch):
    def stumble(edit: object, node: object) -> None:
        raise KeyError("no such layout")

    monkeypatch.setitem(surgery.SUBSTITUTIONS, "square", stumble)
    model = Written(lambda net, x: net.conv(x) ** 2, conv=nn.Conv2d(3, 4, 1)).eval()
    with pytest.raises(RuleError, match=r"got pow_1 \(pow\); write it in another way: KeyError: 'no such layout'"):
        polynomial_(model, IMAGES)
    found = pc.check(model, IMAGES, activation="own", profile="counted", progress=False)
    assert [refusal.error.got for refusal in found.refusals][:1] == ["pow_1 (pow)"]


@pytest.mark.parametrize(
    "forward",
    [
        lambda net, x: torch.clamp(net.conv(x), net.conv(x).mean(), 1.0),
        lambda net, x: F.conv2d(x, net.conv(x).mean((0, 2, 3)).view(1, -1, 1, 1)[:, :3]),
        lambda net, x: torch.where(net.conv(x) > 0, net.conv(x), 0.5),
        lambda net, x: net.conv(x).cumsum(1) % 3,
        lambda net, x: torch.fft.fft2(net.conv(x)).real,
        lambda net, x: torch.einsum("nchw,ncvw->nchv", net.conv(x), net.conv(x)),
        lambda net, x: net.conv(x)[:, torch.tensor([0, 2, 1, 3])],
        lambda net, x: net.conv(x).transpose(0, 1).flatten(1),
        lambda net, x: net.conv(x).unfold(2, 2, 3).sum(-1),
        lambda net, x: torch.std(net.conv(x), 1),
        lambda net, x: net.conv(x).argmax(1).float(),
        lambda net, x: torch.cat([net.conv(x)] * 2, 0),
    ],
)
@pytest.mark.parametrize("activation", ["own", "aespa"])
def test_strange_operations_are_refusals(forward, activation):
    model = Written(forward, conv=nn.Conv2d(3, 4, 1)).eval()
    with pytest.raises(RuleError):
        polynomial_(model, IMAGES, activation)


def test_what_fails_between_two_nodes_is_a_refusal(monkeypatch):
    monkeypatch.setattr(surgery, "settle_moves", lambda edit: {}["layout"])
    with pytest.raises(RuleError, match="a network must be one that polynomial_ understands: got KeyError: 'layout'"):
        polynomial_(nn.Sequential(nn.Conv2d(3, 4, 1)), IMAGES)


def test_a_check_ends_in_refusals_wherever_it_fails(monkeypatch):
    monkeypatch.setattr("privcirnet.runs.check.forecast", lambda *_: {}["layout"])
    found = pc.check(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), IMAGES, profile="counted", progress=False)
    assert [str(refusal.error.rule) for refusal in found.refusals] == ["a network must be one that compile understands"]
