"""What the scripts share: Hydra in, one-line errors and progress bars out."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from privcirnet.artifact import read_profile
from privcirnet.config import HEConfig
from privcirnet.errors import RuleError
from privcirnet.he.calibrate import calibrate
from privcirnet.he.cost import OPERATIONS, Profile

console = Console(highlight=False)
"""Where scripts write for people."""

EXIT_RULE = 2
"""Status of a script that was stopped by a :class:`RuleError`."""


def script(schema: type) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Turn ``main(config)`` into a Hydra program whose config has this schema.

    The YAML file beside the script, configs/<script>.yaml, gives the defaults and the help. A :class:`RuleError` is
    printed as one line and ends the program with status 2; anything else is a bug and keeps its traceback.
    """

    def decorate(main: Callable[[Any], None]) -> Callable[[], None]:
        path = Path(main.__code__.co_filename).resolve()
        ConfigStore.instance().store(name=f"{path.stem}_schema", node=schema)

        @functools.wraps(main)
        def task(config: DictConfig) -> None:
            with readable_errors():
                main(OmegaConf.to_object(config))

        return hydra.main(version_base="1.3", config_path=str(path.parent / "configs"), config_name=path.stem)(task)

    return decorate


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print a broken rule as one line and leave."""
    try:
        yield
    except RuleError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_RULE)
    except KeyboardInterrupt:
        print("error: interrupted; a training run continues where it was when started again", file=sys.stderr)  # noqa: T201
        sys.exit(130)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[..., None]]:
    """A progress bar; yields a function to call at each step, which takes what just happened as text or is ignored."""
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(description, total=total, note="")

        def advance(note: object = "", by: int = 1) -> None:
            progress.update(task, advance=by, note=str(note))

        yield advance


def show(title: str, facts: dict[str, object]) -> None:
    """A title and its facts on aligned lines."""
    console.print(f"[bold]{title}[/bold]")
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        console.print(f"  {name:<{width}}  {value}", soft_wrap=True)


def find_profile(he: HEConfig) -> Profile:
    """The cost profile of a file, or this machine's, measured now."""
    if he.profile != "calibrate":
        return read_profile(Path(he.profile))
    with progress_bar("Calibration (operations)", len(OPERATIONS)) as advance:
        return calibrate(he.ring_degree, tuple(he.coefficient_bits), progress=advance)
