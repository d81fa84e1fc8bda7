"""How the library reports progress: through callbacks. Whoever calls it decides what a person sees."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    """What a bar yields: called at each step."""

    def __call__(self, note: object = "", by: int = 1, to: float | None = None, of: float | None = None) -> None:
        """Advance.

        Args:
            to: where to advance to instead; may be a fraction.
            of: steps that there are, where that has changed.
        """
        ...


Bar = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress bar by its description and number of steps; 0 steps: work whose length is not known."""


@contextmanager
def silent(description: str, total: int) -> Iterator[Advance]:
    """Show nothing.

    Yields:
        a function that does nothing.
    """

    def advance(note: object = "", by: int = 1, to: float | None = None, of: float | None = None) -> None:
        """Do nothing."""

    yield advance
