import dataclasses

import pytest
import torch
from torch import nn

from privcirnet.blocksize_search import curvature
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.models import DigitsResNet
from privcirnet.train import sensitivities
from privcirnet.train.network import weighted_layers
from privcirnet.train.sensitivities import GROUP, measure
from tests.nn.networks import assert_unchanged, snapshot

DATA = load("digits")
SIZES = {"stem": (1,), "down": (1, 2, 8), "conv1": (1, 4)}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return DigitsResNet(width=8)


def test_all_samples_give_what_one_measurement_gives(model):
    before = snapshot(model)
    seen: list[int] = []
    found = measure(model, DATA, SIZES, ["fisher"], 200, 0.5, progress=seen.append)["fisher"]
    assert_unchanged(model, before)
    assert seen == [64, 128, 192, 200]
    assert (found.samples, found.stable) == (200, None)
    images, labels = DATA.sample(200)
    groups = zip(images.split(GROUP), labels.split(GROUP), strict=True)
    mean = sum(
        curvature.diagonal_fisher(model, [(DATA.real(x), y)], ["conv1"])["conv1"] * len(y) / 200 for x, y in groups
    )
    weight = weighted_layers(model)["conv1"].weight.detach()
    from privcirnet.nn.functional.circulant import sensitivity

    assert found.values["conv1"][4] == pytest.approx(sensitivity(weight, mean, 4, 0.5).item(), rel=1e-9)
    assert found.omegas["stem"] == {1: curvature.SensitivityEstimate(0.0, 0.0)}
    assert 0 < found.omegas["down"][8].error < found.omegas["down"][8].value


def test_two_equal_decisions_in_a_row_end_it(model):
    asked: list[dict] = []
    answers = iter(["a", "b", "b"])

    def decide(omega: dict) -> str:
        asked.append(omega)
        return next(answers)

    found = measure(model, DATA, SIZES, ["fisher"], 1400, 1.0, decide)["fisher"]
    assert (found.samples, found.stable, len(asked)) == (16 * GROUP, True, 3)
    assert asked[-1] == found.values


def test_decisions_that_never_agree_use_all_samples(model):
    answers = iter(range(9))
    small = dataclasses.replace(DATA, train_images=DATA.train_images[:600], train_labels=DATA.train_labels[:600])
    found = measure(model, small, SIZES, ["batch_gradient"], 10**6, 1.0, lambda _: next(answers))["batch_gradient"]
    assert (found.samples, found.stable) == (600, False)


def test_plain_errors_need_no_images(model):
    found = measure(model, DATA, SIZES, ["weights"], 1, 1.0, lambda omega: None)["weights"]
    assert (found.samples, found.stable) == (0, None)
    assert found.values["down"][1] == 0 < found.values["down"][2] < found.values["down"][8]


def test_a_small_last_group_does_not_outweigh_the_others(model):
    """The squared gradient of two images is 32 times that of 64, on average."""
    found = [measure(model, DATA, SIZES, ["batch_gradient"], n, 1.0)["batch_gradient"] for n in (128, 130)]
    whole, more = (each.values["conv1"][4] for each in found)
    assert more < 1.7 * whole


def test_gradients_that_are_not_finite_are_said_at_their_first_group():
    """The logits are finite, but not the square of a gradient."""
    model, seen = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 10)), []
    with torch.no_grad():
        model[1].weight.fill_(1e22)
        model[2].weight.fill_(1e-26)
    sensitivities.check_trained(model, DATA, "fisher", 200)
    message = "squared gradients must be finite: got others in 2; train it longer"
    with pytest.raises(RuleError, match=message):
        measure(model, DATA, {"1": (1, 2), "2": (1, 2)}, ["fisher"], 200, 0.5, progress=seen.append)
    assert seen == []


def test_kinds_of_one_pass_are_those_of_their_own(model):
    kinds = ["kfac", "energy", "fisher", "weights"]
    together = measure(model, DATA, SIZES, kinds, 200, 0.5)
    alone = {kind: measure(model, DATA, SIZES, [kind], 200, 0.5)[kind] for kind in kinds}
    assert {k: found.omegas for k, found in together.items()} == {k: found.omegas for k, found in alone.items()}


def test_energy_is_what_entries_weigh_times_how_many_become_one(model):
    found = measure(model, DATA, SIZES, ["energy"], 64, 1.0)["energy"].values["conv1"]
    images, labels = next(iter(DATA.sampled(64, GROUP)))
    fisher = curvature.diagonal_fisher(model, [(images, labels)], ["conv1"])["conv1"]
    weight = weighted_layers(model)["conv1"].weight.detach()
    assert found == {1: 0.0, 4: pytest.approx(3 * float((fisher * weight.double().square()).sum()))}
