"""Single use of random numbers in one process: a copy of the process (fork) must not use them too."""

import os
from collections.abc import Generator
from typing import TypeVar

from privcirnet.errors import RuleError

Y = TypeVar("Y")
S = TypeVar("S")
R = TypeVar("R")


class Process:
    """The process that made this, until it is asked in a copy of that process."""

    def __init__(self) -> None:
        self._id = os.getpid()

    def changed(self) -> bool:
        """Return whether this is a copy of the process of the last answer. That it is from now on."""
        before, self._id = self._id, os.getpid()
        return before != self._id


def in_one_process(steps: Generator[Y, S, R]) -> Generator[Y, S, R]:
    """Yield what something yields that draws random numbers once; no step is taken in a copy of the process."""
    process = Process()
    try:
        request = next(steps)
        while True:
            answer = yield request
            if process.changed():
                rule, remedy = (
                    "what a process begins must end in it",
                    "begin anew after a fork, with a client of its own",
                )
                raise RuleError(rule, got="a copy of the process", remedy=remedy)
            request = steps.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        steps.close()
