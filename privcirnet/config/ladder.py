"""The schema of ladder.py."""

from dataclasses import dataclass, field
from typing import Any

from privcirnet.config.checks import check, check_name
from privcirnet.config.run import NetworkConfig

CHAIN = ("train", "search", "finetune", "replace", "qat", "export", "infer")


def stage_of(name: str) -> str:
    """Return the stage of :data:`CHAIN` that a stage is one more of.

    >>> stage_of("replace"), stage_of("replace_more")
    ('replace', 'replace')
    """
    return name.partition("_")[0]


@dataclass
class LadderConfig(NetworkConfig):
    """Settings of ladder.py: a chain of stages, each a script with settings of its own."""

    name: str = "digits"
    """of the experiment."""
    root: str = "outputs/${name}"
    chain: list[str] = field(default_factory=lambda: list(CHAIN))
    """stages, in the order of train, search, finetune, replace, qat, export, infer. replace_more is one more."""
    until: str = ""
    """last stage that is run; empty: all of them."""
    recipe: dict[str, Any] = field(default_factory=dict[str, Any])
    """settings of recipe that all training stages share."""
    stages: dict[str, Any] = field(default_factory=dict[str, Any])
    """settings of each stage's script: stages.train.recipe.epochs=20; replace_more has those of replace and its own."""

    def __post_init__(self) -> None:
        for setting in ("chain", "stages"):
            unknown = [name for name in getattr(self, setting) if stage_of(name) not in CHAIN]
            check(not unknown, f"{setting} must have known stages", ", ".join(unknown), _KNOWN)
        twice = sorted({name for name in self.chain if self.chain.count(name) > 1})
        remedy = f"give it a name of its own: {twice[0]}_more" if twice else ""
        check(not twice, "a stage stands in chain once", ", ".join(twice), remedy)
        in_order = sorted(self.chain, key=lambda name: CHAIN.index(stage_of(name)))
        check(self.chain == in_order, "chain must have stages in order", self.chain, f"use {in_order}")
        check(bool(self.chain), "chain must have a stage", "none", _KNOWN)
        check_name("until", self.until, ["", *self.chain])


@dataclass
class DemoConfig(LadderConfig):
    """Settings of the demonstration: the ladder of the digits."""

    root: str = "outputs/demo"
    """folder that holds the run directories and the report."""


_KNOWN = f"use some of {', '.join(CHAIN)}, or one more of a stage, as replace_more"
