"""A reader of untrusted descriptions and messages: every number in a range, every list of a bounded length."""

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
    """A checker of fields, which names their subject in errors."""

    what: str

    @contextmanager
    def whole(self, data: Any, format_name: str, version: int) -> Generator[None]:
        """Raise unless data have a format and version, and every field that the block reads.

        Yields:
            nothing, once.
        """
        try:
            if data["format"] != format_name or data["version"] != version:
                got = reprlib.repr((data["format"], data["version"]))
                raise self.refused(f"must have format {format_name} and version {version}", got)
            yield
        except RuleError:
            raise
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise self.refused("must be complete", reprlib.repr(error)) from None

    def few(self, value: Any, limit: int) -> Sequence[Any]:
        """Return a list of at most ``limit`` entries."""
        if not isinstance(value, list) or len(cast(list[Any], value)) > limit:
            raise self.refused(f"must have a list of at most {limit} here", reprlib.repr(cast(object, value)))
        return cast(list[Any], value)

    def integers(self, value: Any, limit: int, smallest: int, largest: int) -> list[int]:
        """Return a list of at most ``limit`` integers in [smallest, largest]."""
        return [self.integer(item, smallest, largest) for item in self.few(value, limit)]

    def integer(self, value: Any, smallest: int, largest: int) -> int:
        """Return an integer in [smallest, largest]."""
        if type(value) is not int or not smallest <= value <= largest:
            raise self.refused(f"must have an integer in [{smallest}, {largest}] here", reprlib.repr(value))
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
    """Raise unless a message has ``rows`` rows of ``count`` ciphertexts each."""
    counts = [len(messages) for messages in message]
    if counts != [count] * rows:
        got, remedy = f"{counts}", "use the same version and network on both sides"
        raise RuleError(f"{what} must have {count} ciphertexts in each of {rows} rows", got=got, remedy=remedy)
