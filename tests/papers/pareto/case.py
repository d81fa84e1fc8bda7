"""A comparison on the digits, small: an untrained dense network, one epoch, one budget."""

from pathlib import Path

import torch

from papers.pareto.config import ParetoConfig
from privcirnet.artifact.records import write_checkpoint
from privcirnet.config import HEConfig, ModelConfig, QuantConfig, RecipeConfig
from privcirnet.data import load
from privcirnet.train import stages
from privcirnet.train.network import checkpoint_of

DATA = load("digits").part(256)


def dense(folder: Path) -> Path:
    """A run directory of a dense network."""
    torch.manual_seed(0)
    start = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(arguments={"width": 8}), DATA)
    write_checkpoint(folder / stages.CHECKPOINT, checkpoint_of(start, "train"))
    return folder


def config(init: Path, out: Path, **changes: object) -> ParetoConfig:
    recipe = RecipeConfig(stage="finetune", init="ignored", teacher="some", distillation=0.5, epochs=1)
    he = HEConfig(profile="counted", ring_degree=8192)
    settings = {
        "samples": 64,
        "budgets": [4],
        "budget_on": "server",
        "device": "cpu",
        "race": 1,
        "recipe": recipe,
        "he": he,
    }
    return ParetoConfig(**{"init": str(init), "out": str(out), **settings, **changes})  # type: ignore[arg-type]
