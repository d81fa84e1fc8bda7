"""Settings of a verb: those of a schema of configs/ that mean something outside of the scripts."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, get_origin, get_type_hints

from privcirnet.errors import RuleError

_NUMBERS = (int, float)
_TAKEN: dict[type, Any] = {int: Integral, float: Real, list: (list, tuple), str: (str, bool)}
"""Type of a field -> what is taken for it; amp may be True."""
_WORDS = {int: "an integer", float: "a number", bool: "True or False", str: "a text", list: "a list"}


def known_settings(verb: str, given: Mapping[str, Any], schema: type, others: Collection[str]) -> dict[str, Any]:
    """Return the settings, all of which a verb knows.

    Args:
        verb: that they were given to.
        given: settings by name.
        schema: dataclass with them as fields.
        others: fields that are none of the verb's settings.

    Raises:
        RuleError: a setting is unknown, or has a value of another type.
    """
    known = [field.name for field in fields(schema) if field.name not in others]
    if unknown := [name for name in given if name not in known]:
        got, remedy = ", ".join(unknown), f"use some of {', '.join(known)}"
        raise RuleError(f"a setting of {verb} must be a known one", got=got, remedy=remedy)
    types = get_type_hints(schema)
    for name, value in given.items():
        kind = get_origin(types[name]) or types[name]
        if (isinstance(value, bool) and kind in _NUMBERS) or not isinstance(value, _TAKEN.get(kind, kind)):
            remedy = f"give {_WORDS.get(kind, kind.__name__)}"
            raise RuleError(f"a setting of {verb} must have its type", got=f"{name}={value!r}", remedy=remedy)
    return dict(given)
