import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.models import fitnet


def convolutions(model):
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


@pytest.mark.parametrize(
    ("number", "count", "weights"), [(1, 9, 90288), (2, 9, 364464), (3, 11, 685152), (4, 17, 1205856)]
)
def test_layers_of_the_paper(number, count, weights):
    """As many convolutions as ENSEI's Table 5 has for XONN's BC2 to BC5."""
    model = fitnet(number=number)
    assert len(convolutions(model)) == count
    assert sum(layer.weight.numel() for layer in convolutions(model)) == weights
    assert model(torch.rand(2, 3, 8, 8).repeat(1, 1, 4, 4)).shape == (2, 10)


def test_an_unknown_number():
    with pytest.raises(RuleError, match="number must be that of a FitNet, 1 to 4: got 5; use number=1"):
        fitnet(number=5)
