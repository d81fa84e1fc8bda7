"""Progress of the library, reported through callbacks. The caller decides what a person sees."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    """The function that a bar yields, called at each step."""

    def __call__(self, note: object = "", by: int = 1, to: float | None = None, of: float | None = None) -> None:
        """Advance the bar.

        Args:
            to: position to advance to instead; may be a fraction.
            of: number of steps, where that has changed.
        """
        ...


ProgressBar = Callable[[str, int], AbstractContextManager[Advance]]
"""Function (description, number of steps) -> progress bar; 0 steps: work of unknown length."""


@contextmanager
def silent(description: str, total: int) -> Iterator[Advance]:
    """Show nothing.

    Yields:
        a function that does nothing.
    """

    def advance(note: object = "", by: int = 1, to: float | None = None, of: float | None = None) -> None:
        """Do nothing."""

    yield advance
