"""Settings of a verb: those of a schema of configs/ that mean something outside of the scripts."""

import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, get_origin, get_type_hints

from privcirnet.errors import RuleError

_NUMBERS = (int, float)
_TAKEN: dict[type, Any] = {int: Integral, float: Real, list: (list, tuple), str: (str, bool)}
"""Type of a field -> what is taken for it; amp may be True."""
_GROUP = re.compile(r"\b(?:recipe|he|quant)\.(?=\w)")
"""What the scripts write before a setting's name."""
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


@contextmanager
def arguments_named() -> Generator[None]:
    """Name settings as a verb's arguments in the mistakes that are found: learning_rate, not recipe.learning_rate.

    Yields:
        Nothing; also a decorator.
    """
    try:
        yield
    except RuleError as error:
        error.rule, error.remedy = _GROUP.sub("", error.rule), _GROUP.sub("", error.remedy)
        error.args = (f"{error.rule}: got {error.got}; {error.remedy}",)
        raise
