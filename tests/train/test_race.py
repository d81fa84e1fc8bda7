"""The training of a plan in a race: as many steps as asked, whatever an epoch has; no trace in a caller's generator."""

import copy

import pytest
import torch

from privcirnet.config import RecipeConfig
from privcirnet.data import load
from privcirnet.models import DigitsResNet
from privcirnet.train.race import train_for_
from tests.nn.networks import assert_unchanged, snapshot

DATA = load("digits").part(48)


@pytest.mark.parametrize("steps", [2, 5])
def test_a_network_is_trained_for_so_many_steps(steps):
    torch.manual_seed(0)
    dense = DigitsResNet(width=8).eval()
    before, model, seen = snapshot(dense), copy.deepcopy(dense), []
    state = torch.get_rng_state()
    recipe = RecipeConfig(batch_size=16, epochs=7, warmup_epochs=3, ema=0.9, distillation=0.5)  # three steps an epoch
    train_for_(steps, model, DATA, recipe, dense, seen.append)
    assert [step.number for step in seen] == list(range(1, steps + 1))
    assert seen[0].learning_rate == recipe.learning_rate > seen[-1].learning_rate
    assert torch.equal(torch.get_rng_state(), state)
    assert_unchanged(dense, before)
    assert not torch.equal(model.conv1.weight, dense.conv1.weight)
    assert not model.training
