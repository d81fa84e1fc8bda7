import dataclasses
import math

import pytest
import torch
from torch import nn

from privcirnet.config import RecipeConfig
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa2d, Square
from privcirnet.train.callbacks import OutlierPenalty
from privcirnet.train.loop import fit
from tests.train.test_distributed import DATA, OUTLIERS, UNEVEN, with_aespa

LIMIT = "privcirnet.train.callbacks.LIMIT"
X = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)).double()


def by_hand(inputs: list[torch.Tensor], limit: float) -> float:
    total = 0.0
    for x in inputs:
        rms = math.sqrt(sum(v * v for v in x.flatten().tolist()) / x.numel())
        for image in x:
            peak = max(abs(v) for v in image.flatten().tolist())
            total += max(0.0, math.log(peak / (limit * rms))) ** 2
    return total / len(inputs[0])


@pytest.mark.parametrize("limit", [0.5, 2.0, 2.5])
def test_is_the_formula(limit, monkeypatch):
    monkeypatch.setattr(LIMIT, limit)
    observer = OutlierPenalty(model := nn.Sequential(Square(), Square()), 0.5)
    model(X)
    assert observer.penalty().item() == pytest.approx(0.5 * by_hand([X, X**2], limit), rel=1e-12)
    assert observer.penalty() == 0


def test_negative_peaks_count_and_rms_is_a_constant(monkeypatch):
    monkeypatch.setattr(LIMIT, 1.0)
    x = torch.tensor([[1.0], [-5.0]], requires_grad=True)
    observer = OutlierPenalty(model := nn.Sequential(Square()), 1.0)
    model(x)
    penalty = observer.penalty()
    penalty.backward()
    ratio = 5 / math.sqrt(13)
    assert penalty.item() == pytest.approx(math.log(ratio) ** 2 / 2)
    torch.testing.assert_close(x.grad, torch.tensor([[0.0], [-math.log(ratio) / 5]]))


@pytest.mark.parametrize("limit", [0.5, 1.5, 100.0])
def test_the_gradient_is_that_of_torchs_own_operations(limit, monkeypatch):
    monkeypatch.setattr(LIMIT, limit)
    gradients = []
    for layout in (torch.contiguous_format, torch.channels_last):
        x = X.clone().to(memory_format=layout).requires_grad_()
        observer = OutlierPenalty(model := nn.Sequential(Square(), Square()), 3.0)
        loss = model(x).sum() + observer.penalty()
        loss.backward()
        gradients.append(x.grad)
    expected = X.clone().requires_grad_()
    loss = (expected**4).sum()
    for value in (expected, expected**2):
        peaks = value.abs().amax((1, 2, 3)) / (limit * value.detach().square().mean().sqrt())
        loss = loss + 3 * peaks.clamp_min(1).log().square().mean()
    loss.backward()
    for found in gradients:
        torch.testing.assert_close(found, expected.grad)


def test_evaluation_and_networks_without_squares_cost_nothing():
    observer = OutlierPenalty(model := nn.Sequential(Aespa2d(3)), 1.0)
    model.eval()(X)
    assert observer.penalty() == 0
    assert OutlierPenalty(nn.Sequential(nn.ReLU()), 1.0).penalty() == 0


def test_nothing_is_left_in_the_network():
    observer = OutlierPenalty(model := nn.Sequential(Square()), 1.0)
    observer.detach()
    model(X)
    assert observer.penalty() == 0


def largest(**changes) -> float:
    """Mean over images and squares of the peak in root mean squares, after training."""
    model = with_aespa()
    fit(model, DATA, dataclasses.replace(UNEVEN, **changes), 3)
    found = []

    def see(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        (x,) = inputs
        found.append((x.flatten(1).abs().amax(1) / x.square().mean().sqrt()).mean().item())

    for module in model.modules():
        assert not module._forward_pre_hooks
        if isinstance(module, Aespa2d):
            module.register_forward_pre_hook(see)
    model(DATA.real(DATA.test_images))
    return sum(found) / len(found)


def test_training_with_it_shortens_them(monkeypatch):
    monkeypatch.setattr(LIMIT, 1.0)
    assert largest(**OUTLIERS) < 0.9 * largest()


def test_the_weight_is_checked():
    with pytest.raises(RuleError, match=r"recipe.outlier_penalty must .*: got -1.0"):
        RecipeConfig(outlier_penalty=-1.0)
