import pytest
import torch
from torch.testing import assert_close

from privcirnet.he.layers.shape import LinearShape
from privcirnet.models import ENTRY_POINTS, lola_mnist
from privcirnet.nn.graph import trace
from tests import tolerances
from tests.models.test_reference import shape_of

SHAPES = {
    "lola_mnist": (
        (1, 28),
        {
            "conv": LinearShape(28, 28, 1, 5, 5, 2, 1),
            "fc1": LinearShape.gemm(1, 845, 100),
            "fc2": LinearShape.gemm(1, 100, 10),
        },
    ),
    "tutorial_mnist": (
        (1, 28),
        {
            "conv": LinearShape(28, 28, 1, 4, 7, 3),
            "fc1": LinearShape.gemm(1, 256, 64),
            "fc2": LinearShape.gemm(1, 64, 10),
        },
    ),
    "lola_cifar": (
        (3, 32),
        {
            "conv1": LinearShape(32, 32, 3, 83, 8, 2, 1),
            "conv2": LinearShape(14, 14, 83, 163, 6, 2),
            "fc": LinearShape.gemm(1, 4075, 10),
        },
    ),
    "minionn_cifar": (
        (3, 32),
        {
            "conv1": LinearShape(32, 32, 3, 64, 3, 1, 1),
            "conv2": LinearShape(32, 32, 64, 64, 3, 1, 1),
            "conv3": LinearShape(16, 16, 64, 64, 3, 1, 1),
            "conv4": LinearShape(16, 16, 64, 64, 3, 1, 1),
            "conv5": LinearShape(8, 8, 64, 64, 3, 1, 1),
            "conv6": LinearShape(8, 8, 64, 64, 1),
            "conv7": LinearShape(8, 8, 64, 16, 1),
            "fc": LinearShape.gemm(1, 1024, 10),
        },
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_layers_of_the_papers(name):
    (channels, side), expected = SHAPES[name]
    model, shapes = ENTRY_POINTS[name](), {}
    for key in expected:
        layer = model.get_submodule(key)
        layer.register_forward_hook(lambda m, x, _, key=key: shapes.update({key: shape_of(m, x[0])}))
    assert model(torch.rand(2, channels, side, side)).shape == (2, 10)
    assert list(shapes.items()) == list(expected.items())


@pytest.mark.parametrize("name", ["lola_mnist", "tutorial_mnist"])
def test_mnist_is_what_its_picture_says(name):
    torch.manual_seed(0)
    model, x = ENTRY_POINTS[name]().double(), torch.rand(2, 1, 28, 28, dtype=torch.float64)
    hidden = model.fc1((model.conv(x) ** 2).flatten(1)) ** 2
    expected = model.fc2(hidden)
    bound = tolerances.network(torch.float64, 3, 845, expected.abs().max().item())
    assert_close(model(x), expected, rtol=0, atol=bound)
    assert_close(trace(model)(x), expected, rtol=0, atol=bound)


def test_mnist_never_reads_the_far_padding():
    model = lola_mnist().eval()
    with torch.no_grad():
        model.conv.bias.zero_()
        seen = model.conv(torch.ones(1, 1, 28, 28)) - model.conv.weight.sum((1, 2, 3))[:, None, None]
    assert_close(seen[..., 1:, 1:], torch.zeros(1, 5, 12, 12), rtol=0, atol=1e-5)
    assert seen[..., 0, :].abs().min() > 1e-5


@pytest.mark.parametrize("name", SHAPES)
def test_other_classes_channels_and_activation(name):
    (_, side), _ = SHAPES[name]
    model = ENTRY_POINTS[name](num_classes=7, in_chans=2, activation="relu")
    assert model(torch.rand(1, 2, side, side)).shape == (1, 7)
    assert sum(type(module).__name__ == "ReLU" for module in model.modules()) == {"minionn_cifar": 7}.get(name, 2)
