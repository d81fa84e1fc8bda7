"""The schema of ladder.py."""

from dataclasses import dataclass, field
from typing import Any

from privcirnet.config.data import DataConfig
from privcirnet.config.model import ModelConfig
from privcirnet.config.rules import check, check_name

CHAIN = ("train", "search", "finetune", "replace", "qat", "export", "infer")


@dataclass
class LadderConfig:
    """Settings of ladder.py: a chain of stages, each a script with settings of its own."""

    name: str = "digits"
    """of the experiment."""
    root: str = "outputs/${name}"
    """folder that holds the run directories."""
    chain: list[str] = field(default_factory=lambda: list(CHAIN))
    """stages, in the order of train, search, finetune, replace, qat, export, infer."""
    until: str = ""
    """last stage that is run; empty: all of them."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    recipe: dict[str, Any] = field(default_factory=dict[str, Any])
    """settings of recipe that all training stages share."""
    stages: dict[str, Any] = field(default_factory=dict[str, Any])
    """settings of each stage's script, by stage: stages.train.recipe.epochs=20, stages.search.uniform=8."""

    def __post_init__(self) -> None:
        in_order = [name for name in CHAIN if name in self.chain]
        check(bool(self.chain) and self.chain == in_order, "chain must have stages in order", self.chain, _KNOWN)
        check_name("until", self.until, ["", *self.chain])
        unknown = [name for name in self.stages if name not in CHAIN]
        check(not unknown, "stages must be known ones", unknown, _KNOWN)


@dataclass
class DemoConfig(LadderConfig):
    """Settings of the demonstration: the ladder of the digits."""

    root: str = "outputs/demo"
    """folder that holds the run directories and the report."""


_KNOWN = f"use some of {', '.join(CHAIN)}"
