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
from typing import NamedTuple

import torch
from torch import Tensor

from privcirnet.functional.sensitivity import squared_error

MOST = 16
"""Number of sums of groups that are kept, at most."""


@dataclass(frozen=True)
class Estimate:
    """A measured number.

    Attributes:
        value: over all samples.
    """

    value: float
    error: float


class _Sum(NamedTuple):
    """Of groups: how many whole ones they are, and each layer's information times that."""

    size: float
    of: dict[str, Tensor]


class Information:
    """The diagonal Fisher information of layers' weights in groups of samples, float64."""

    def __init__(self) -> None:
        self._sums: list[_Sum] = []
        self._per_sum = 1
        self._open: _Sum | None = None
        self._in_open = 0

    @property
    def groups(self) -> int:
        """Number of groups so far."""
        return len(self._sums) * self._per_sum + self._in_open

    def add(self, group: Mapping[str, Tensor], size: float = 1.0) -> None:
        """Add one more group of samples; ``group``: mean over its samples, of each weight's shape, by layer name."""
        part = _Sum(size, {name: values * size for name, values in group.items()})
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

    def omegas(self, name: str, weight: Tensor, block_sizes: Sequence[int], damping: float) -> dict[int, Estimate]:
        """Return Omega of one layer by block size; ``weight``: dense, (out, in, *kernel)."""
        mean, found = self.mean(name), dict[int, Estimate]()
        for b in block_sizes:
            if b == 1:
                found[b] = Estimate(0.0, 0.0)
                continue
            error = squared_error(weight, mean, b, damping, pad=True)
            found[b] = self.estimate(name, lambda information, error=error: (information * error).sum())
        return found

    def estimate(self, name: str, value: Callable[[Tensor], Tensor]) -> Estimate:
        """Return what a linear function makes of one layer's information."""
        groups = [float(value(part.of[name])) / part.size for part in self._sums]
        return Estimate(float(value(self.mean(name))), _standard_error(groups))


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def plain_errors(
    weights: Mapping[str, Tensor], block_sizes: Mapping[str, Sequence[int]]
) -> dict[str, dict[int, float]]:
    """Return the squared distance of each weight to its nearest circulant one (Frobenius norm), by name and block size.

    Args:
        weights: dense weight, (out, in, *kernel), by layer name.
    """
    return {
        name: {
            b: squared_error(weights[name], torch.ones_like(weights[name]), b, pad=True).sum().item() if b > 1 else 0.0
            for b in sizes
        }
        for name, sizes in block_sizes.items()
    }


def _added(parts: Sequence[_Sum], *names: str) -> _Sum:
    """Return the sum of some layers' information, or of all."""
    of = {name: reduce(torch.add, (part.of[name] for part in parts)) for name in names or parts[0].of}
    return _Sum(sum(part.size for part in parts), of)
