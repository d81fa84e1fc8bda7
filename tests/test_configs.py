"""Every YAML in configs/, papers/ and benchmarks/ loads, alone and in every script that can choose it, and fits the schema."""

import importlib
import os
from dataclasses import asdict
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from privcirnet.cli import SUBCOMMANDS
from privcirnet.config import SCHEMAS as SETTINGS
from privcirnet.config import DataConfig, HEConfig, ModelConfig, RecipeConfig, SearchRunConfig
from privcirnet.errors import RuleError

pytestmark = pytest.mark.docs

CONFIGS = Path(__file__).parents[1] / "configs"
ROOT = CONFIGS.parent
BESIDE = *ROOT.glob("papers/*/*.yaml"), *ROOT.glob("benchmarks/*/*.yaml")
FILES = {path.stem: path for path in (*CONFIGS.glob("*.yaml"), *BESIDE)}
SCRIPTS = sorted(FILES.keys() - {"quiet"})
OPTIONS = sorted(
    str(path.relative_to(CONFIGS).with_suffix(""))
    for path in CONFIGS.glob("*/*.yaml")
    if path.parent.name != "experiment"  # tests/runs/test_experiments.py
)
SCHEMAS = {"recipe": RecipeConfig, "data": DataConfig, "model": ModelConfig}


def schema_of(script):
    """Tell Hydra a script's schema, as it does itself when it is run; returns what has its main."""
    if script in SUBCOMMANDS:
        return importlib.import_module(f"privcirnet.cli.{script}")
    folder = FILES[script].parent.relative_to(ROOT)
    return importlib.import_module(f"{'.'.join(folder.parts)}.command")


def composed(script, *overrides):
    schema_of(script)
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return OmegaConf.to_object(hydra.compose(script, overrides=list(overrides)))


def test_there_are_configs():
    assert SCRIPTS == [
        "bench",
        "demo",
        "export",
        "falcon2020",
        "infer",
        "ladder",
        "load",
        "pareto",
        "reproduce",
        "search",
        "serve",
        "train",
    ]
    assert len(OPTIONS) >= 8


@pytest.mark.parametrize("script", SCRIPTS)
def test_defaults_fit_the_schema(script):
    config = composed(script)
    assert isinstance(config, SETTINGS.get(script, object))
    assert "${" not in str(config)


def groups(script):
    """The groups that a script chooses from."""
    defaults = OmegaConf.to_container(OmegaConf.load(FILES[script]))["defaults"]
    return {name for entry in defaults if isinstance(entry, dict) for name in entry}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_group_option_is_used_and_fits(option):
    group, name = option.split("/")
    users = [script for script in SCRIPTS if group in groups(script)]
    assert users, f"no script has a group {group}"
    for script in users:
        if (script, group) == ("pareto", "recipe") and name != "finetune":
            with pytest.raises(RuleError, match=r"every cell is fine-tuned: got \w+"):
                composed(script, f"{group}={name}")
        else:
            assert composed(script, f"{group}={name}") is not None


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.split("/")[0] in SCHEMAS])
def test_a_default_stands_in_the_schema_alone(option):
    group, name = option.split("/")
    default = asdict(SCHEMAS[group]())
    given = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{option}.yaml"))
    again = [key for key, value in given.items() if value == default[key] and value != name]
    assert not again, "leave out what the schema says"


def test_parameters_are_chosen_by_default_and_can_be_named():
    for script in ("search", "export"):
        he = composed(script).he
        assert (he.ring_degree, he.coefficient_bits) == (0, [])
        he = composed(script, "he.ring_degree=8192", "he.coefficient_bits=[54,54,53,53]").he
        assert (he.ring_degree, he.coefficient_bits) == (8192, [54, 54, 53, 53])
    assert composed("bench").he.coefficient_bits == [54, 54, 53, 53]


def test_stages_chain_by_default():
    """Each stage's input is where the stage before it writes."""
    train, finetune, qat = composed("train"), composed("train", "recipe=finetune"), composed("train", "recipe=qat")
    search, export, infer = composed("search"), composed("export"), composed("infer")
    assert search.init == finetune.recipe.init == train.out
    assert finetune.recipe.plan == f"{search.out}/plan.json"
    assert qat.recipe.init == finetune.out == infer.reference
    assert export.init == qat.out
    assert export.he.profile == f"{search.out}/profile.json"
    assert infer.program == f"{export.out}/program"
    assert composed("search", "root=elsewhere").out == "elsewhere/search"
    pareto = composed("pareto")
    assert (pareto.init, pareto.out) == (train.out, "outputs/pareto")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: SearchRunConfig(block_sizes=[1, 3]), r"block_sizes must be powers of two: got \[1, 3\]"),
        (lambda: SearchRunConfig(budget="b64"), "budget must be one of block_sizes: got b64"),
        (
            lambda: SearchRunConfig(recipe=RecipeConfig(uniform=8)),
            "search.py chooses block sizes: got uniform=8; use budget=b8",
        ),
        (lambda: SearchRunConfig(budget_on="both"), "budget_on must be a known one: got 'both'"),
        (lambda: SearchRunConfig(activations=["relu"]), "activations must be a known one: got 'relu'"),
        (
            lambda: SearchRunConfig(activations=["aespa"], sensitivity="weights"),
            "activations need mode=interactive sensitivity=fisher: got mode=interactive sensitivity=weights",
        ),
        (lambda: SearchRunConfig(budget=-1.0), "budget must be at least 0: got -1.0; use seconds, b4 or 50%"),
        (lambda: HEConfig(link="moon"), "he.link must be a known one: got 'moon'; use one of local, lan, wan44, wan"),
        (lambda: HEConfig(coefficient_bits=[55, 55]), r"he.coefficient_bits needs he.ring_degree: got \[55, 55\]"),
        (lambda: HEConfig(ring_degree=4096), "that of a known set: got 4096; use 8192, 16384, or 0"),
        (lambda: RecipeConfig(rand_magnitude=31), r"recipe.rand_magnitude must be in \[0, 30\]: got 31; use 9"),
        (lambda: RecipeConfig(rand_augment=-1), "recipe.rand_augment must be at least 0: got -1; use 0"),
        (lambda: RecipeConfig(rand_deviation=-1.0), "recipe.rand_deviation must be at least 0: got -1.0"),
        (lambda: RecipeConfig(crop=1.5), "recipe.crop must be a share below 1, or whole pixels: got 1.5; use 4, or"),
        (
            lambda: RecipeConfig(teacher="outputs/train", distillation=0.0),
            "recipe.teacher needs recipe.distillation: got 0.0",
        ),
    ],
)
def test_values_are_validated(make, match):
    with pytest.raises(RuleError, match=match):
        make()


def test_defaults_that_no_command_has_filled_in_are_no_places(monkeypatch):
    """A user of the library may be in a folder where nothing can be written."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert SearchRunConfig().out == "${root}/search"
    with pytest.raises(RuleError, match="out must be a folder that can be written: got results"):
        SearchRunConfig(out="results")
