"""Output curvature: the moments and gradients that a loop over images finds, and the errors of fitted weights."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from privcirnet.blocksize_search.curvature import OutputCurvature
from privcirnet.nn.functional.circulant import expand
from privcirnet.nn.functional.least_squares import read_by
from privcirnet.passes.convert import circulant_
from tests.nn.networks import assert_unchanged, snapshot


class Small(nn.Module):
    """A convolution that runs twice, an activation in place, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.relu(self.conv(self.relu(self.conv(x)))).mean((2, 3)))


@pytest.fixture(scope="module")
def drawn():
    torch.manual_seed(0)
    return Small().requires_grad_(False), torch.randn(24, 4, 6, 6), torch.arange(24) % 6


def test_gradients_are_those_of_one_image_after_the_other(drawn):
    model, images, labels = drawn
    before = snapshot(model)
    found = OutputCurvature({"conv": model.conv, "head": model.head}).add(model, images, labels)
    assert_unchanged(model, before)
    wanted = {"conv": torch.zeros(4, dtype=torch.float64), "head": torch.zeros(6, dtype=torch.float64)}
    for image, label in zip(images.split(1), labels.split(1), strict=True):
        first = model.conv(image).requires_grad_()
        second = model.conv(model.relu(first.clone()))
        logits = model.head(model.relu(second.clone()).mean((2, 3)))
        gradients = torch.autograd.grad(cross_entropy(logits, label), (first, second, logits))
        wanted["conv"] += sum(g.double().square().sum((0, 2, 3)) for g in gradients[:2]) / 24
        wanted["head"] += gradients[2][0].double().square() / 24
    assert_close(found, wanted, rtol=1e-4, atol=1e-10)


def test_errors_are_the_variance_of_what_the_fitted_weight_adds(drawn):
    model, images, labels = drawn
    curvature = OutputCurvature({"conv": model.conv})
    curvature.add(model, images, labels)
    x = torch.cat([read_by(model.conv, images), read_by(model.conv, model.relu(model.conv(images)))]).flatten(0, 1)
    single = nn.Sequential(nn.Linear(36, 4))
    with torch.no_grad():
        single[0].weight.copy_(model.conv.weight.flatten(1))
    for b, found in curvature.errors("conv", (2, 4)).items():
        best = found.sum()
        for _ in range(20):
            other = torch.randn(4 // b, 4, 3, 3, dtype=torch.float64)
            change = (model.conv.weight.double() - expand(other, b)).flatten(1)
            assert best < (x.double() @ change.T).var(0).sum()
        assert (found > 0).all()
    assert curvature.errors("conv", (2,))[2].sum() < curvature.errors("conv", (4,))[4].sum()


def test_the_start_of_one_layer_has_the_errors_that_were_foretold():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 8))
    images = torch.randn(64, 12) @ torch.randn(12, 12)
    curvature = OutputCurvature({"0": model[0]})
    curvature.add(model, images, torch.arange(64) % 8)
    foretold, wanted = curvature.errors("0", (4,))[4], model(images).detach()
    circulant_(model, {"0": 4}, images=images)
    assert_close(foretold, (model(images) - wanted).double().var(0, correction=0), rtol=1e-3, atol=1e-6)


def test_a_layer_that_is_padded_keeps_the_projection(drawn):
    model, images, labels = drawn
    curvature = OutputCurvature({"head": model.head})
    curvature.add(model, images, labels)
    assert curvature.errors("head", (4,))[4].shape == (6,)
