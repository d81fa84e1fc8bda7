"""Run a whole chain: dense, searched, circulant, quantized, encrypted. `privcirnet ladder --help`.

Each stage is a process of its own. The ladder keeps no record. A stage is complete when its run directory has a summary
that was made with the settings it has now, so a stage that was run by hand counts too. Before a stage starts, its
summary and those of all stages behind it are removed, with the states of interrupted runs that would start from what is
replaced. Whenever the ladder is killed, the next one therefore runs exactly what is missing, and training goes on from
its last epoch.
"""

import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from privcirnet.artifact.records import read_json
from privcirnet.artifact.run import MACHINES, SUMMARY, Run, flat, locked
from privcirnet.cli.console import console, installed, show
from privcirnet.cli.settings import composed, script
from privcirnet.config import DataConfig, ExportConfig, InferConfig, LadderConfig, SearchRunConfig, TrainConfig
from privcirnet.config.ladder import stage_of
from privcirnet.errors import RuleError
from privcirnet.train import checkpoint

SCRIPTS: dict[str, tuple[str, type]] = {
    "train": ("train", TrainConfig),
    "search": ("search", SearchRunConfig),
    "finetune": ("train", TrainConfig),
    "replace": ("train", TrainConfig),
    "qat": ("train", TrainConfig),
    "export": ("export", ExportConfig),
    "infer": ("infer", InferConfig),
}
"""Script and schema of each stage."""
_STARTS = {"train": "recipe.init", "search": "init", "export": "init"}
"""Setting that names the network a script starts from."""
_PLAIN = re.compile(r"(?!(?i:null|true|false|nan|[+-]?inf|[+-]?[0-9._]+(e[+-]?[0-9]+)?)$)[A-Za-z0-9_./:@%+-]+")
"""Pattern of text that Hydra reads as text without quotes."""

Compose = Callable[[str, type, list[str]], Any]
"""Function (a script's name, its schema, overrides) -> its settings."""


@dataclass(frozen=True)
class Stage:
    """A stage and its command.

    Attributes:
        overrides: overrides, "setting=value" each.
        settings: all settings of the script under them.
    """

    name: str
    script: str
    overrides: list[str]
    settings: Any

    @property
    def summary(self) -> Path:
        """The path of its summary."""
        return Path(self.settings.out) / SUMMARY

    def changes(self) -> list[str] | None:
        """Return the changes of the settings since the present result; None if there is no result.

        Raises:
            RuleError: the summary is damaged.
        """
        if not self.summary.is_file():
            return None
        stored = read_json(self.summary, "a summary", f"remove it, and {self.name} is run again")
        if stored.get("stage") != stage_of(self.name):
            return None
        return Run(self.summary.parent, asdict(self.settings), MACHINES).changes(stored.get("config", {}))


def stages(config: LadderConfig, compose: Compose) -> list[Stage]:
    """Return the stages of a chain with their commands, all settings checked.

    Raises:
        RuleError: a setting of a stage does not exist, or its value breaks a rule.
    """
    chain = []
    for name in config.chain:
        script, schema = SCRIPTS[stage_of(name)]
        settings = overrides(config, name)
        chain.append(Stage(name, script, settings, compose(script, schema, settings)))
    return chain


def overrides(config: LadderConfig, name: str) -> list[str]:
    """Return the overrides of a stage's command.

    A stage starts from the last network that was trained before it. ``replace_more`` is one more ``replace``: it has
    that one's settings and its own, and a run directory of its own. Plans race by the recipe of ``finetune``.

    >>> overrides(LadderConfig(root="here", recipe={"epochs": 2}, stages={"qat": {"quant": {"weight_bits": 4}}}), "qat")
    ['root=here', 'recipe=qat', 'data=digits', 'recipe.init=here/replace', 'recipe.epochs=2', 'quant.weight_bits=4']
    """
    stage = stage_of(name)
    script = SCRIPTS[stage][0]
    data = {f.name: getattr(config.data, f.name) for f in fields(DataConfig) if f.name != "name"}
    default = asdict(DataConfig())
    settings = {f"data.{key}": value for key, value in data.items() if value != default[key]}
    earlier = config.chain[: config.chain.index(name)]
    before = [previous for previous in earlier if SCRIPTS[stage_of(previous)][0] == "train"]
    if before and script in _STARTS:
        settings[_STARTS[script]] = f"{config.root}/{before[-1]}"
    if name != stage:
        settings["out"] = f"{config.root}/{name}"
    if stage == "train":
        settings |= flat({"model": asdict(config.model)})
    if script == "train":
        settings |= flat({"recipe": config.recipe})
    for stage_name in dict.fromkeys((stage, name)):
        stage_settings = flat(config.stages.get(stage_name) or {})
        if stage_name != name:
            stage_settings.pop(_STARTS.get(script, ""), None)  # where a stage starts is its own
        settings |= stage_settings
    if script == "search" and settings.get("race"):
        trained = flat({"recipe": config.recipe}) | flat(config.stages.get("finetune") or {})
        settings = {key: value for key, value in trained.items() if key.startswith("recipe.")} | settings
    recipe = [f"recipe={stage}"] if script == "train" else []
    words = [f"root={_literal(config.root)}", *recipe, f"data={config.data.name}"]
    for key, value in settings.items():
        words.append(f"{'++' if key.startswith('model.arguments.') else ''}{key}={_literal(value)}")
    return words


def climb(
    chain: Sequence[Stage], until: str, run: Callable[[Stage], int], tell: Callable[[Stage, list[str] | None], object]
) -> int:
    """Return the status of the first stage that failed, or 0; stages run from the first incomplete one on.

    Args:
        until: last stage that is run; empty for all.
        tell: function called before each stage with its changes: [] for one that is complete.

    Raises:
        RuleError: a summary is damaged.
    """
    renewed = False
    for place, stage in enumerate(chain):
        changes = stage.changes()
        tell(stage, changes)
        if renewed or changes != []:
            if not renewed:
                forget(chain[place:])
            renewed = True
            if status := run(stage):
                return status
        if stage.name == until:
            break
    return 0


def forget(chain: Sequence[Stage]) -> None:
    """Remove stages' summaries, and interrupted runs that started from the first one's old result.

    Args:
        chain: stage that is run next, whose own interrupted run is kept, and those behind it.
    """
    first, *later = chain
    for stage in later:
        checkpoint.remove(stage.summary.parent)
        stage.summary.unlink(missing_ok=True)
    if first.summary.is_file():
        checkpoint.remove(first.summary.parent)
        first.summary.unlink()


@contextmanager
def alone(root: Path) -> Iterator[int]:
    """Hold a root directory for one ladder and the scripts it starts, which may outlive it.

    Yields:
        A file descriptor; the root is held until all processes that have it have ended.
    """
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(root / ".ladder.lock", wait=False))
        except BlockingIOError:
            remedy = "wait for the other ladder or its last stage, end it, or use another root="
            raise RuleError("a root is for one ladder at a time", got=root, remedy=remedy) from None
        yield lock


def run(words: Sequence[str], lock: int) -> int:
    """Run a command in the terminal of this process, and end it when this process is interrupted.

    Returns:
        Its status, 128 plus the signal's number if a signal ended it.
    """
    with subprocess.Popen(words, pass_fds=(lock,)) as process:
        try:
            try:
                status = process.wait()
            except KeyboardInterrupt:  # of the terminal: the command hears it, too, and ends with what it has
                process.wait()
                raise
        except BaseException:
            process.terminate()
            raise
    return status if status >= 0 else 128 - status


def _literal(value: object) -> str:
    """Return a value in Hydra's syntax.

    >>> _literal([1, "a b", None]), _literal(True), _literal("")
    ("[1,'a b',null]", 'true', "''")
    """
    if isinstance(value, str):
        escaped = value.replace("'", "\\'")
        return value if _PLAIN.fullmatch(value) else f"'{escaped}'"
    if isinstance(value, list):
        return f"[{','.join(_literal(item) for item in value)}]"
    return json.dumps(value)


@script(LadderConfig)
def main(config: LadderConfig) -> None:
    """Run the stages that are not complete, each by its command."""
    run_chain(config)


def run_chain(config: LadderConfig) -> None:
    """Run the incomplete stages of a chain, and show their results; a stage that fails ends the process."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    chain = stages(config, composed)
    with alone(Path(config.root)) as lock:
        status = climb(chain, config.until, functools.partial(_run, lock=lock), _tell)
    if status:
        sys.exit(status)
    show(f"ladder: {config.name}", {stage.name: _result(stage) for stage in chain if stage.summary.is_file()})


def _run(stage: Stage, lock: int) -> int:
    words = [sys.executable, *_program(stage.script), *stage.overrides]
    console.print(shlex.join(words), soft_wrap=True, style="cyan", markup=False)
    status = run(words, lock)
    if status:
        console.print(f"ladder: {stage.name} ended with status {status}; the same command continues", soft_wrap=True)
    return status


def _program(name: str) -> list[str]:
    """Return the start of another command in this one's way: the package, or the script beside this one's."""
    return ["-m", "privcirnet", name] if installed() else [os.path.relpath(Path(sys.argv[0]).with_name(f"{name}.py"))]


def _tell(stage: Stage, changes: list[str] | None) -> None:
    status = "complete" if changes == [] else f"again, with {', '.join(changes)}" if changes else "to be run"
    console.print(f"[bold]{stage.name}[/bold]: {status}", soft_wrap=True)


def _result(stage: Stage) -> str:
    """Return a stage's result in words."""
    summary = read_json(stage.summary, "a summary", "run the ladder again")
    for name in ("top1", "top1_encrypted"):
        if name in summary:
            return f"{summary[name]:.2f} %" + (
                f", {summary['parameters']:,} parameters" if "parameters" in summary else ""
            )
    return str(stage.summary.parent)
