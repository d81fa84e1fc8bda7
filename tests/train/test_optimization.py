import dataclasses
import math

import pytest
import torch
from timm.optim import Muon
from torch import nn

from privcirnet.config import RecipeConfig
from privcirnet.errors import RuleError
from privcirnet.nn.quantization_steps import learn_steps_, learned_steps
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.train.optimization import STEPS_LEARNING_RATE, average_of, optimizer_of, rate, schedule_of


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


@pytest.mark.parametrize(("name", "kind"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD), ("muon", Muon)])
def test_only_weights_decay(name, kind):
    optimizer = optimizer_of(model(), RecipeConfig(optimizer=name, weight_decay=0.1, momentum=0.8))
    assert isinstance(optimizer, kind)
    decays = {
        parameter.ndim: group["weight_decay"] for group in optimizer.param_groups for parameter in group["params"]
    }
    assert decays == {4: 0.1, 2: 0.1, 1: 0.0}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 6
    if name != "adamw":
        assert {group["momentum"] for group in optimizer.param_groups} == {0.8}


def test_muon_moves_matrices_orthogonally_and_all_else_at_the_scheduled_rate():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(8, 8))
    before = {name: value.detach().clone() for name, value in layers.named_parameters()}
    recipe = RecipeConfig(optimizer="muon", epochs=1, learning_rate=0.01, weight_decay=0.0, warmup_epochs=1)
    optimizer = optimizer_of(layers, recipe)
    schedule_of(optimizer, recipe, steps_per_epoch=10)
    for parameter in layers.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    moved = {name: value.detach() - before[name] for name, value in layers.named_parameters()}
    for name in ("0.weight", "3.weight"):
        gradient = torch.linalg.svdvals(layers.get_parameter(name).grad.flatten(1))
        update = torch.linalg.svdvals(moved[name].flatten(1))
        assert update.max() / update.min() < min(2, gradient.max() / gradient.min())
    assert 0 < moved["1.weight"].abs().max() < 2 * 0.01 / 10


def learning() -> nn.Module:
    layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    return learn_steps_(quantize(fuse(layers), torch.rand(2, 1, 3, 3)))


def test_learned_steps_have_their_own_rate_and_no_decay():
    network, recipe = learning(), RecipeConfig(epochs=1, weight_decay=0.1, learning_rate=0.5, min_learning_rate=0.005)
    optimizer = optimizer_of(network, recipe)
    steps, held = learned_steps(network), [p for group in optimizer.param_groups for p in group["params"]]
    assert len(steps) == 3
    assert {id(p) for p in held} == {id(p) for p in network.parameters()}
    assert len(held) == len(set(map(id, held))) == 7
    last = optimizer.param_groups[-1]
    assert (len(last["params"]), last["lr"], last["weight_decay"]) == (3, STEPS_LEARNING_RATE, 0.0)
    assert {id(p) for p in last["params"]} == {id(p) for p in steps}
    schedule = schedule_of(optimizer, recipe, steps_per_epoch=4)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.005)
    assert last["lr"] == pytest.approx(STEPS_LEARNING_RATE / 100)


def test_relative_rates_are_shares_of_each_tensors_size():
    network, recipe = learning(), RecipeConfig(epochs=1, learning_rate=0.01, min_learning_rate=1e-4, relative=True)
    with torch.no_grad():
        network.get_submodule("0").parametrizations["weight"].original.mul_(1e-6)
        network.get_submodule("2").parametrizations["bias"].original.zero_()
    optimizer = optimizer_of(network, recipe)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    steps = {id(p) for p in learned_steps(network)}
    assert len(rates) == 7
    for name, parameter in network.named_parameters():
        size = parameter.detach().square().mean().sqrt().item()
        expected = STEPS_LEARNING_RATE if id(parameter) in steps else 0.01 * (size or 1.0)
        assert rates[id(parameter)] == pytest.approx(expected), name
    schedule = schedule_of(optimizer, recipe, steps_per_epoch=4)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    for group in optimizer.param_groups:
        assert group["lr"] == pytest.approx(rates[id(group["params"][0])] / 100)


def test_learned_steps_need_adamw():
    with pytest.raises(RuleError, match="learned steps need AdamW: got sgd"):
        optimizer_of(learning(), RecipeConfig(optimizer="sgd"))


def test_the_rate_rises_falls_and_ends_where_it_should():
    recipe = RecipeConfig(epochs=10, warmup_epochs=2, learning_rate=0.5, min_learning_rate=0.01)
    optimizer = optimizer_of(model(), recipe)
    schedule, seen = schedule_of(optimizer, recipe, steps_per_epoch=7), []
    for _ in range(70):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert seen[0] == pytest.approx(0.5 / 14)
    assert seen[:14] == sorted(seen[:14])
    assert seen[13] == seen[14] == pytest.approx(0.5)
    assert seen[14:] == sorted(seen[14:], reverse=True)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    half = 0.01 + 0.49 * (1 + math.cos(math.pi / 2)) / 2
    assert seen[14 + 28] == pytest.approx(half)


def test_without_warm_up_it_starts_high():
    assert rate(0, total=5, warm_up=0, lowest=0.1) == 1.0
    assert rate(9, total=5, warm_up=0, lowest=0.1) == pytest.approx(0.1)


def test_the_average_follows():
    network = model()
    assert average_of(network, RecipeConfig()) is None
    average = average_of(network, RecipeConfig(ema=0.9))
    start = network[0].weight.detach().clone()
    with torch.no_grad():
        network[0].weight += 1
    for step in range(1, 200):
        average.update(network, step)
    torch.testing.assert_close(average.module[0].weight, start + 1, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "lion"}, "recipe.optimizer must be a known one: got 'lion'; use one of adamw, sgd, muon"),
        ({"ema": 1.0}, r"recipe.ema must be in \[0, 1\): got 1.0; use 0"),
        ({"clip_gradient": -1.0}, "recipe.clip_gradient must be at least 0"),
    ],
)
def test_wrong_settings(change, message):
    with pytest.raises(RuleError, match=message):
        dataclasses.replace(RecipeConfig(), **change)
