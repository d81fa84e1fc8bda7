"""Images that grow: the sizes, the average over a smaller map, and networks that know nothing of it afterwards."""

import dataclasses

import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.training import checkpoint
from privcirnet.training.image_size import GrowingImages
from privcirnet.training.loop import accuracy, fit
from privcirnet.training.network import create
from tests.training.runs import DATA, RECIPE, SETTINGS, Interrupted, small, without_times

GROWING = dataclasses.replace(RECIPE, epochs=6, smallest_image=0.4)


def convolutional(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, padding=1)]
    return nn.Sequential(*layers, nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(16, 2))


def sides(smallest, epochs, name="mobilenetv2_cifar", side=32):
    growing = GrowingImages(create(name, 10, (3, 32, 32)), torch.zeros(1, 3, side, side), smallest, epochs)
    return [growing.side(epoch) for epoch in range(epochs)]


def test_sides_grow_to_the_whole_image_for_the_last_quarter():
    assert sides(0.5, 8) == [16, 16, 24, 24, 24, 32, 32, 32]
    assert sides(0.01, 4, "mobilenetv2_tiny", 64) == [16, 16, 48, 64]
    assert sides(1.0, 3) == [32] * 3
    assert sides(0.5, 2) == [16, 32]
    assert sides(0.5, 1) == [32]


@pytest.mark.parametrize("name", ["mobilenetv2_cifar", "resnet18_cifar"])
def test_a_smaller_image_is_averaged_over_its_whole_map(name):
    """As a network that is made for images of that size does."""
    torch.manual_seed(0)
    model = create(name, 10, (3, 32, 32), {"width": 8 if "resnet" in name else 0.25}).eval()
    there = create(name, 10, (3, 32, 32), {"width": 8 if "resnet" in name else 0.25, "image_size": 16}).eval()
    there.load_state_dict(model.state_dict())
    images = torch.rand(2, 3, 32, 32)
    whole = model(images)
    growing = GrowingImages(model, images[:1], 0.5, 8)
    with growing.of_epoch(0):
        resized = growing(images)
        assert resized.shape == (2, 3, 16, 16)
        assert torch.equal(model(resized), there(resized))
    assert growing(images) is images
    assert torch.equal(model(images), whole)
    with growing.of_epoch(7):
        assert growing(images) is images


def test_the_pool_is_whole_again_after_an_error():
    model = convolutional()
    growing = GrowingImages(model, torch.zeros(1, 1, 6, 6), 0.3, 8)
    seen = []

    def interrupt():
        seen.append((model[6].kernel_size, model[6].stride))
        raise Interrupted

    with pytest.raises(Interrupted), growing.of_epoch(0):
        interrupt()
    assert seen == [(1, 1)]
    assert (model[6].kernel_size, model[6].stride) == (3, 3)


@pytest.mark.parametrize(("name", "side"), [("vit_cifar", 32), ("lola_cifar", 32)])
def test_other_networks_refuse_it(name, side):
    with pytest.raises(RuleError, match="smallest_image needs a network that ends in one average: got 0 averages"):
        GrowingImages(create(name, 10, (3, 32, 32)), torch.zeros(1, 3, side, side), 0.5, 8)
    with pytest.raises(RuleError, match="ends in one average"):
        fit(small(), DATA, GROWING, 0)


def test_a_network_learns_from_smaller_images_and_is_measured_on_whole_ones():
    model, seen = convolutional(), []
    model[0].register_forward_pre_hook(lambda module, inputs: seen.append((module.training, inputs[0].shape[-1])))
    history = fit(model, DATA, dataclasses.replace(GROWING, epochs=12), 0)
    assert history[-1]["top1"] >= 80
    assert accuracy(model, DATA) == history[-1]["top1"]
    assert {side for training, side in seen if training} == {2, 4, 6}
    assert {side for training, side in seen if not training} == {6}
    assert model[6].kernel_size == 3


def test_it_resumes_bit_for_bit(tmp_path):
    whole = convolutional()
    expected = fit(whole, DATA, GROWING, 3)

    def after_epoch(progress):
        checkpoint.save(tmp_path, progress, SETTINGS)
        if progress.epoch == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(convolutional(), DATA, GROWING, 3, after_epoch=after_epoch)
    resumed = convolutional(seed=9)
    history = fit(resumed, DATA, GROWING, 3, start=checkpoint.load(tmp_path, SETTINGS))
    assert without_times(history) == without_times(expected)
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())
