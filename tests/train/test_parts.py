"""Networks with AESPA train in parts of a batch, so that few images far out do not crush all others."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from privcirnet.data import ImageData
from privcirnet.nn.activations import Aespa2d, Square
from privcirnet.train import loop
from privcirnet.train import loop as parts
from privcirnet.train.loop import fit, in_parts
from tests.train.runs import DATA, RECIPE, bars


def row(squares: int) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before in [1, *[8] * (squares - 1)]:
        layers += [nn.Conv2d(before, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), Aespa2d(8)]
    return nn.Sequential(*layers, nn.AvgPool2d(6), nn.Flatten(), nn.Linear(8, 2))


def far_out(count: int) -> tuple[Tensor, Tensor]:
    """Images of which one in 256 is eight times as bright."""
    images, labels = bars(count, 1)
    images[::256] *= 8
    return images, labels


@pytest.mark.parametrize(("part", "least", "most"), [(512, 0, 60), (32, 85, 100)])
def test_few_images_far_out_leave_large_batches_at_chance(part, least, most, monkeypatch):
    monkeypatch.setattr(parts, "MOST", part)
    monkeypatch.setattr(
        loop, "stabilize_statistics_", lambda *_: None
    )  # ten steps: it would measure the image that varies most
    data = ImageData(*far_out(1024), *bars(200, 2), log_step=-4, levels=255, classes=("column", "row"))
    recipe = dataclasses.replace(RECIPE, epochs=5, batch_size=512, ema=0.9, clip_gradient=1.0)
    assert least <= fit(row(3), data, recipe, 0)[-1]["top1"] <= most


@pytest.mark.parametrize(("activation", "sizes"), [(Aespa2d(8), {9, 8, 7}), (Square(), {36, 28})])
def test_only_aespa_sees_parts_of_batches_and_of_what_is_measured_anew(activation, sizes, monkeypatch):
    monkeypatch.setattr(parts, "MOST", 9)
    seen = []
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), activation, nn.Flatten(), nn.Linear(128, 2))
    model[1].register_forward_hook(lambda module, inputs, _: seen.append(len(inputs[0])) if module.training else None)
    fit(model, DATA, dataclasses.replace(RECIPE, epochs=1, batch_size=36, ema=0.5), 0)
    assert set(seen) - {1} <= sizes | {10}
    assert sum(seen) == 2 * DATA.count


def test_gradients_of_parts_are_those_of_the_batch_where_nothing_depends_on_the_others(monkeypatch):
    """An AESPA that is never reached."""

    def trained(part: int) -> nn.Module:
        monkeypatch.setattr(parts, "MOST", part)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).double()
        model.unused = Aespa2d(2)
        model.forward = lambda x: model[1](model[0](x.double()))
        fit(model, DATA, dataclasses.replace(RECIPE, mixup=0.4, clip_gradient=1.0), 0)
        return model

    whole, in_four = trained(16), trained(5)
    torch.testing.assert_close(in_four[1].weight, whole[1].weight, rtol=1e-9, atol=0)


def test_no_image_is_alone():
    for count in range(1, 40):
        for most in (2, 3, 16):
            sizes = [len(part) for part in in_parts(torch.arange(count), most)]
            assert sum(sizes) == count
            assert max(sizes) <= most + 1
            assert min(sizes) >= min(count, 2)
