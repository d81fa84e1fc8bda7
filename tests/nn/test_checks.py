import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.nn.checks import check_weights, logits_of_one
from tests.nn.networks import assert_unchanged, snapshot


def test_a_weight_of_two_layers_is_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    check_weights(model)
    model[2].weight = model[0].weight
    with pytest.raises(RuleError, match=r"each layer must have weights of its own: got 0.weight = 2.weight; give each"):
        check_weights(model)


def test_weights_and_statistics_that_are_not_finite_are_named():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    model[1].running_var[0] = torch.inf
    with pytest.raises(RuleError, match=r"weights must be finite: got NaN or infinity in 1.running_var; load other"):
        check_weights(model)


def test_a_network_is_asked_in_evaluation_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten()).train()
    before = snapshot(model)
    assert logits_of_one(model, torch.rand(3, 1, 2, 2)).shape == (1, 2)
    assert_unchanged(model, before)
    with pytest.raises(
        RuleError, match=r"a network must return logits \(N, classes\): got shape \(1, 2, 1, 1\); end it"
    ):
        logits_of_one(model[:2], torch.rand(3, 1, 2, 2))
    with pytest.raises(RuleError, match=r"images must be a tensor \(N, C, H, W\), N at least 1: got list"):
        logits_of_one(model, [torch.rand(1, 2, 2)])
