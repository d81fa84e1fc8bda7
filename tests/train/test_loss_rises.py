import pytest
import torch

from privcirnet.data import load
from privcirnet.models import DigitsResNet
from privcirnet.nn.functional.circulant import damped, expand, project
from privcirnet.train import stages
from privcirnet.train.sensitivities import loss, loss_rises, rank_correlation
from tests.nn.networks import assert_unchanged, snapshot

DATA = load("digits")


def test_the_rise_is_that_of_one_projected_layer():
    torch.manual_seed(0)
    model = DigitsResNet(width=8).eval()
    fisher = stages.fisher_information(model, DATA, ["conv1", "conv2"], 64)
    importance = {name: damped(values, 0.5) for name, values in fisher.items()}
    before, seen = snapshot(model), []
    rows = loss_rises(model, DATA, {"conv1": (1, 4), "conv2": (2,)}, importance, 100, seen.append)
    assert_unchanged(model, before)
    assert [(row["layer"], row["b"]) for row in rows] == [("conv1", 4), ("conv2", 2)]
    assert seen == ["conv1, b = 4", "conv2, b = 2"]
    some = DATA.held_out(100)
    dense = loss(model, some, DATA)
    with torch.no_grad():
        model.conv1.weight.copy_(expand(project(model.conv1.weight, 4, importance["conv1"]), 4))
    assert rows[0]["weight"] == pytest.approx(loss(model, some, DATA) - dense, abs=1e-6)
    assert rows[0]["start"] != rows[0]["weight"]


def test_rank_correlation():
    assert rank_correlation([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]) == pytest.approx(0.8)
    assert rank_correlation([1.0, 2.0, 3.0], [9.0, 8.0, -7.0]) == -1.0
