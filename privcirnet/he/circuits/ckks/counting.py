"""A simulator that counts: operations of each layer, levels and precision in the order of time, and maps to encode."""

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from privcirnet.he.circuits.ckks.estimates import Estimate, Trace
from privcirnet.he.circuits.ckks.linear_map import LinearMap
from privcirnet.he.circuits.ckks.simulator import Simulator
from privcirnet.he.schemes.ckks.parameters import CkksParameters


class Met(NamedTuple):
    """A linear map that a circuit meets.

    Attributes:
        babies: baby steps, 0 among them if it is one.
        linear: returns the map as long as the circuit keeps it, then None.
    """

    layer: str
    level: int
    products: int
    rotations: int
    babies: int
    giants: int
    linear: Callable[[], LinearMap | None]


class Counting(Simulator):
    """See :class:`Simulator`; it collects the keys.

    Attributes:
        maps: in the order in which they are met.
        counts: of each layer, operations by the names that :class:`CkksServer` counts them by, and "raised".
        course: what became of each stretch of a layer, in the order of time; a layer that is refreshed has two.
    """

    def __init__(self, parameters: CkksParameters) -> None:
        super().__init__(parameters)
        self.maps: list[Met] = []
        self.counts = defaultdict[str, Counter[str]](Counter)
        self.course: list[Trace] = []

    @property
    def total(self) -> Counter[str]:
        """Operations of all layers."""
        return sum(self.counts.values(), Counter[str]())

    def map(self, value: Estimate, linear: LinearMap) -> Estimate:
        sizes = linear.products, linear.rotations, len(linear.babies), len(linear.groups)
        self.maps.append(Met(self.layer, value.level, *sizes, weakref.ref(linear)))
        self.counts[self.layer] += Counter(rotate=linear.rotations, pmult=linear.products)
        return super().map(value, linear)

    def multiply(self, first: Estimate, second: Estimate, gain: float = 1.0) -> Estimate:
        self.counts[self.layer]["multiply"] += 1
        return super().multiply(first, second, gain)

    def combine(self, values: Sequence[Estimate], factors: Sequence[float]) -> Estimate:
        self.counts[self.layer]["pmult"] += len(values)
        return super().combine(values, factors)

    def rotate(self, value: Estimate, step: int) -> Estimate:
        self.counts[self.layer]["rotate"] += 1
        return super().rotate(value, step)

    def conjugate(self, value: Estimate) -> Estimate:
        self.counts[self.layer]["conjugate"] += 1
        return super().conjugate(value)

    def raised(self, value: Estimate, multiples: float, ratio: float) -> Estimate:
        self.counts[self.layer]["raised"] += 1
        return super().raised(value, multiples, ratio)

    def bounded(self, value: Estimate, bound: float, rms: float = float("inf")) -> Estimate:
        return self._noted(super().bounded(value, bound, rms))

    def smooth(self, value: Estimate, source: Estimate, slope: float, growth: float, error: float) -> Estimate:
        return self._noted(super().smooth(value, source, slope, growth, error))

    def _checked(self, value: Estimate, coefficients: float = 0.0) -> Estimate:
        return self._noted(super()._checked(value, coefficients))

    def _noted(self, value: Estimate) -> Estimate:
        if self.course and self.course[-1].layer == self.layer:
            self.course.pop()
        self.course.append(Trace(self.layer, value.level, value.precision_bits, value.bound))
        return value
