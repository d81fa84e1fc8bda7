"""Retries of a client that has lost its server, or was told to come again."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from privcirnet.errors import Lost, RuleError

T = TypeVar("T")
_LONGEST_S = 60.0
"""Most seconds that a client waits; a longer wait is reported instead."""


@dataclass(frozen=True)
class Retries:
    """The retries of an attempt.

    Attributes:
        most: most retries of one attempt; 0: none.
        note: function called with a line about each, and the reason.
        sleep: function that waits for some seconds.
    """

    most: int = 0
    note: Callable[[str], object] = lambda line: None
    sleep: Callable[[float], object] = time.sleep

    def run(self, attempt: Callable[[bool], T], *lasting: type[RuleError]) -> T:
        """Return an attempt's result.

        Args:
            attempt: function called with True if an earlier attempt has failed.
            lasting: errors after which trying again is of no use.
        """
        for failed in range(self.most):
            try:
                return attempt(failed > 0)
            except lasting:
                raise
            except RuleError as error:
                seconds = _pause(error, failed)
                if seconds is None:
                    raise
                self.note(f"comes again in {seconds:.1f} s ({failed + 1} of {self.most}): {error}")
                self.sleep(seconds)
        return attempt(self.most > 0)


def _pause(error: RuleError, failed: int) -> float | None:
    """Return the seconds until the next attempt; None where there should be none."""
    if isinstance(error, Lost):  # at once: another replica may be there; then not all clients in the same moment
        return 2.0 ** (failed - 1) * random.uniform(0.5, 1.5) if failed else 0.0
    after = error.retry_after_s
    return after * random.uniform(1.0, 1.25) if 0 < after <= _LONGEST_S else None
