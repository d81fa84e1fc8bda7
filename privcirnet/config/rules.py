"""Checks of settings."""

from collections.abc import Collection

from privcirnet.errors import RuleError


def check(condition: bool, rule: str, got: object, remedy: str) -> None:
    """Raise a :class:`RuleError` unless a condition holds.

    Args:
        condition: that must hold.
        rule: in words.
        got: offending value.
        remedy: in words.

    Raises:
        RuleError: the condition does not hold.
    """
    if not condition:
        raise RuleError(rule, got=got, remedy=remedy)


def check_name(what: str, got: str, known: Collection[str]) -> None:
    """Raise a :class:`RuleError` that lists the known names unless a name is one of them.

    Args:
        what: setting.
        got: its value.
        known: names; an empty one is allowed but not listed.

    Raises:
        RuleError: the name is unknown.
    """
    names = ", ".join(name for name in known if name)
    check(got in known, f"{what} must be a known one", repr(got), f"use one of {names}")
