"""Every experiment of configs/experiment: its chain composes, and the settings of each stage obey the rules."""

import functools
import itertools
from pathlib import Path

import pytest

from privcirnet.cli import ladder
from privcirnet.cli.settings import composed
from privcirnet.config import LadderConfig
from privcirnet.config.ladder import stage_of
from privcirnet.train.network import create

pytestmark = pytest.mark.docs

CONFIGS = Path(__file__).parents[2] / "configs"
EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))
NETWORKS = {
    ("mobilenetv2", "cifar10"): "mobilenetv2_cifar",
    ("mobilenetv2", "cifar100"): "mobilenetv2_cifar",
    ("mobilenetv2", "tiny_imagenet"): "mobilenetv2_tiny",
    ("resnet18", "cifar10"): "resnet18_cifar",
    ("resnet18", "cifar100"): "resnet18_cifar",
    ("resnet18", "tiny_imagenet"): "resnet18_tiny",
    ("resnet18_narrow", "cifar10"): "resnet18_tiny",
    ("resnet18_relu", "cifar10"): "resnet18_tiny",
    ("vit", "cifar10"): "vit_cifar",
    ("vit", "cifar100"): "vit_cifar",
    ("vit", "tiny_imagenet"): "vit_tiny_imagenet",
}
ALONE = {
    "mobilenetv2_cifar10_gpu",
    "mobilenetv2_cifar100_gpu",
    "mobilenetv2_tiny_imagenet_gpu",
    "vit_cifar10_gpu",
    "resnet18_narrow_cifar10_short",
    "resnet18_relu_cifar10_short",
}
"""With no paper's recipe beside them."""
SQUARES = {
    "lola_cifar": ("cifar10", {"conv2": "16"}),
    "lola_digits": ("digits", {"fc1": "8"}),
    "lola_mnist": ("mnist", {"fc1": "8"}),
}
"""For leveled BFV: data set, and the layers whose block size is Falcon's."""
CLASSES = {"digits": 10, "cifar10": 10, "cifar100": 100, "tiny_imagenet": 200}


TRAINED = ("train", "finetune", "replace", "qat")


@functools.cache
def stages(experiment):
    config = composed("ladder", LadderConfig, [f"experiment={experiment}", "data.root=/images"])
    return config, {stage.name: stage.settings for stage in ladder.stages(config, composed)}


def test_every_network_has_both_recipes():
    named = [f"{family}_{data}" for family, data in NETWORKS if not family.startswith("resnet18_")]
    wanted = {f"{name}_{recipe}" for name in named for recipe in ("short", "paper")}
    assert set(EXPERIMENTS) == wanted | ALONE | {"digits"} | SQUARES.keys()


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_each_stage_starts_from_the_one_before(experiment):
    config, found = stages(experiment)
    assert (config.name, config.root) == (experiment, f"outputs/{experiment}")
    assert list(found) == config.chain
    trained = [name for name in config.chain if stage_of(name) in TRAINED]
    assert [found[name].recipe.stage for name in trained] == [stage_of(name) for name in trained]
    for before, name in itertools.pairwise(trained):
        outs, recipe = [found[earlier].out for earlier in trained[: trained.index(name)]], found[name].recipe
        assert recipe.init == found[before].out
        assert not recipe.original or recipe.original in outs
    assert found["search"].init == found["train"].out
    assert found["finetune"].recipe.plan == f"{found['search'].out}/plan.json"
    assert "export" not in found or found["export"].init == found[trained[-1]].out
    assert {(settings.data.name, settings.data.root) for settings in found.values()} == {(config.data.name, "/images")}


@pytest.mark.parametrize("experiment", [name for name in EXPERIMENTS if name != "digits" and name not in SQUARES])
def test_its_network_is_the_one_of_its_name_and_may_run_encrypted(experiment):
    config, found = stages(experiment)
    recipe = experiment.split("_")[-1]
    family, data = next(pair for pair in NETWORKS if experiment == "_".join((*pair, recipe)))
    assert config.data.name == data
    assert found["train"].model.name == NETWORKS[family, data]
    replaced = {"activation": "aespa"} | ({"norm": "batch", "attention": "polynomial"} if family == "vit" else {})
    assert "replace" not in found or found["replace"].model.arguments == replaced
    create(found["train"].model.name, CLASSES[data], (3, 32, 32), replaced)
    assert found["infer"].images == 100
    epochs = {name: found[name].recipe.epochs for name in config.chain if stage_of(name) in TRAINED}
    assert recipe != "short" or max(epochs.values()) <= 20
    assert recipe != "paper" or epochs["train"] == epochs["finetune"] == 300


@pytest.mark.parametrize("experiment", SQUARES)
def test_a_network_of_squares_is_trained_and_not_quantized(experiment):
    config, found = stages(experiment)
    data, circulant = SQUARES[experiment]
    assert (config.data.name, found["train"].model.name) == (data, experiment)
    assert list(found) == ["train", "search", "finetune"]
    pinned = dict(pair.split(":") for pair in found["search"].pinned)
    assert {name: size for name, size in pinned.items() if size != "1"} == circulant
    assert found["search"].pad


def test_the_papers_recipe():
    """As facts of the authors' scripts say: batch 256, of vision transformers and Tiny ImageNet 128."""
    for experiment in (name for name in EXPERIMENTS if name.endswith("paper")):
        _, found = stages(experiment)
        small = "vit" in experiment or "tiny" in experiment
        for recipe in (found["train"].recipe, found["finetune"].recipe):
            assert (recipe.optimizer, recipe.learning_rate, recipe.min_learning_rate) == ("adamw", 5.5e-4, 1e-5)
            assert (recipe.batch_size, recipe.warmup_epochs) == ((128, 10) if small else (256, 0))
            assert (recipe.mixup, recipe.cutmix, recipe.mix_epochs, recipe.erase) == (0.8, 1.0, 175, 0.25)
            assert (recipe.weight_decay, recipe.crop) == (0.06, 0.08 if "tiny" in experiment else 4)


def test_weights_and_teachers_of_short_recipes_are_committed():
    named = set()
    for experiment in (name for name in EXPERIMENTS if name.endswith("short")):
        _, found = stages(experiment)
        recipes = (getattr(each, "recipe", None) for each in found.values())
        named |= {file for recipe in recipes if recipe for file in (recipe.init, recipe.teacher)}
    files = {Path(file) for file in named if file.endswith(".safetensors")}
    assert len(files) >= 2
    assert all((Path(__file__).parents[2] / file).is_file() for file in files)
