"""Transformers that see fewer patches at first, and know nothing of it afterwards."""

import dataclasses

import pytest
import torch

from privcirnet.data import ImageData
from privcirnet.errors import RuleError
from privcirnet.models.vit import Operations, Size, VisionTransformer
from privcirnet.train.loop import accuracy, fit
from privcirnet.train.patches import FewerPatches
from tests.train.runs import DATA, RECIPE, Interrupted, bars, small

FEWER = dataclasses.replace(RECIPE, epochs=4, patches=0.5, learning_rate=2e-3)
MORE = ImageData(*bars(200, 1), *bars(40, 2), log_step=-4, levels=15, classes=("column", "row"))


def transformer(seed=0, **operations):
    torch.manual_seed(seed)
    return VisionTransformer(Size(6, 2, 1, 16, 2), Operations(**operations), 2, 1)


def test_each_image_keeps_its_class_token_and_some_patches_of_its_own():
    model = transformer().train()
    fewer = FewerPatches(model, 0.5, 4)
    images = torch.rand(64, 1, 6, 6)
    whole = model.tokens(model.patch_embed(images))
    with fewer.epoch(0):
        some = model.tokens(model.patch_embed(images))
    assert some.shape == (64, 1 + 4, 16)  # 4.5 of nine is rounded to even
    assert torch.equal(some[:, 0], whole[:, 0])
    places = [
        [next(p for p in range(9) if torch.equal(t, w[1 + p])) for t in s[1:]] for s, w in zip(some, whole, strict=True)
    ]
    assert all(len(set(drawn)) == 4 for drawn in places)
    assert {place for drawn in places for place in drawn} == set(range(9))
    assert len({tuple(sorted(drawn)) for drawn in places}) > 30


def test_the_last_quarter_and_evaluation_have_all():
    model = transformer()
    fewer, images = FewerPatches(model, 0.5, 8), torch.rand(2, 1, 6, 6)
    counts = []
    for epoch in range(8):
        for training in (True, False):
            with fewer.epoch(epoch):
                counts.append(model.train(training).tokens(model.patch_embed(images)).shape[1])
    assert counts == [5, 10] * 6 + [10, 10] * 2
    with FewerPatches(model, 0.5, 1).epoch(0):
        assert model.train().tokens(model.patch_embed(images)).shape[1] == 10
    with pytest.raises(Interrupted), fewer.epoch(0):
        raise Interrupted
    assert model.train().tokens(model.patch_embed(images)).shape[1] == 10


def test_networks_without_patches_refuse_it():
    with pytest.raises(RuleError, match="got 0 modules that make tokens"):
        fit(small(), DATA, FEWER, 0)


@pytest.mark.parametrize("attention", ["softmax", "polynomial"])
def test_a_transformer_learns_from_some_patches_and_is_measured_on_all(attention):
    model, seen = transformer(attention=attention), []
    model.blocks[0].register_forward_pre_hook(lambda module, inputs: seen.append((module.training, inputs[0].shape[1])))
    history = fit(model, MORE, dataclasses.replace(FEWER, epochs=20, learning_rate=1e-2), 0)
    assert history[-1]["top1"] >= 65  # 50 by chance
    assert accuracy(model, MORE) == history[-1]["top1"]
    assert {tokens for training, tokens in seen if training} == {5, 10}
    assert {tokens for training, tokens in seen if not training} == {10}
