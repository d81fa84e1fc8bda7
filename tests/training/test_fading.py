"""Old operations fade out: at the first step the network is the old one, in the end the new one."""

import dataclasses

import pytest
import torch

from privcirnet.artifact import write_checkpoint
from privcirnet.config import ModelConfig, QuantConfig, RecipeConfig
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.nn.convert import circulant_
from privcirnet.training import stages
from privcirnet.training.fading import Fading, replaced
from privcirnet.training.loop import EpochProgress, fit
from privcirnet.training.network import checkpoint_of, create

DATA = load("digits")
DATA = dataclasses.replace(DATA, train_images=DATA.train_images[:128], train_labels=DATA.train_labels[:128])
SIZES = {"width": 16, "depth": 2, "heads": 2, "patch": 4, "image_size": 8, "mlp_ratio": 2}
NEW = {"norm": "batch", "attention": "polynomial", "activation": "aespa"}
RECIPE = RecipeConfig(stage="replace", init="before", epochs=4, batch_size=32, fade=0.5, learning_rate=1e-3)
BLOCK = ("norm1", "attention", "norm2", "act")
OPERATIONS = {f"blocks.{i}.{name}" for i in range(2) for name in BLOCK} | {"norm"}


def both() -> tuple[torch.nn.Module, torch.nn.Module]:
    """A circulant transformer, and the one with other operations that has its weights."""
    torch.manual_seed(0)
    old, new = (circulant_(create("vit_cifar", 10, (1, 8, 8), SIZES | more), {"blocks.0.qkv": 4}) for more in ({}, NEW))
    new.load_state_dict(
        {n: v for n, v in old.state_dict().items() if n in new.state_dict() and v.shape == new.state_dict()[n].shape},
        strict=False,
    )
    return old, new


def test_what_is_replaced_is_found_and_frozen():
    old, new = both()
    found = replaced(old, new)
    assert found.keys() == OPERATIONS
    assert all(not p.requires_grad for module in found.values() for p in module.parameters())
    assert not replaced(old, old)


def test_from_the_old_network_to_the_new_one():
    old, new = both()
    images = torch.rand(16, 1, 8, 8)
    want = old.eval()(images)
    new.train()
    alone = new(images)
    fading = Fading(new, replaced(old, new), 4)
    fading.at(0)
    torch.testing.assert_close(new(images), want)
    assert not torch.allclose(new.eval()(images), want), "evaluation has the new operations alone"
    new.train()
    fading.at(2)
    half = new(images)
    assert not any(torch.allclose(half, other) for other in (want, alone))
    for step in (4, 5):
        fading.at(step)
        torch.testing.assert_close(new(images), alone)


def test_one_operation_is_blended_by_its_share():
    old, new = both()
    fading, x = Fading(new, {"norm": old.norm}, 4), torch.rand(8, 16)
    new.train()
    fading.at(1)
    torch.testing.assert_close(new.norm(x), 0.75 * old.norm(x) + 0.25 * new.norm.forward(x))


def test_a_stage_that_was_killed_goes_on_as_if_it_was_not(tmp_path):
    torch.manual_seed(0)
    start = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig("vit_cifar", SIZES), DATA)
    write_checkpoint(tmp_path / stages.CHECKPOINT, checkpoint_of(start, "train"))
    recipe = dataclasses.replace(RECIPE, init=str(tmp_path))

    def begun():
        return stages.begin(recipe, QuantConfig(), ModelConfig(arguments=NEW), DATA)

    whole, held = begun(), list[EpochProgress]()
    assert whole.replaced.keys() == OPERATIONS

    def keep(progress):
        if progress.epoch == 1:
            held.append(EpochProgress(1, list(progress.history), torch.utils._pytree.tree_map(copied, progress.state)))

    fit(whole.model, DATA, recipe, 0, after_epoch=keep, replaced=whole.replaced)
    resumed = begun()
    fit(resumed.model, DATA, recipe, 0, start=held[0], replaced=resumed.replaced)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert not any(module._forward_hooks for module in whole.model.modules())
    at_once = begun()
    fit(at_once.model, DATA, dataclasses.replace(recipe, fade=0), 0, replaced=at_once.replaced)
    assert not torch.equal(at_once.model.head.weight, whole.model.head.weight)


def copied(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


def test_only_what_is_replaced_fades():
    with pytest.raises(RuleError, match=r"only what is replaced fades out: got fade=0\.5 in finetune"):
        RecipeConfig(stage="finetune", init="x", fade=0.5)
    with pytest.raises(RuleError, match="must be a share of the steps: got 2"):
        RecipeConfig(stage="replace", init="x", fade=2)
