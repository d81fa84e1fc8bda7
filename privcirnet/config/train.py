"""The schema of train.py."""

from dataclasses import dataclass, field
from importlib.util import find_spec

from privcirnet.config.checks import check, choice
from privcirnet.config.quant import QuantConfig
from privcirnet.config.recipe import RecipeConfig
from privcirnet.config.run import NetworkConfig, RunConfig

COMPACT = ("float16", "rows8")
"""Kinds of smaller checkpoints, see :mod:`privcirnet.artifact.records`."""


@dataclass
class TrainConfig(NetworkConfig, RunConfig):
    """Settings of train.py: train, fine-tune or quantize a network."""

    out: str = "${root}/${if:${evaluate},evaluate,${recipe.stage}}"
    seed: int = 0
    """of initialisation and batch order."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda if there is one."""
    evaluate: str = ""
    """checkpoint whose accuracy on the data is measured, without training; empty to train."""
    compact: str = choice("", ("", *COMPACT))
    """with evaluate=: also write a smaller copy to out and measure that: float16, or rows8, 8 bits and a step a row."""
    resume: bool = True
    """resume an interrupted run; false starts it over."""
    tensorboard: bool = False
    """also write TensorBoard events, to the folder tensorboard in out; needs privcirnet[tensorboard]."""
    recipe: RecipeConfig = field(default_factory=RecipeConfig)
    quant: QuantConfig = field(default_factory=QuantConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(not self.compact or bool(self.evaluate), "compact= needs evaluate=", self.compact, "name a checkpoint")
        found = not self.tensorboard or find_spec("tensorboard") is not None
        remedy = "pip install privcirnet[tensorboard], or leave tensorboard=true out"
        check(found, "tensorboard=true needs the package tensorboard", "none installed", remedy)
