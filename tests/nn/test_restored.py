"""What a network keeps of its forward is not what it was traced with."""

import pytest
import torch
from torch import nn

import privcirnet as pc
from privcirnet.errors import RuleError

IMAGES = torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))


class Keeping(nn.Module):
    """Keeps its scale in a cache, as LeViT does its biases, its last value, and those of all images."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.classifier, self.scale = nn.Conv2d(3, 4, 3), nn.Linear(64, 2), nn.Parameter(torch.ones(1))
        self.cache, self.seen, self.last = {}, [], None

    def forward(self, x):
        if "scale" not in self.cache:
            self.cache["scale"] = self.scale * 2
        x = self.layer(x)
        self.seen.append(x)
        self.last = self.fresh = x
        return self.classifier((x * self.cache["scale"]).flatten(1))


@pytest.mark.parametrize("verb", [pc.fuse, lambda model: pc.polynomial_(model, IMAGES)])
def test_a_network_keeps_no_proxies(verb):
    model = Keeping().eval()
    wanted = Keeping().eval()(IMAGES)
    model.cache.clear()
    made = verb(model)
    torch.testing.assert_close((made if isinstance(made, nn.Module) else model)(IMAGES), wanted)


def test_a_network_that_is_refused_is_left_as_it_was():
    model = Keeping().eval()
    model.classifier = nn.Sequential(nn.Linear(64, 2), nn.Softmax(1))
    cache = model.cache
    with pytest.raises(RuleError, match=r"must have a polynomial form: got classifier\.1"):
        pc.polynomial_(model, IMAGES)
    assert model.cache is cache
    assert not any(isinstance(each, torch.fx.Proxy) for each in (model.last, model.fresh, *model.seen, *cache.values()))
