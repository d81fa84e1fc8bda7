"""Run a whole chain: dense, searched, circulant, quantized, encrypted. `python ladder.py --help`."""

import functools
import os
import shlex
import signal
import sys
from pathlib import Path

from privcirnet.artifact import read_json
from privcirnet.config import LadderConfig
from privcirnet.console import composed, console, script, show
from privcirnet.pipeline import ladder

_HERE = Path(__file__).resolve().parent


@script(LadderConfig)
def main(config: LadderConfig) -> None:
    """Run the stages that are not complete, each by its script."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    chain = ladder.stages(config, functools.partial(composed, _HERE / "configs"))
    with ladder.alone(Path(config.root)) as held:
        status = ladder.climb(chain, config.until, functools.partial(_run, held=held), _tell)
    if status:
        sys.exit(status)
    show(f"ladder: {config.name}", {stage.name: _result(stage) for stage in chain if stage.summary.is_file()})


def _run(stage: ladder.Stage, held: int) -> int:
    words = ladder.command(stage, Path(os.path.relpath(_HERE)))
    console.print(shlex.join(words), soft_wrap=True, style="cyan", markup=False)
    status = ladder.run(words, held)
    if status:
        console.print(f"ladder: {stage.name} ended with status {status}; the same command continues", soft_wrap=True)
    return status


def _tell(stage: ladder.Stage, changes: list[str] | None) -> None:
    said = "complete" if changes == [] else f"again, with {', '.join(changes)}" if changes else "to be run"
    console.print(f"[bold]{stage.name}[/bold]: {said}", soft_wrap=True)


def _result(stage: ladder.Stage) -> str:
    """Return a stage's result in words."""
    found = read_json(stage.summary, "a summary", "run the ladder again")
    for name in ("top1", "top1_encrypted"):
        if name in found:
            return f"{found[name]:.2f} %" + (f", {found['parameters']:,} parameters" if "parameters" in found else "")
    return str(stage.summary.parent)


if __name__ == "__main__":
    main()
