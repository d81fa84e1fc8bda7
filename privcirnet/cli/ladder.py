"""Run a whole chain: dense, searched, circulant, quantized, encrypted. `privcirnet ladder --help`."""

import functools
import os
import shlex
import signal
import sys
from pathlib import Path

from privcirnet.artifact import read_json
from privcirnet.cli.console import console, installed, show
from privcirnet.cli.settings import composed, script
from privcirnet.config import LadderConfig
from privcirnet.runs import ladder


@script(LadderConfig)
def main(config: LadderConfig) -> None:
    """Run the stages that are not complete, each by its command."""
    climb(config)


def climb(config: LadderConfig) -> None:
    """Run the incomplete stages of a chain, and show their results; a stage that fails ends the process."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    chain = ladder.stages(config, composed)
    with ladder.alone(Path(config.root)) as lock:
        status = ladder.climb(chain, config.until, functools.partial(_run, lock=lock), _tell)
    if status:
        sys.exit(status)
    show(f"ladder: {config.name}", {stage.name: _result(stage) for stage in chain if stage.summary.is_file()})


def _run(stage: ladder.Stage, lock: int) -> int:
    words = [sys.executable, *_program(stage.script), *stage.overrides]
    console.print(shlex.join(words), soft_wrap=True, style="cyan", markup=False)
    status = ladder.run(words, lock)
    if status:
        console.print(f"ladder: {stage.name} ended with status {status}; the same command continues", soft_wrap=True)
    return status


def _program(name: str) -> list[str]:
    """Return the start of another command in this one's way: the package, or the script beside this one's."""
    return ["-m", "privcirnet", name] if installed() else [os.path.relpath(Path(sys.argv[0]).with_name(f"{name}.py"))]


def _tell(stage: ladder.Stage, changes: list[str] | None) -> None:
    status = "complete" if changes == [] else f"again, with {', '.join(changes)}" if changes else "to be run"
    console.print(f"[bold]{stage.name}[/bold]: {status}", soft_wrap=True)


def _result(stage: ladder.Stage) -> str:
    """Return a stage's result in words."""
    summary = read_json(stage.summary, "a summary", "run the ladder again")
    for name in ("top1", "top1_encrypted"):
        if name in summary:
            return f"{summary[name]:.2f} %" + (
                f", {summary['parameters']:,} parameters" if "parameters" in summary else ""
            )
    return str(stage.summary.parent)
