"""Channels scaled between layers: what the network computes stays, and 8 bits cost less."""

import copy

import pytest
import torch
from torch import Tensor, nn

from privcirnet.nn.activations import Square
from privcirnet.nn.functional.circulant import is_circulant
from privcirnet.passes.convert import circulant_
from privcirnet.passes.equalize import equalize_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from tests.nn.networks import vit
from tests.nn.quantized import INPUT_STEP, network, pixels


class Inverted(nn.Module):
    """An inverted residual block: 1 x 1, depthwise and 1 x 1, a sum, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.expand = nn.Conv2d(8, 16, 1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.project = nn.Conv2d(16, 8, 1)
        self.act1, self.act2, self.flatten, self.classifier = Square(), Square(), nn.Flatten(), nn.Linear(512, 4)

    def forward(self, x: Tensor) -> Tensor:
        stem = self.stem(x)
        inner = self.act2(self.depthwise(self.act1(self.expand(stem))))
        return self.classifier(self.flatten(stem + self.project(inner)))


def uneven(blocks: dict[str, int] | None = None) -> nn.Module:
    """Channels of very different sizes, circulant or not, with the same function for each choice of blocks."""
    torch.manual_seed(0)
    model = circulant_(Inverted().double(), blocks or {})
    sizes = torch.logspace(-1, 1, 4).double().repeat_interleave(4)
    with torch.no_grad():
        for layer, factors in ((model.expand, sizes), (model.depthwise, sizes)):
            weight = layer.weight * factors.view(-1, 1, 1, 1)
            set_weight(layer, weight)
            layer.bias.mul_(factors)
        set_weight(model.depthwise, model.depthwise.weight / sizes.view(-1, 1, 1, 1) ** 2)
        set_weight(model.project, model.project.weight / sizes.view(1, -1, 1, 1) ** 2)
    return model.eval()


def set_weight(layer: nn.Module, weight: Tensor) -> None:
    if hasattr(layer, "parametrizations"):
        layer.weight = weight
    else:
        layer.weight.copy_(weight)


@pytest.mark.parametrize("blocks", [{}, {"expand": 4}, {"expand": 4, "project": 2}])
def test_outputs_stay_and_circulant_layers_stay_circulant(blocks):
    model, images = uneven(blocks), pixels(16).double()
    graph = fuse(model)
    before, weights = graph(images), {name: graph.get_submodule(name).weight.clone() for name in ("stem", "expand")}
    assert equalize_(graph, images) is graph
    assert torch.allclose(graph(images), before, rtol=1e-9)
    assert not torch.equal(graph.expand.weight, weights["expand"])
    assert torch.equal(graph.stem.weight, weights["stem"]), "it is read twice"
    for name, b in blocks.items():
        assert is_circulant(graph.get_submodule(name).weight, b)


def test_quantization_costs_less():
    model, images = uneven({"expand": 4}), pixels(16).double()
    plain = fuse(model)
    equal = equalize_(copy.deepcopy(plain), images)
    want = plain(images)
    graphs = [quantize(graph, images, INPUT_STEP, correct_biases=False) for graph in (plain, equal)]
    errors = [(graph(images) - want).norm().item() for graph in graphs]
    assert errors[1] < errors[0] / 2


def test_values_and_the_weights_that_read_them_are_balanced():
    graph, images = fuse(uneven()), pixels(16).double()
    equalize_(graph, images)
    values = graph.act2(graph.depthwise(graph.act1(graph.expand(graph.stem(images)))))
    made = values.abs().amax((2, 3)).median(0).values
    read = graph.project.weight.abs().amax((0, 2, 3))
    ratios = made / read
    assert torch.allclose(ratios, ratios[:1], rtol=1e-6)


@pytest.mark.parametrize("dead", ["unread", "silent"])
def test_a_dead_channel_keeps_its_size_and_that_of_its_weights(dead):
    """Otherwise it would set the step of its tensor: it is as far from the others as values are from weights."""
    model, images = uneven(), pixels(16).double()
    with torch.no_grad():
        if dead == "unread":
            model.project.weight[:, 3] = 0
        else:
            model.depthwise.weight[3], model.depthwise.bias[3] = 0, 0
    graph = fuse(model)
    logits = graph(images)
    before = graph.depthwise(graph.act1(graph.expand(graph.stem(images))))[:, 3], graph.project.weight[:, 3].clone()
    equalize_(graph, images)
    after = graph.depthwise(graph.act1(graph.expand(graph.stem(images))))[:, 3], graph.project.weight[:, 3]
    assert torch.allclose(after[0], before[0])
    assert torch.allclose(after[1], before[1])
    assert torch.allclose(graph(images), logits, rtol=1e-9)


def test_images_that_explode_do_not_spoil_the_factors():
    model, images = uneven(), pixels(3).double()
    wild = torch.cat([images, torch.full_like(images, torch.nan)])
    graph = equalize_(fuse(model), wild)
    assert torch.allclose(graph(images), fuse(model)(images), rtol=1e-9)


def test_transformers_and_networks_of_squares():
    for model, images in ((vit(), torch.rand(8, 3, 8, 8)), (network(), pixels(8))):
        graph = fuse(model.double().eval())
        before = graph(images.double())
        assert torch.allclose(equalize_(graph, images.double())(images.double()), before, rtol=1e-7)
