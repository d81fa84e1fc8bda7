"""Reading descriptions and messages that come from anybody: every number in a range, every list of a bounded length."""

import reprlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from privcirnet.errors import RuleError

Message = list[list[bytes]]
"""Rows of ciphertexts."""
CKKS = "privcirnet-ckks"
"""The format of a CKKS program's description."""
MAX_CIPHERTEXTS = 1 << 12
"""Most ciphertexts of a message, and keys, that are accepted."""
_REMEDY = "use the same version on both sides, or another server"


@dataclass(frozen=True)
class Reader:
    """Checks fields, and names what they are of in errors."""

    what: str

    @contextmanager
    def whole(self, data: Any, known: str, version: int) -> Generator[None]:
        """Raise unless data are of a format, and have every field that the block reads.

        Yields:
            nothing, once.
        """
        try:
            if data["format"] != known or data["version"] != version:
                got = reprlib.repr((data["format"], data["version"]))
                raise self.refused(f"must have format {known} and version {version}", got)
            yield
        except RuleError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise self.refused("must be complete", reprlib.repr(error)) from None

    def few(self, value: Any, most: int) -> Sequence[Any]:
        """Return a list of at most so many."""
        if not isinstance(value, list) or len(cast(list[Any], value)) > most:
            raise self.refused(f"must have a list of at most {most} here", reprlib.repr(cast(object, value)))
        return cast(list[Any], value)

    def integers(self, value: Any, most: int, least: int, largest: int) -> list[int]:
        """Return a list of at most so many integers in [least, largest]."""
        return [self.integer(item, least, largest) for item in self.few(value, most)]

    def integer(self, value: Any, least: int, largest: int) -> int:
        """Return an integer in [least, largest]."""
        if type(value) is not int or not least <= value <= largest:
            raise self.refused(f"must have an integer in [{least}, {largest}] here", reprlib.repr(value))
        return value

    def positive(self, value: Any) -> float:
        """Return a real number that is positive and finite."""
        if type(value) is not float or not (isfinite(value) and value > 0):
            raise self.refused("must have a positive number here", reprlib.repr(value))
        return value

    def refused(self, rule: str, got: str) -> RuleError:
        """Return the error of a description that breaks a rule."""
        return RuleError(f"{self.what} {rule}", got=got, remedy=_REMEDY)


def check_counts(message: Message, rows: int, count: int, what: str) -> None:
    """Raise unless a message has so many ciphertexts in each of so many rows."""
    counts = [len(messages) for messages in message]
    if counts != [count] * rows:
        got, remedy = f"{counts}", "use the same version and network on both sides"
        raise RuleError(f"{what} must have {count} ciphertexts in each of {rows} rows", got=got, remedy=remedy)
