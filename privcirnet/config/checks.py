"""Checks of settings."""

import os
from collections.abc import Collection
from pathlib import Path

from privcirnet.errors import RuleError


def check(condition: bool, rule: str, got: object, remedy: str) -> None:
    """Raise a :class:`RuleError` unless a condition holds; ``condition``: that must hold."""
    if not condition:
        raise RuleError(rule, got=got, remedy=remedy)


def check_place(what: str, path: str) -> None:
    """Raise a :class:`RuleError` unless a folder is there or can be made, before hours of work go into it.

    Args:
        path: its value; one with ``${`` is a default that no command has filled in, and nothing is written there.

    Raises:
        RuleError: a file is in the way, or nothing may be written there.
    """
    place = Path(path).absolute()
    there = next(folder for folder in (place, *place.parents) if os.path.exists(folder))
    fits = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    check(fits or "${" in path, f"{what} must be a folder that can be written", path, f"give another {what}=")


def check_powers_of_two(what: str, sizes: Collection[int]) -> None:
    """Raise a :class:`RuleError` unless there are block sizes, each a power of two.

    Raises:
        RuleError: one is none, or there are none.
    """
    good = bool(sizes) and all(b >= 1 and b & (b - 1) == 0 for b in sizes)
    check(good, f"{what} must be powers of two", sizes, "use 1, 2, 4, 8, 16 or 32")


def check_name(what: str, got: str, known: Collection[str]) -> None:
    """Raise a :class:`RuleError` that lists the known names unless a name is one of them.

    Args:
        known: names; an empty one is allowed but not listed.

    Raises:
        RuleError: the name is unknown.
    """
    names = ", ".join(name for name in known if name)
    check(got in known, f"{what} must be a known one", repr(got), f"use one of {names}")
