"""Settings of a verb: those of a schema of configs/ that mean something outside of the scripts."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from privcirnet.errors import RuleError


def known_settings(verb: str, given: Mapping[str, Any], schema: type, others: Collection[str]) -> dict[str, Any]:
    """Return the settings, all of which a verb knows.

    Args:
        verb: that they were given to.
        given: settings by name.
        schema: dataclass with them as fields.
        others: fields that are none of the verb's settings.

    Raises:
        RuleError: a setting is unknown.
    """
    known = [field.name for field in fields(schema) if field.name not in others]
    if unknown := [name for name in given if name not in known]:
        got, remedy = ", ".join(unknown), f"use some of {', '.join(known)}"
        raise RuleError(f"a setting of {verb} must be a known one", got=got, remedy=remedy)
    return dict(given)
