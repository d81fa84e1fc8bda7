"""Seconds of a typical image: the median, without the first image, for which kernels are compiled or loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from privcirnet.he.protocol.served import Meter


def typical(seconds: Sequence[float]) -> float:
    """Return the typical one of several times: the median of all but the first, which warms up.

    Args:
        seconds: times in order; a single one is the result. None take 0.

    >>> typical([4.5, 0.04, 0.05, 0.06])
    0.05
    """
    return median(seconds[1:] or seconds or [0.0])


@dataclass
class ImageTimings:
    """The seconds of each image, from totals that only grow.

    Attributes:
        each: seconds by node, for each image, or each group that was worked on together.
    """

    each: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    _before: Mapping[str, float] = field(default_factory=dict[str, float])

    def add(self, seconds: Mapping[str, float], images: int = 1) -> None:
        """Note the seconds added since the last time.

        Args:
            images: number of images worked on since; for none, the added seconds count for the next.
        """
        if images:
            self.each.append({name: (all_ - self._before.get(name, 0.0)) / images for name, all_ in seconds.items()})
            self._before = dict(seconds)

    def of(self, name: str) -> float:
        """Return the seconds of a node for a typical image."""
        return typical([lap.get(name, 0.0) for lap in self.each])

    @property
    def total(self) -> float:
        """Return the seconds of all nodes for a typical image."""
        return typical([sum(lap.values()) for lap in self.each])


@dataclass
class PartyLaps:
    """A party's seconds for each image, and for its preparation."""

    images: ImageTimings = field(default_factory=ImageTimings)
    ahead: ImageTimings = field(default_factory=ImageTimings)
    _prepared: int = 0

    def add(self, meters: Sequence[Meter], images: int = 1, prepared: int = 0) -> None:
        """Note the seconds of a request; ``meters``: meters of all images, and of all offline work, if any."""
        of_images, *ahead = meters
        self.images.add(of_images.seconds, images)
        for meter in ahead:
            self.ahead.add(meter.seconds, prepared - self._prepared)
        self._prepared = prepared

    def of(self, name: str) -> float:
        """Return the seconds of a node for a typical image, with its preparation."""
        return self.images.of(name) + self.ahead.of(name)
