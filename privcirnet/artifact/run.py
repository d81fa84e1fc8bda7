"""A run's folder: the settings that its result was made with, and a lock for one process at a time."""

import fcntl
import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from privcirnet.artifact.records import read_json
from privcirnet.errors import RuleError

_ATTEMPTS = 100
"""Number of times that a lock is opened, as it may be removed at that moment."""
SUMMARY = "summary.json"
"""File that a complete run leaves in its folder."""
PLACES = frozenset(
    {"root", "out", "device", "evaluate", "resume", "overwrite", "tensorboard", "data.root", "data.cache"}
    | {"ckks.examples", "data.seed", "data.test_fraction", "ui_port", "until_stable"}  # of before
)
"""Settings that do not change what a run computes."""
_BEFORE = {"recipe.crop_padding", "recipe.crop_scale", "fraction", "uniform", "model.weights"}
"""Settings that others have replaced."""
MACHINES = frozenset({"recipe.amp"})
"""Settings best chosen by the machine: a result with another value is complete all the same."""


@dataclass(frozen=True)
class Run:
    """A run that has a folder.

    Attributes:
        settings: all settings, nested plain data.
        free: names of settings in full, as "recipe.amp", that may differ from those of an existing result.
    """

    folder: Path
    settings: Mapping[str, Any]
    free: frozenset[str] = frozenset()

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        """Return how the settings differ from earlier ones, "name=now after before" each.

        Folder and machine of a run make no difference; paths in the root are compared relative to it.
        """
        old, new = _comparable(before), _comparable(self.settings)
        names = sorted((old.keys() | new.keys()) - self.free - PLACES)
        return [f"{name}={new.get(name)} after {old.get(name)}" for name in names if old.get(name) != new.get(name)]

    def require_same(self, before: Mapping[str, Any], rule: str, remedy: str) -> None:
        """Raise unless the settings are the earlier ones."""
        if changed := self.changes(before):
            raise RuleError(rule, got=f"{', '.join(changed)} for {self.folder}", remedy=remedy)


def check_replaced(settings: Mapping[str, Any]) -> None:
    """Raise if a complete run in the settings' folder has other settings, unless it may be replaced.

    Args:
        settings: settings of a command, with ``out`` and ``overwrite``.

    Raises:
        RuleError: it has others, or its summary is damaged.
    """
    summary = Path(settings["out"]) / SUMMARY
    if settings["overwrite"] or not summary.is_file():
        return
    earlier = read_json(summary, "a summary", "remove it")
    if not (changes := Run(summary.parent, settings, MACHINES).changes(earlier.get("config", {}))):
        return
    top1 = earlier.get("top1", earlier.get("top1_encrypted"))
    accuracy = "" if top1 is None else f", which has {top1:.2f} % top-1"
    got = f"{', '.join(changes)} for {settings['out']}{accuracy}"
    remedy = "give another out=, which keeps both, or overwrite=true, which replaces it"
    raise RuleError("a complete run must not be replaced unasked", got=got, remedy=remedy)


@contextmanager
def exclusive(settings: Mapping[str, Any], *, writes: bool = True) -> Generator[None]:
    """Hold the folder of a command's settings for its run alone; folders in which nothing was written are removed.

    Args:
        settings: settings of a command, with ``out`` and ``overwrite``.
        writes: whether this process writes there, of several that torchrun started.

    Yields:
        Nothing.

    Raises:
        RuleError: a complete run has other settings (:func:`check_replaced`), another process holds the folder, or
            nothing can be written there.
    """
    out = Path(settings["out"])
    lock, missing = out / ".lock", [folder for folder in (out, *out.parents) if not folder.exists()]
    with ExitStack() as stack:
        if writes:
            try:
                stack.enter_context(locked(lock, wait=False))
            except BlockingIOError:
                remedy = "wait until it ends, end it, or give another out="
                raise RuleError("a folder is for one run at a time", got=f"another in {out}", remedy=remedy) from None
            except OSError as error:
                got = f"{out}: {error.strerror}"
                raise RuleError("out must be a folder that can be written", got=got, remedy="give another") from None
            stack.callback(_clear, lock, missing)
        check_replaced(settings)
        yield


def _clear(lock: Path, folders: Sequence[Path]) -> None:
    """Remove a lock, and folders that are empty, the innermost first."""
    with suppress(OSError):
        lock.unlink()
        for folder in folders:
            folder.rmdir()


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[int]:
    """Hold a lock file.

    Args:
        wait: whether to wait until no other process holds it.

    Yields:
        A file descriptor; the lock is held until all processes that have it have ended.

    Raises:
        BlockingIOError: another process holds it, and there is no waiting.
    """
    with _opened(path, wait) as lock:
        yield lock.fileno()


def _opened(path: Path, wait: bool) -> IO[str]:
    """Return a lock's file, held, once the path still leads to it: whoever held it before may have removed it."""
    for _ in range(_ATTEMPTS):
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack, suppress(FileNotFoundError):
            lock = stack.enter_context(path.open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                stack.pop_all()
                return lock
    raise BlockingIOError(f"{path} is removed again and again")


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with their names in one piece.

    Args:
        settings: plain data; the contents of lists stay as they are.

    >>> flat({"recipe": {"epochs": 4}})
    {'recipe.epochs': 4}
    """
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        flattened |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flattened


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings in the form of JSON, with paths in the root relative to it."""
    root = f"{settings.get('root', '')}/"
    flattened = _renamed(flat(json.loads(json.dumps(settings))))
    return {name: value.removeprefix(root) if isinstance(value, str) else value for name, value in flattened.items()}


def _renamed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return flat settings of before under the names of today.

    >>> _renamed({"recipe.crop_padding": 4, "recipe.crop_scale": 0.0, "model.weights": "", "epochs": 3})
    {'epochs': 3, 'recipe.crop': 4}
    """
    today = {name: value for name, value in settings.items() if name not in _BEFORE}
    if "recipe.crop_padding" in settings:
        today["recipe.crop"] = settings["recipe.crop_padding"] or settings.get("recipe.crop_scale", 0.0)
    if "fraction" in settings:  # of search.py
        size, share = settings["uniform"] or 4, settings["fraction"]
        today["budget"] = settings["budget"] or (f"{100 * share:.12g}%" if share else f"b{size}")
    return today
