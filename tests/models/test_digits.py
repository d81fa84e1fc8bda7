import pytest
import torch
from torch.testing import assert_close

from privcirnet.models import DigitsResNet, digits_resnet
from privcirnet.passes.fuse import fuse
from tests import tolerances


@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("image_size", [8, 16])
def test_widths_and_shapes(width, image_size):
    model = digits_resnet(width=width, image_size=image_size)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if p.ndim > 1}
    assert shapes == {
        "stem.weight": (width, 1, 3, 3),
        "down.weight": (2 * width, width, 3, 3),
        "conv1.weight": (2 * width, 2 * width, 3, 3),
        "conv2.weight": (2 * width, 2 * width, 1, 1),
        "classifier.weight": (10, 2 * width),
    }
    seen = {}
    for name, module in model.named_children():
        module.register_forward_hook(lambda _, inputs, output, name=name: seen.update({name: tuple(output.shape[1:])}))
    assert model(torch.ones(2, 1, image_size, image_size)).shape == (2, 10)
    half = image_size // 2
    assert seen["stem_square"] == (width, image_size, image_size)
    assert seen["down"] == seen["conv1"] == seen["norm2"] == (2 * width, half, half)
    assert seen["pool"] == (2 * width, 1, 1)


def test_it_is_what_its_picture_says():
    torch.manual_seed(0)
    model, x = DigitsResNet(width=4).double().eval(), torch.rand(2, 1, 8, 8, dtype=torch.float64)
    before = model.down_norm(model.down(model.stem_norm(model.stem(x)) ** 2))
    branch = model.norm2(model.conv2(model.norm1(model.conv1(before)) ** 2))
    expected = model.classifier((before + branch).mean((2, 3)))
    bound = tolerances.network(torch.float64, 5, 9 * 8, expected.abs().max().item())
    assert_close(model(x), expected, rtol=0, atol=bound)


def test_it_traces_and_fuses_to_its_weighted_layers():
    names = {name for name, _ in fuse(DigitsResNet(width=4)).named_children()}
    layers = {"stem", "down", "conv1", "conv2", "classifier"}
    assert names == layers | {"stem_square", "square", "pool", "flatten"}
