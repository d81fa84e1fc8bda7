"""Statistics that a trained network can be evaluated with, however few its steps were and however deep it is."""

import dataclasses
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from privcirnet.data.dataset import OwnImages
from privcirnet.nn.activations import Aespa1d, Aespa2d
from privcirnet.nn.norm import BlockBatchNorm2d, TokenBatchNorm
from privcirnet.train import recalibration
from privcirnet.train.loop import fit
from privcirnet.train.recalibration import fit_widest_, recalibrate_, stabilize_statistics_
from tests.train.runs import RECIPE
from tests.train.test_recalibration import DATA, network


def deep(layers: int = 24) -> nn.Module:
    """Vectors through many squares: each amplifies the difference between a batch's variance and torch's by 32 / 31."""
    torch.manual_seed(0)
    groups = [(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), Aespa2d(8)) for _ in range(layers)]
    return nn.Sequential(*(layer for group in groups for layer in group), nn.Flatten(), nn.Linear(8, 2))


VECTORS, CLASSES = torch.randn(32, 8, 1, 1, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 2
OWN = OwnImages((VECTORS, CLASSES), None, lambda image: torch.zeros(1, 2))


@torch.no_grad()
def largest(model: nn.Module, images: torch.Tensor = VECTORS) -> float:
    return model.eval()(images).abs().max().item()


CHANNELS_FIRST = {
    "batch norm": (nn.BatchNorm2d(4), 1, (6, 4, 3, 5)),
    "batch norm of vectors": (nn.BatchNorm1d(4), 1, (6, 4)),
    "in blocks": (BlockBatchNorm2d(4, 2), 2, (6, 4, 3, 5)),
    "AESPA": (Aespa2d(4, 2), 2, (6, 4, 3, 5)),
}
CHANNELS_LAST = {
    "tokens": (TokenBatchNorm(4), 1, (6, 7, 4)),
    "tokens in blocks": (TokenBatchNorm(4, 2), 2, (6, 7, 4)),
    "vectors": (TokenBatchNorm(4), 1, (6, 4)),
    "AESPA of tokens": (Aespa1d(4, 2), 2, (6, 7, 4)),
    "AESPA of vectors": (Aespa1d(4), 1, (6, 4)),
}


def widest(x: torch.Tensor, mean: float = 0.0) -> float:
    """Of (images, values): by hand."""
    return max(sum((value - mean) ** 2 for value in row) / len(row) for row in x.tolist())


@pytest.mark.parametrize("kind", [*CHANNELS_FIRST, *CHANNELS_LAST])
def test_the_variance_is_that_of_the_image_that_varies_most(kind):
    norm, b, shape = (CHANNELS_FIRST | CHANNELS_LAST)[kind]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    x[2] *= 2
    fit_widest_(nn.Sequential(norm.double()), x)
    rows = (x.movedim(-1, 1) if kind in CHANNELS_LAST else x).reshape(6, 4, -1)
    for block, measured in enumerate(norm.running_var.tolist()):
        values = rows[:, block * b : (block + 1) * b].flatten(1)
        if isinstance(norm, Aespa1d | Aespa2d):
            assert measured == pytest.approx(widest(values))
            assert norm.running_square_var[block].item() == pytest.approx(widest(values**2) * 2 / 3)
        else:
            mean = values.mean().item()
            assert measured == pytest.approx(widest(values, mean))
            assert norm.running_mean[block].item() == pytest.approx(mean)


@pytest.mark.parametrize(("layers", "headroom"), [(2, 1.0), (24, 4.0)])
def test_headroom_is_as_much_as_images_need_that_were_not_measured(layers, headroom):
    """With none, 4 of the 64 others explode after 24 squares."""
    model = deep(layers)
    model[-2] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    measured, others = torch.randn(2, 64, 8, 4, 4, generator=torch.Generator().manual_seed(1))
    fit_widest_(model, measured)
    with torch.no_grad():
        x = model[0](measured)
        widest_image = (x - x.mean((0, 2, 3), keepdim=True)).square().mean((2, 3)).amax(0)
    found = (model[1].running_var / widest_image).sqrt()
    torch.testing.assert_close(found, torch.full((8,), headroom))
    assert largest(model, others) < 10 * largest(model, measured)


class Residual(nn.Module):
    """Squares of sums, whose means add up."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(24))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(24))
        self.squares = nn.ModuleList(Aespa2d(8) for _ in range(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm, square in zip(self.convs, self.norms, self.squares, strict=True):
            x = square(x + norm(conv(x)))
        return x.flatten(1)


def test_a_mean_that_a_residual_adds_does_not_grow_from_square_to_square():
    """With variances around the mean it is 1,000 after 24 squares."""
    torch.manual_seed(0)
    model = Residual()
    fit_widest_(model, VECTORS)
    assert largest(model) < 10


def test_noise_stays_noise_however_deep_the_network():
    """With one image far from the usual: of variances of all images it would double its error in each square."""
    model = deep(40)
    images = torch.randn(128, 8, 1, 1, generator=torch.Generator().manual_seed(1))
    images[5] *= 8
    noise = 1e-4 * torch.randn(images.shape, generator=torch.Generator().manual_seed(2))
    for module in model:
        if isinstance(module, Aespa2d):
            nn.init.constant_(module.running_var, torch.nan)
    fit_widest_(model, images)
    assert {module.momentum for module in model if hasattr(module, "momentum")} == {0.1}
    assert not any(module.training or module._forward_pre_hooks for module in model.modules())
    with torch.no_grad():
        logits, other = model(images), model(images + noise)
    assert (other - logits).abs().max() < 0.1 * logits.abs().max()


def test_a_measured_image_is_evaluated_where_means_over_batches_make_it_explode():
    model = deep()
    recalibrate_(model, OWN)
    assert not largest(model) < 100
    stabilize_statistics_(model, OWN, 32, 2)
    assert largest(model) < 100


@pytest.mark.parametrize(("steps", "momentum", "stale"), [(2, 0.1, True), (43, 0.1, True), (44, 0.1, False)])
def test_statistics_of_few_steps_are_measured_anew(steps, momentum, stale):
    model = network()
    model(DATA.real(DATA.test_images))
    model[0].momentum = model[1].momentum = momentum
    model.eval()
    before = model[0].running_mean.clone()
    stabilize_statistics_(model, DATA, 16, steps)
    mean = DATA.real(DATA.train_images).mean((0, 2, 3))
    torch.testing.assert_close(model[0].running_mean, mean if stale else before)


def test_a_network_without_squares_gets_means_over_batches():
    model, expected = (nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)) for _ in range(2))
    model(images := 3 * VECTORS + 1)
    data = OwnImages((images, CLASSES), None, lambda image: torch.zeros(1, 2))
    recalibrate_(expected, data)
    stabilize_statistics_(model.eval(), data, 32, 2)
    torch.testing.assert_close(model[0].running_var, expected[0].running_var)
    torch.testing.assert_close(model[0].running_mean, expected[0].running_mean)


def test_statistics_of_which_a_mean_is_made_are_never_stale():
    model = network()
    model(DATA.real(DATA.test_images))
    model[0].momentum, model[1].momentum = None, 0.9
    before = model.eval()[0].running_mean.clone()
    stabilize_statistics_(model, DATA, 16, 2)
    assert torch.equal(model[0].running_mean, before)


@pytest.mark.parametrize(("mean", "kept"), [(0.0, True), (-5.0, False)])
def test_statistics_with_which_images_explode_stay_only_if_fewer_are_right_with_others(mean, kept, monkeypatch):
    """One image of four explodes and three are right; then four, or two."""
    monkeypatch.setattr(recalibration, "fit_widest_", lambda m, *_: m[0].load_state_dict(statistics(mean, 1.0)))
    model = nn.Sequential(nn.BatchNorm2d(1, eps=0, affine=False), nn.Flatten(), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        model[0].load_state_dict(before := statistics(0.0, 1e-38))
        model[2].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model[2].bias.zero_()
    images, labels = torch.tensor([-1.0, 1.0, -1.0, 1e20]).reshape(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])
    data = OwnImages((images, labels), None, lambda image: torch.zeros(1, 2))
    with nullcontext() if kept else pytest.warns(UserWarning, match="infinity for 1 of 4 training images, from 0 on"):
        stabilize_statistics_(model, data, 4, 1000)
    expected = statistics(mean, 1.0) if kept else before
    assert all(torch.equal(value, expected[name]) for name, value in model[0].state_dict().items())


def statistics(mean: float, var: float) -> dict[str, torch.Tensor]:
    return {
        "running_mean": torch.tensor([mean]),
        "running_var": torch.tensor([var]),
        "num_batches_tracked": torch.tensor(1),
    }


def test_what_still_explodes_is_said():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 2), nn.Linear(2, 2)).eval()
    with torch.no_grad():
        model[1].weight.fill_(1e30)
        model[2].weight.fill_(1e30)
    with pytest.warns(
        UserWarning, match=r"finite logits: got NaN or infinity for 32 of 32 training images, from 2 on; t"
    ):
        stabilize_statistics_(model, OWN, 32, 1000)


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_a_network_can_be_evaluated_after_two_steps(ema):
    model = deep()
    with torch.no_grad():
        for module in model:
            if isinstance(module, nn.Conv2d):
                module.weight.mul_(4)
    history = fit(model, OWN, dataclasses.replace(RECIPE, epochs=2, batch_size=32, learning_rate=1e-3, ema=ema), 0)
    assert history[-1]["loss"] < 100
    assert largest(model) < 100
