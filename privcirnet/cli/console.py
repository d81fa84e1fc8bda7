"""The commands' terminal: one-line errors, progress bars, facts and tables."""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NoReturn

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from privcirnet.cli import SUBCOMMANDS
from privcirnet.errors import RuleError
from privcirnet.runs.answers import InferenceStep
from privcirnet.runs.progress import Advance, silent

_RANK = os.environ["RANK"] if "TORCHELASTIC_RUN_ID" in os.environ else "0"
"""Rank of this process, if torchrun started several; else "0"."""
console = Console(highlight=False, quiet=_RANK != "0")
"""Console of the commands; of several processes only the first one writes."""

_SCRIPT = re.compile(rf"(?<![\w./])(?:python )?({'|'.join(SUBCOMMANDS)})\.py\b")
_NOTE = TextColumn("{task.fields[note]}")
_WIDE = 140
EXIT_RULE = 2
"""Status of a command that was stopped by a :class:`RuleError`."""


def installed() -> bool:
    """Return whether this process is the installed command, rather than a script of a checkout."""
    return sys.argv[0].split(" ")[0] == "privcirnet"


def as_started(text: str) -> str:
    """Return a text whose names of scripts (train.py) fit the command that the user runs.

    >>> as_started("run `python train.py recipe=qat` first")  # privcirnet train, in that command
    'run `python train.py recipe=qat` first'
    """
    return _SCRIPT.sub(r"privcirnet \1", text) if installed() else text


def _command() -> str:
    """Return the name of the command that runs, train for train.py and for privcirnet train."""
    return os.path.basename(sys.argv[0].split(" ")[-1]).removesuffix(".py")


_AGAIN = {"train": "the same command resumes from the last epoch", "ladder": "the same command continues"}


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print a broken rule as one line and exit; exit silently if nobody reads the output."""
    try:
        yield
    except RuleError as error:
        print(as_started(f"error{'' if _RANK == '0' else f' (process {_RANK})'}: {error}"), file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_RULE)
    except BrokenPipeError:  # `--help | head`: the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_RULE)
    except KeyboardInterrupt:
        interrupted(_AGAIN.get(_command(), ""))


@contextmanager
def first_interrupt() -> Iterator[Callable[[], bool]]:
    """Let work end where it can when Ctrl-C is pressed once; pressed again it interrupts.

    Yields:
        A function that says whether it was pressed.
    """
    pressed = list[int]()

    def press(number: int, _: object) -> None:
        signal.signal(number, signal.default_int_handler)
        pressed.append(number)
        # Not by the console, whose bar may hold a lock.
        os.write(2, b"\nEnding with this image. Ctrl-C again stops at once, and nothing is written.\n")

    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(remark: str = "") -> NoReturn:
    """End a command that Ctrl-C has interrupted."""
    print(f"error: interrupted{'; ' * bool(remark)}{remark}", file=sys.stderr)  # noqa: T201
    sys.exit(130)


def fail(why: str) -> NoReturn:
    """End a command with status 1: its results are written but not to be used."""
    print(f"error: {why}", file=sys.stderr)  # noqa: T201
    sys.exit(1)


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

        def advance(note: object = "", by: int = 1, to: float | None = None, of: float | None = None) -> None:
            progress.update(task, advance=by if to is None else None, completed=to, total=of, note=str(note))

        yield advance


@contextmanager
def counting(description: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar from the first step on, if there is one.

    Yields:
        A function to call with the number of steps done and of all steps, which may grow, and perhaps a note.
    """
    with ExitStack() as stack:
        bar: list[Callable[..., None]] = []

        def step(done: float, total: int, note: object = "") -> None:
            if not bar:
                bar.append(stack.enter_context(progress_bar(description, total)))
            bar[0](note, to=done, of=total)

        yield step


@contextmanager
def inference_bar(images: int) -> Iterator[Callable[[InferenceStep], None]]:
    """Show a progress bar over the images of an inference from its first round on, prepared or not.

    Yields:
        A function to call after each exchange.
    """
    with counting("Encrypted inference") as advance:

        def step(done: InferenceStep) -> None:
            sent = f", {done.bytes / 1e6:.1f} MB" if done.bytes else ""
            advance(done.images, images, f"image {done.image + 1} of {images}, {done.name}{sent}")

        yield step


def show(title: str, facts: Mapping[str, object]) -> None:
    """Print a title and its facts on aligned lines.

    Args:
        facts: values by name; not empty.
    """
    console.print(f"[bold]{title}[/bold]")
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        console.print(f"  {name:<{width}}  {value}", soft_wrap=True, markup=False)


def show_text(text: str) -> None:
    """Print a text as it is."""
    console.print(text, soft_wrap=True, markup=False)


def show_rows(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Print a table on aligned lines; the first two columns are names.

    Args:
        rows: cells by column, all with the same columns; not empty.
    """
    table = [tuple(rows[0]), *(tuple(row.values()) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    console.print(f"[bold]{title}[/bold]")
    for row in table:
        padded = zip(row, widths, strict=True)
        cells = (cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(padded))
        console.print("  " + "  ".join(cells), soft_wrap=True)
