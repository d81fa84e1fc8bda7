import pytest
import torch

from privcirnet.errors import RuleError
from privcirnet.models import minionn_cifar
from privcirnet.nn.activations import Square


def test_squares_where_they_are_asked_for():
    model = minionn_cifar(squares=[2, 5], width=8, image_size=8)
    assert [name for name, module in model.named_modules() if isinstance(module, Square)] == ["act2", "act5"]
    assert model(torch.rand(1, 3, 8, 8)).shape == (1, 10)
    with pytest.raises(
        RuleError, match=r"squares must be among the network's activations, 1 to 7: got \[8\]; use \[2,5"
    ):
        minionn_cifar(squares=[8])
