"""Fisher information with a measure of its precision: accumulated in groups, with Omega's spread over the groups.

Omega of a layer is linear in the information that weights the squared error. So the groups' own values of Omega average
to the whole's, and their spread gives its standard error::

    Omega_k = sum F_k (W - W')^2        Omega = mean of Omega_k        error = deviation of Omega_k / sqrt(groups)

W' is the same for all groups, the projection by the information of all samples. The information of many groups is kept
in at most :data:`MOST` sums. Beyond that, neighbours are added up, so memory does not grow with the samples.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple

from torch import Tensor

from privcirnet.nn.functional.sensitivity import squared_error

MOST = 16
"""Largest number of sums of groups that are kept."""


@dataclass(frozen=True)
class SensitivityEstimate:
    """A measured number.

    Attributes:
        value: mean over all samples.
    """

    value: float
    error: float


class _GroupSum(NamedTuple):
    """A sum over groups: their number, in whole ones, and each layer's information times that."""

    size: float
    of: dict[str, Tensor]


class Information:
    """The diagonal Fisher information of layers' weights in groups of samples, float64."""

    def __init__(self) -> None:
        self._sums: list[_GroupSum] = []
        self._per_sum = 1
        self._open: _GroupSum | None = None
        self._in_open = 0

    @property
    def groups(self) -> int:
        """Number of groups so far."""
        return len(self._sums) * self._per_sum + self._in_open

    def add(self, group: Mapping[str, Tensor], size: float = 1.0) -> None:
        """Add one more group of samples; ``group``: mean over its samples, in each weight's shape, by layer name."""
        part = _GroupSum(size, {name: values * size for name, values in group.items()})
        self._open, self._in_open = _added([self._open, part]) if self._open else part, self._in_open + 1
        if self._in_open < self._per_sum:
            return
        self._sums.append(self._open)
        self._open, self._in_open = None, 0
        if len(self._sums) == MOST:
            self._sums = [_added(self._sums[i : i + 2]) for i in range(0, MOST, 2)]
            self._per_sum *= 2

    def mean(self, name: str) -> Tensor:
        """Return the information of all samples in one layer's weight."""
        whole = _added([*self._sums, self._open] if self._open else self._sums, name)
        return whole.of[name] / whole.size

    def omegas(self, name: str, errors: Mapping[int, Tensor]) -> dict[int, SensitivityEstimate]:
        """Return Omega of one layer by block size; ``errors``: squared errors, to be weighted, by block size."""
        return {b: self.estimate(name, lambda part, error=error: (part * error).sum()) for b, error in errors.items()}

    def estimate(self, name: str, value: Callable[[Tensor], Tensor]) -> SensitivityEstimate:
        """Return the estimate of a linear function of one layer's information."""
        groups = [float(value(part.of[name])) / part.size for part in self._sums]
        return SensitivityEstimate(float(value(self.mean(name))), _standard_error(groups))


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def weight_errors(weight: Tensor, information: Tensor, block_sizes: Sequence[int], damping: float) -> dict[int, Tensor]:
    """Return (W - W')^2 by block size, of the weight's shape, (out, in, *kernel).

    Args:
        weight: dense weight.
        information: weights of the projection's entries, to be damped.
        damping: see :func:`.functional.sensitivity.damped`.
    """
    return {b: squared_error(weight, information, b, damping, pad=True) for b in block_sizes}


def energies(weight: Tensor, block_sizes: Sequence[int]) -> dict[int, Tensor]:
    """Return (b - 1) W^2 by block size b, of the weight's shape."""
    return {b: (b - 1) * weight.double().square() for b in block_sizes}


def _added(parts: Sequence[_GroupSum], *names: str) -> _GroupSum:
    """Return the sum of some layers' information, or of all."""
    of = {name: reduce(add, (part.of[name] for part in parts)) for name in names or parts[0].of}
    return _GroupSum(sum(part.size for part in parts), of)
