"""What replies to one client need whatever they say, made while nobody waits: each piece hides or masks one reply.

A copy of the process (fork) begins without any of it.
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.system.process import Process


class ReplyStock:
    """Fresh encryptions of zero with flooding noise, and uniform slots of masks.

    Args:
        hide: makes an encryption of zero; None: this engine makes nothing ahead.
    """

    def __init__(self, n: int, t: int, hide: Callable[[], Residues] | None = None) -> None:
        self._n, self._t, self._hide = n, t, hide
        self._hidings, self._masks = deque[Residues](), deque[Residues]()
        self._process = Process()

    def full(self, most: int) -> bool:
        """Return whether there is enough.

        Args:
            most: replies for which there may be some.
        """
        self._drop_copied()
        return self._hide is None or min(len(self._hidings), len(self._masks)) >= most

    def make(self, most: int) -> bool:
        """Make one piece.

        Args:
            most: replies for which there may be some.

        Returns:
            whether one was made; False: there is enough.
        """
        if self.full(most):
            return False
        assert self._hide is not None
        if len(self._hidings) <= len(self._masks):
            self._hidings.append(self._hide())
        else:
            self._masks.append(sampling.uniform((self._n,), self._t))
        return True

    def hiding(self) -> Residues | None:
        """Return what hides one reply, which nobody else gets; None if there is none."""
        self._drop_copied()
        return _popped(self._hidings)

    def masks(self, count: int) -> Residues:
        """Return uniform slots that nothing else has used, made now as far as there are none: residues, (count, n)."""
        self._drop_copied()
        ready = [found for _ in range(count) if (found := _popped(self._masks)) is not None]
        now = sampling.uniform((count - len(ready), self._n), self._t)
        return np.concatenate([*(row[None] for row in ready), now]) if ready else now

    def close(self) -> None:
        """Overwrite everything with zeros."""
        wipe([*self._hidings, *self._masks])
        self._hidings.clear()
        self._masks.clear()

    def _drop_copied(self) -> None:
        """Drop what the process that this is a copy of uses."""
        if self._process.changed():
            self.close()


def _popped(made: deque[Residues]) -> Residues | None:
    try:
        return made.popleft()
    except IndexError:
        return None
