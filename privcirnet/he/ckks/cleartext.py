"""The twin in clear: circuits on bare slots. It hides nothing; ``counts`` adds up the operations by name."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import Reals, Slots, to_coefficients
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.stopwatch import NotifiesLayers, unheard


class Cleartext(NotifiesLayers):
    """A :class:`ckks.evaluator.CkksEvaluator` in clear; values are slots, shape (n / 2,).

    Args:
        begins: called with the name of each layer that begins.
        strict: whether values must keep the bounds that their circuit states; under encryption nobody notices.
    """

    def __init__(self, begins: Callable[[str], object] = unheard, *, strict: bool = True) -> None:
        super().__init__(begins)
        self.counts, self._strict = Counter[str](), strict

    def add(self, first: Slots, second: Slots) -> Slots:
        self.counts["add"] += 1
        return first + second

    def subtract(self, first: Slots, second: Slots) -> Slots:
        self.counts["add"] += 1
        return first - second

    def add_plain(self, value: Slots, slots: npt.ArrayLike) -> Slots:
        self.counts["add_plain"] += 1
        return value + np.asarray(slots)

    def multiply_plain(self, value: Slots, slots: npt.ArrayLike) -> Slots:
        self.counts["pmult"] += 1
        return value * np.asarray(slots)

    def combine(self, values: Sequence[Slots], factors: Sequence[float]) -> Slots:
        self.counts["pmult"] += len(values)
        return np.sum([factor * value for value, factor in zip(values, factors, strict=True)], axis=0)

    def multiply(self, first: Slots, second: Slots, gain: float = 1.0) -> Slots:
        self.counts["multiply"] += 1
        return gain * first * second

    def rotate(self, value: Slots, step: int) -> Slots:
        self.counts["rotate"] += 1
        return np.roll(value, -step)

    def conjugate(self, value: Slots) -> Slots:
        self.counts["conjugate"] += 1
        return value.conj()

    def times_i(self, value: Slots) -> Slots:
        return 1j * value

    def times(self, value: Slots, factor: int) -> Slots:
        return factor * value

    def raised(self, value: Slots, multiples: float, ratio: float) -> Slots:
        """Return the slots with multiples of zero."""
        return ratio * value

    def bounded(self, value: Slots, bound: float, rms: float = math.inf) -> Slots:
        """Raise a RuleError where a slot is larger."""
        self._within(np.abs(value), bound)
        return value

    def smooth(self, value: Slots, source: Slots, slope: float, growth: float, error: float) -> Slots:
        return value

    def lowered(self, value: Slots, level: int) -> Slots:
        return value

    def map(self, value: Slots, linear: LinearMap) -> Slots:
        self.counts["rotate"] += linear.rotations
        self.counts["pmult"] += linear.products
        mapped = linear(value)
        if linear.coefficients:
            self._within(np.abs(to_coefficients(mapped)), linear.coefficients)
        return mapped

    def _within(self, sizes: Reals, bound: float) -> None:
        if self._strict and (largest := float(sizes.max())) > bound:
            got, remedy = f"{largest:.4g} for {bound:.4g} in layer {self.layer!r}", "raise the bound"
            raise RuleError("a value must keep the bound that its circuit states", got=got, remedy=remedy)
