"""Blocks that imitate those of the network before: the formula, what goes on, and that it helps a transformer."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from privcirnet.config import RecipeConfig
from privcirnet.errors import RuleError
from privcirnet.models.vit import Operations, Size, VisionTransformer
from privcirnet.train.distillation import FAR, PEAKS, FeatureDistillation, distance
from privcirnet.train.loop import fit
from tests.train.runs import DATA, RECIPE, small

X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))


class Scale(nn.Module):
    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factors))

    def forward(self, x):
        return x * self.factor


def transformer(seed=0, **operations):
    torch.manual_seed(seed)
    return VisionTransformer(Size(6, 2, 1, 16, 2), Operations(**operations), 2, 1)


def rows(*factors):
    return nn.Sequential(*(Scale(*f) if isinstance(f, tuple) else Scale(f) for f in factors))


def by_hand(x, t):
    means, peaks = [], []
    var = t.double().var().item()
    for image, wanted in zip(x.tolist(), t.tolist(), strict=True):
        logs = [
            math.log(1 + sum((v - w) ** 2 for v, w in zip(a, b, strict=True)) / len(a) / var)
            for a, b in zip(image, wanted, strict=True)
        ]
        means.append(sum(logs) / len(logs))
        peaks.append(max(logs))
    return sum(means) / len(means) + PEAKS * sum(peaks) / len(peaks)


def test_is_the_formula_summed_over_the_blocks():
    model, original = rows(1.5, 1.0, 2.0), rows(1.0, 1.2, 1.0)
    imitation = FeatureDistillation(model.train(), original, "*", 1)
    imitation.show(X)
    model(X)
    wanted = [X, 1.2 * X, 1.2 * X]
    values = [1.5 * X, 1.5 * X, 3.0 * X]
    expected = sum(by_hand(x, t) for x, t in zip(values, wanted, strict=True))
    assert imitation.penalty().item() == pytest.approx(expected, rel=1e-5)
    assert imitation.penalty() == 0.0


@pytest.mark.parametrize("shape", [(2, 6), (2, 5, 6), (2, 6, 3, 3)])
def test_distance_is_over_channels(shape):
    wanted = torch.randn(shape)
    axis = 1 if len(shape) == 4 else -1
    off = distance(wanted.bfloat16() * 0 + 1, wanted)
    torch.testing.assert_close(off.squeeze(axis), (1 - wanted).square().mean(axis) / wanted.var())


def test_far_positions_go_on_with_the_originals_values_and_still_learn():
    far = math.sqrt(2.0)
    model, original = rows((1.0, 1.0, 1.0, 1.0), 3.0), rows(1.0, 1.0)
    x = X.clone()
    x[0, 0] = 0.1
    with torch.no_grad():
        model[0].factor.fill_(1 + far)  # off by `far` standard deviations where x is 1
    imitation = FeatureDistillation(model.train(), original, "*", 1)
    imitation.show(x)
    out = model(x)
    off = distance(x * (1 + far), x)
    assert (off > 1).any()
    assert (off <= 1).any()
    first = torch.where(off <= 1, x * (1 + far), x)
    torch.testing.assert_close(out, torch.where(distance(3 * first, x) <= 1, 3 * first, x))
    imitation.penalty().backward()
    assert model[0].factor.grad.abs().min() > 0


def test_the_limit_grows_from_epoch_to_epoch():
    imitation = FeatureDistillation(rows(1.0), rows(1.0), "*", 3)
    limits = []
    for epoch in range(3):
        imitation.epoch(epoch)
        limits.append(imitation.limit)
    assert limits == pytest.approx([1, math.sqrt(FAR), FAR])


def test_statistics_are_measured_near_the_original_in_every_epoch():
    """Values that may go on in the last epoch's training would be in them, exploded as they are."""
    imitation = FeatureDistillation(rows(1.0), rows(1.0), "*", 2)
    imitation.epoch(1)
    other = rows(1 + math.sqrt(2.0))
    off = distance(other(X), X)
    assert (off > 1).any()
    assert (off < FAR).all()
    with imitation.beside(other):
        torch.testing.assert_close(other(X), torch.where(off <= 1, other[0].factor * X, X))
    assert imitation.limit == FAR


def test_values_that_are_not_finite_go_no_further():
    model, original = rows(float("nan"), 1.1), rows(1.0, 1.0)
    imitation = FeatureDistillation(model.train(), original, "*", 1)
    imitation.show(X)
    torch.testing.assert_close(model(X), 1.1 * X)


def test_evaluation_and_afterwards_are_as_without():
    model, original = rows(100.0), rows(1.0)
    imitation = FeatureDistillation(model, original, "*", 1)
    assert torch.equal(model.eval()(X), 100 * X)
    other = rows(50.0)
    with imitation.beside(other):
        assert torch.equal(other.eval()(X), X)
    assert torch.equal(other(X), 50 * X)
    assert imitation.penalty() == 0.0
    imitation.detach()
    assert not model[0]._forward_hooks
    assert not original[0]._forward_hooks
    assert torch.equal(model.train()(X), 100 * X)


def test_a_star_does_not_match_a_dot():
    """The inner block is off as the outer one is, and counts no second time."""
    model, original = (nn.Sequential(nn.Sequential(rows(factor))) for factor in (1.5, 1.0))
    imitation = FeatureDistillation(model.train(), original, "0.*", 1)
    imitation.show(X)
    model(X)
    assert imitation.penalty().item() == pytest.approx(by_hand(1.5 * X, X), rel=1e-5)


@pytest.mark.parametrize("pattern", ["layers.*", "1"])
def test_networks_without_such_blocks_refuse_it(pattern):
    with pytest.raises(RuleError, match=r"got .* in the original"):
        FeatureDistillation(rows(1.0, 1.0), rows(1.0), pattern, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"imitate": "*"}, "needs recipe.init"),
        ({"imitate": "*", "init": "x", "compile": True}, "not compiled"),
        ({"original": "x"}, r"needs recipe.imitate: got x; use imitate='blocks"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(RuleError, match=message):
        RecipeConfig(**settings)


def test_a_network_with_other_operations_comes_nearer():
    original = transformer()
    fit(original, DATA, dataclasses.replace(RECIPE, epochs=4, learning_rate=2e-3), 0)
    recipe = dataclasses.replace(RECIPE, epochs=3, imitate="blocks.*", init="x")
    gaps = []
    for pattern in ("", "blocks.*"):
        other = transformer(1, norm="batch", attention="polynomial", activation="aespa")
        other.load_state_dict(original.state_dict(), strict=False)
        chosen = dataclasses.replace(recipe, imitate=pattern)
        fit(other, DATA, chosen, 0, original=original if pattern else None)
        images = DATA.real(DATA.test_images)
        with torch.no_grad():
            t = original.blocks(original.tokens(original.patch_embed(images)))
            x = other.blocks(other.tokens(other.patch_embed(images)))
        gaps.append(distance(x, t).median().item())
    assert gaps[1] < gaps[0] / 2


def test_a_convolutional_network_can_imitate():
    original, model = small(), small()
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d) and "." not in name]
    recipe = dataclasses.replace(RECIPE, epochs=1, imitate=names[0], init="x")
    assert math.isfinite(fit(model, DATA, recipe, 0, original=original)[-1]["loss"])
