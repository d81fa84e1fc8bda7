import pytest
import torch

from privcirnet.errors import RuleError
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.models import minionn_cifar
from privcirnet.nn.activations import Square
from tests.models.test_reference import shape_of

SHAPES = {
    "conv1": LinearShape(32, 32, 3, 64, 3, 1, 1),
    "conv2": LinearShape(32, 32, 64, 64, 3, 1, 1),
    "conv3": LinearShape(16, 16, 64, 64, 3, 1, 1),
    "conv4": LinearShape(16, 16, 64, 64, 3, 1, 1),
    "conv5": LinearShape(8, 8, 64, 64, 3, 1, 1),
    "conv6": LinearShape(8, 8, 64, 64, 1),
    "conv7": LinearShape(8, 8, 64, 16, 1),
    "fc": LinearShape.gemm(1, 1024, 10),
}


def test_layers_of_the_paper():
    model, shapes = minionn_cifar(), {}
    for key in SHAPES:
        layer = model.get_submodule(key)
        layer.register_forward_hook(lambda m, x, _, key=key: shapes.update({key: shape_of(m, x[0])}))
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert list(shapes.items()) == list(SHAPES.items())


def test_squares_where_they_are_asked_for():
    model = minionn_cifar(squares=[2, 5], width=8, image_size=8)
    assert [name for name, module in model.named_modules() if isinstance(module, Square)] == ["act2", "act5"]
    assert model(torch.rand(1, 3, 8, 8)).shape == (1, 10)
    with pytest.raises(
        RuleError, match=r"squares must be among the network's activations, 1 to 7: got \[8\]; use \[2,5"
    ):
        minionn_cifar(squares=[8])
