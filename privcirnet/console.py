"""The scripts' terminal: Hydra in, one-line errors and progress bars out."""

import difflib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from privcirnet.errors import RuleError
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.message_sizes import rounds
from privcirnet.pipeline.allocator import keep_freed_memory
from privcirnet.pipeline.infer import Step
from privcirnet.pipeline.progress import Advance, silent

_RANK = os.environ["RANK"] if "TORCHELASTIC_RUN_ID" in os.environ else "0"
"""This process's number, if torchrun started several; else "0"."""
console = Console(highlight=False, quiet=_RANK != "0")
"""Console of the scripts; of several processes only the first one writes."""

_HYDRA = "1.3"
_NOTE = TextColumn("{task.fields[note]}")
_WIDE = 140
_TIMEOUT = {"patience": "timeout_s"}
_RENAMED = {"bench": {"plan": "layout"}, "infer": _TIMEOUT, "serve": _TIMEOUT}
"""Script -> settings that had another name before -> their name."""
EXIT_RULE = 2
"""Status of a script that was stopped by a :class:`RuleError`."""


def script(schema: type) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Turn ``main(config)`` into a Hydra program whose config has this schema.

    configs/<script>.yaml, beside the script or above its folder, gives the defaults and the help. A
    :class:`RuleError` is printed as one line and ends the program with status 2; anything else is a bug and keeps its
    traceback. The program keeps the memory that it frees (:mod:`.pipeline.allocator`).

    Hydra's own runner composes the settings twice. It runs only for what it alone does: options, such as --help, and
    settings of its own.

    Args:
        schema: dataclass of the settings.

    Returns:
        The decorator.
    """

    def decorate(main: Callable[[Any], None]) -> Callable[[], None]:
        path = Path(inspect.getfile(inspect.unwrap(main))).resolve()
        ConfigStore.instance().store(name=f"{path.stem}_schema", node=schema)

        @functools.wraps(main)
        def task(config: DictConfig) -> None:
            keep_freed_memory()  # a launcher may run it in a process of its own
            with readable_errors():
                main(OmegaConf.to_object(config))

        configs = next(folder / "configs" for folder in path.parents if (folder / "configs").is_dir())
        run = hydra.main(version_base=_HYDRA, config_path=str(configs), config_name=path.stem)(task)

        def main_program() -> None:
            keep_freed_memory()
            arguments = sys.argv[1:]
            with readable_errors():
                if not any(argument.startswith("-") or "hydra" in argument for argument in arguments):
                    main(settings(configs, path.stem, arguments))
                    return
                if not {"-m", "--multirun"} & set(arguments):  # Hydra alone takes several values apart
                    settings(configs, path.stem, [a for a in arguments if "=" in a and not a.startswith("-")])
                run()

        return main_program

    return decorate


def settings(configs: Path, name: str, overrides: list[str]) -> Any:
    """Return a script's settings as an instance of its schema.

    Args:
        configs: folder of the YAML files.
        name: of the script.
        overrides: "setting=value" each.

    Raises:
        RuleError: a setting does not exist or has the wrong type; with its new name, or the nearest that exists.
    """
    rule = "settings must exist and have the right type"
    for override in overrides:
        renamed = _RENAMED.get(name, {}).get(override.split("=")[0].lstrip("+"))
        if renamed:
            raise RuleError(rule, got=override, remedy=f"it is called {renamed}= now")
    with _opened(configs):
        try:
            return OmegaConf.to_object(hydra.compose(name, overrides=overrides))
        except (HydraException, OmegaConfBaseException) as error:
            known = [f"{key}=" for key in _keys(OmegaConf.to_container(hydra.compose(name)))]
            first = next((o for o in overrides if str(error).split("'")[1:2] == [o.split("=")[0]]), "")
            close = difflib.get_close_matches(first.split("=")[0] + "=", known, n=1, cutoff=0.7)
            remedy = f"did you mean {close[0]}..." if close else "--help lists the settings and groups"
            raise RuleError(rule, got=str(error).splitlines()[0].rstrip("."), remedy=remedy) from None


def composed(configs: Path, name: str, schema: type, overrides: list[str]) -> Any:
    """Return the settings that a script has under overrides.

    Args:
        configs: folder of the YAML files.
        name: of the script.
        schema: dataclass of its settings.
        overrides: "setting=value" each.

    Raises:
        RuleError: a setting does not exist, or its value breaks a rule.
    """
    ConfigStore.instance().store(name=f"{name}_schema", node=schema)
    return settings(configs, name, overrides)


def _opened(configs: Path) -> AbstractContextManager[object]:
    """Let Hydra read a folder; inside of a script it reads that of the script already."""
    running = GlobalHydra.instance().is_initialized()
    return nullcontext() if running else hydra.initialize_config_dir(str(configs), version_base=_HYDRA)


def _keys(config: Any, prefix: str = "") -> list[str]:
    if not isinstance(config, dict):
        return [prefix.rstrip(".")]
    return [key for name, value in config.items() for key in _keys(value, f"{prefix}{name}.")]


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print a broken rule as one line and exit; exit silently if nobody reads the output."""
    try:
        yield
    except RuleError as error:
        print(f"error{'' if _RANK == '0' else f' (process {_RANK})'}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_RULE)
    except BrokenPipeError:  # `--help | head`: the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_RULE)
    except KeyboardInterrupt:
        print("error: interrupted; a training run resumes from its last epoch when started again", file=sys.stderr)  # noqa: T201
        sys.exit(130)


class _Bar(Progress):
    """A progress bar with a note: behind the bar where the console is wide enough, else below."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the parts that are drawn."""
        yield from super().get_renderables()
        if _NOTE not in self.columns:
            yield from (Text(f"  {note}") for task in self.tasks if (note := task.fields["note"]))


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Advance]:
    """Show a progress bar, or a spinner if the number of steps is unknown.

    Args:
        description: of the work.
        total: number of steps; 0 if unknown.

    Yields:
        A function to call at each step, with a note on what just happened, steps to advance ``by`` or advance ``to``,
        which may be a fraction. It is quick: the bar is drawn ten times a second, however often it is called.
    """
    if not total:
        with console.status(description), silent(description, total) as advance:
            yield advance
        return
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        *([_NOTE] if console.width >= _WIDE else []),
    )
    with _Bar(*columns, console=console) as progress:
        task = progress.add_task(description, total=total, note="")

        def advance(note: object = "", by: int = 1, to: float | None = None) -> None:
            progress.update(task, advance=by if to is None else None, completed=to, note=str(note))

        yield advance


@contextmanager
def counting(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar from the first step on, if there is one.

    Args:
        description: of the work.

    Yields:
        A function to call with the number of steps done and of all steps.
    """
    with ExitStack() as stack:
        bar: list[Callable[..., None]] = []

        def step(done: int, total: int) -> None:
            if not bar:
                bar.append(stack.enter_context(progress_bar(description, total)))
            bar[0](to=done)

        yield step


@contextmanager
def inference_bar(program: Program, images: int) -> Iterator[Callable[[Step], None]]:
    """Show a progress bar over all rounds of an inference.

    Args:
        program: whose rounds are counted.
        images: number of images.

    Yields:
        A function to call after each exchange.
    """
    with progress_bar("Encrypted inference (rounds)", images * rounds(program)) as advance:

        def step(done: Step) -> None:
            advance(f"image {done.image + 1} of {images}, {done.name}, {done.bytes / 1e6:.1f} MB")

        yield step


def show(title: str, facts: Mapping[str, object]) -> None:
    """Print a title and its facts on aligned lines.

    Args:
        title: heading.
        facts: value by name; not empty.
    """
    console.print(f"[bold]{title}[/bold]")
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        console.print(f"  {name:<{width}}  {value}", soft_wrap=True)


def show_text(text: str) -> None:
    """Print a text as it is.

    Args:
        text: of any number of lines.
    """
    console.print(text, soft_wrap=True, markup=False)


def in_words_revealed(values: int) -> dict[str, str]:
    """Return a warning, for :func:`show`, of how many values the client sees in clear; nothing if it sees none.

    Args:
        values: number of values between the layers.
    """
    return {"client-aided": f"WEAKER: the client sees {values:,} values between the layers in clear"} if values else {}


def show_rows(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Print a table on aligned lines; the first two columns are names.

    Args:
        title: heading.
        rows: cell by column, all with the same columns; not empty.
    """
    table = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    console.print(f"[bold]{title}[/bold]")
    for row in table:
        padded = zip(row, widths, strict=True)
        cells = (cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(padded))
        console.print("  " + "  ".join(cells), soft_wrap=True)
