"""The schema of configs/: one dataclass per script and group. ``__post_init__`` validates; fields state their units."""

from pathlib import Path

from privcirnet.artifact.hub import HUB, hub_file
from privcirnet.config.checks import check
from privcirnet.config.data import DataConfig
from privcirnet.config.encryption import CompileConfig, HEConfig
from privcirnet.config.export import ExportConfig
from privcirnet.config.inference import InferConfig, ServeConfig
from privcirnet.config.ladder import DemoConfig, LadderConfig
from privcirnet.config.model import ModelConfig
from privcirnet.config.quant import QuantConfig
from privcirnet.config.recipe import FitConfig, RecipeConfig
from privcirnet.config.search import SearchConfig, SearchRunConfig
from privcirnet.config.train import TrainConfig

__all__ = [
    "SCHEMAS",
    "CompileConfig",
    "DataConfig",
    "DemoConfig",
    "ExportConfig",
    "FitConfig",
    "HEConfig",
    "InferConfig",
    "LadderConfig",
    "ModelConfig",
    "QuantConfig",
    "RecipeConfig",
    "SearchConfig",
    "SearchRunConfig",
    "ServeConfig",
    "TrainConfig",
    "run_file",
]


SCHEMAS: dict[str, type] = {
    "demo": DemoConfig,
    "export": ExportConfig,
    "infer": InferConfig,
    "ladder": LadderConfig,
    "search": SearchRunConfig,
    "serve": ServeConfig,
    "train": TrainConfig,
}
"""Command -> the dataclass of its settings."""

_COMMANDS = {"train": "train.py", "search": "search.py", "export": "export.py"}
_COMMANDS |= {stage: f"train.py recipe={stage}" for stage in ("finetune", "replace", "qat")}
"""Name of a run directory -> command that makes it."""


def run_file(run: str, name: str, made_by: str, setting: str = "") -> Path:
    """Return the path of a file in the run directory of an earlier stage, or in the hub's ``hf-hub:OWNER/NAME``.

    Args:
        name: of the file in it; empty if ``run`` is the file, as one is that ends like it.
        setting: that the user gave the directory by, for the message.

    Raises:
        RuleError: it is not there.
    """
    if run.startswith(HUB):
        return hub_file(run, name)
    made_by = _COMMANDS.get(Path(run).name, made_by)
    alone = not name or Path(run).is_file() or Path(run).suffix == Path(name).suffix
    path = Path(run) if alone else Path(run) / name
    check(run != "", f"the result of {made_by} must be given", f"{setting or 'its directory'} empty", f"run {made_by}")
    got, remedy = f"{setting}={path}" if setting else path, f"run {made_by} first or give its directory"
    check(path.exists(), f"the result of {made_by} must exist", got, remedy)
    return path
