"""Checks of settings."""

import os
from collections.abc import Collection
from dataclasses import field, fields
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from privcirnet.errors import RuleError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

N = TypeVar("N", int, float)
_ALLOWED = "allowed"
"""Key of a field's metadata: its :class:`_Range`, or the names that it may have."""


class _Range(NamedTuple):
    """The numbers between two bounds; a bound that is None does not bind."""

    least: float | None
    above: float | None
    most: float | None
    below: float | None

    def __contains__(self, value: Any) -> bool:
        if not isinstance(cast(object, value), Real):
            return False
        low = (self.least is None or value >= self.least) and (self.above is None or value > self.above)
        return low and (self.most is None or value <= self.most) and (self.below is None or value < self.below)

    def __str__(self) -> str:
        if self.most is None and self.below is None:
            return f"above {self.above}" if self.least is None else f"at least {self.least}"
        low = f"({self.above}" if self.least is None else f"[{self.least}"
        return f"in {low}, {self.below})" if self.most is None else f"in {low}, {self.most}]"


def number(
    default: N,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> N:
    """Return the field of a number in a range, which :func:`check_fields` checks.

    Args:
        default: also the remedy.
        least: the smallest number of the range; or ``above``, which is outside.
        most: the largest number of the range; or ``below``, which is outside.
    """
    return cast(N, field(default=default, metadata={_ALLOWED: _Range(least, above, most, below)}))


def choice(default: str, names: Collection[str]) -> str:
    """Return the field of one of some names, which :func:`check_fields` checks; an empty one is not listed."""
    return cast(str, field(default=default, metadata={_ALLOWED: tuple(names)}))


def check_fields(config: "DataclassInstance", prefix: str = "") -> None:
    """Raise a :class:`RuleError` where a field of :func:`number` or :func:`choice` has another value.

    Args:
        prefix: of the fields' names, as ``recipe.``.

    Raises:
        RuleError: the first that has; with its default as the remedy, or the names.
    """
    for each in fields(config):
        name, value = f"{prefix}{each.name}", getattr(config, each.name)
        match each.metadata.get(_ALLOWED):
            case _Range() as allowed:
                check(value in allowed, f"{name} must be {allowed}", value, f"use {each.default:g}")
            case tuple() as names:
                check_name(name, value, names)
            case _:
                pass


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
