"""State that stays in the process that made it: a second copy would use its keys twice."""

import os
from typing import Any

_REFUSED = "transfers stay in the process that began them: a copy would use their keys twice"


class Confined:
    """State that is neither copied nor used in a forked process."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse."""
        raise TypeError(_REFUSED)

    def check_process(self) -> None:
        """Raise unless this is the process that made it.

        Raises:
            RuntimeError: it is another.
        """
        if os.getpid() != self._owner:
            raise RuntimeError(_REFUSED)
