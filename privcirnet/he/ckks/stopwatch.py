"""The beginning of a machine's layers, and the seconds of each."""

import time
from collections import defaultdict
from collections.abc import Callable


def unheard(layer: str) -> None:
    """Ignore that a layer begins."""


class NotifiesLayers:
    """A machine that says when a layer begins.

    Args:
        begins: called with the layer's name.
    """

    def __init__(self, begins: Callable[[str], object] = unheard) -> None:
        self._layer, self._begins = "", begins

    @property
    def layer(self) -> str:
        """Name of the layer that runs."""
        return self._layer

    @layer.setter
    def layer(self, name: str) -> None:
        """Begin a layer."""
        self._layer = name
        self._begins(name)


class Stopwatch:
    """Seconds by layer, from the beginning of one to that of the next.

    Attributes:
        seconds: seconds by layer.
    """

    def __init__(self) -> None:
        self.seconds = defaultdict[str, float](float)
        self._layer, self._since = "", time.perf_counter()

    def __call__(self, layer: str) -> None:
        """Begin a layer; the one before it ends.

        Args:
            layer: name of the layer; "" for none.
        """
        now = time.perf_counter()
        if self._layer:
            self.seconds[self._layer] += now - self._since
        self._layer, self._since = layer, now
