"""A circuit while it is put together.

Values are counted as in :mod:`.network_circuit`; every method that computes returns the number of a new
value.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import numpy as np

from papers.falcon2020.circuits.network_circuit import (
    AddPlain,
    AddStep,
    CircuitStep,
    Combine,
    NetworkCircuit,
    Plaintext,
    Rotate,
    SquareStep,
    Term,
)
from privcirnet.errors import RuleError
from privcirnet.he.layers import bsgs
from privcirnet.he.rlwe.parameters import conjugation_element, galois_element

Weight = Plaintext | np.ndarray
"""A plaintext that is not zero, or integers of any size in slots, shape (n,)."""

HOISTED = 0.6
"""A rotation whose digits are there already, in others."""


def cut(diagonals: int, baby: float = 1.0, giant: float = 1.0) -> dict[int, list[int]]:
    """Return giant steps with their baby steps for diagonals 0, 1, ... of the least work.

    Args:
        diagonals: how many.
        baby: values that each baby step turns.
        giant: sums that each giant step turns.
    """
    steps = range(diagonals)
    return bsgs.groups(steps, bsgs.cheapest(steps, HOISTED * baby, giant))


class Builder:
    """A circuit while it is put together. Every method returns the number of a value."""

    def __init__(self, ring_degree: int, inputs: int) -> None:
        self.ring_degree, self.inputs = ring_degree, inputs
        self.layer = ""
        self._steps: list[CircuitStep] = []
        self._layers: list[str] = []
        self._plaintexts: list[Plaintext] = []
        self._rotated: dict[Rotate, int] = {}

    @property
    def row(self) -> int:
        """Columns of a row."""
        return self.ring_degree // 2

    def built(self, outputs: Sequence[int]) -> NetworkCircuit:
        """Return the circuit."""
        steps, plaintexts, layers = tuple(self._steps), tuple(self._plaintexts), tuple(self._layers)
        return NetworkCircuit(self.ring_degree, self.inputs, steps, plaintexts, tuple(outputs), layers)

    def rotate(self, source: int, columns: int) -> int:
        """Return a value with both rows turned left; the same rotation is made once, one by whole rows not at all.

        Args:
            columns: any number, also negative: to the right.
        """
        if not columns % self.row:
            return source
        step = Rotate(source, galois_element(columns, self.ring_degree))
        if step not in self._rotated:
            self._rotated[step] = self._add(step)
        return self._rotated[step]

    def swap(self, source: int) -> int:
        """Return a value with its rows exchanged."""
        return self._add(Rotate(source, conjugation_element(self.ring_degree)))

    def add(self, first: int, second: int) -> int:
        """Return the sum of two values."""
        return self._add(AddStep(first, second))

    def total(self, values: Iterable[int]) -> int:
        """Return the sum of values, of equals first: few sums are open while values are made, and many are alike.

        Args:
            values: one or more.
        """
        found: list[tuple[int, int]] = []
        for value in values:
            own = (1, value)
            while found and found[-1][0] == own[0]:
                count, before = found.pop()
                own = (2 * count, self.add(before, own[1]))
            found.append(own)
        return reduce(lambda later, earlier: self.add(earlier, later), [value for _, value in reversed(found)])

    def square(self, source: int) -> int:
        """Return the squares of every slot."""
        return self._add(SquareStep(source))

    def combine(self, terms: Iterable[Term]) -> int:
        """Return the sum of products with plaintexts that have their numbers."""
        return self._add(Combine(tuple(terms)))

    def weighted(self, terms: Iterable[tuple[int, Weight]]) -> int:
        """Return the sum of products with plaintexts; integers that are all zero are left out.

        Args:
            terms: (value, weight).

        Raises:
            RuleError: none is left.
        """
        return self.transformed({0: ((value, 0, weight) for value, weight in terms)})

    def transformed(self, groups: Mapping[int, Iterable[tuple[int, int, Weight]]]) -> int:
        """Return a linear transform by its diagonals (:mod:`layers.bsgs`), of one value or several.

        Args:
            groups: giant step, in columns -> (value, baby step, weight) of each product of its sum; integers that are
                all zero are left out.

        Raises:
            RuleError: no product is left.
        """
        sums: list[int] = []
        for giant, terms in groups.items():
            kept = [(self.rotate(value, baby), own) for value, baby, own in terms if callable(own) or own.any()]
            if kept:
                numbered = [(value, self._plaintext(own)) for value, own in kept]
                sums.append(self.rotate(self.combine(numbered), giant))
        if not sums:
            got, remedy = f"none in layer {self.layer}", "train it again: an output without weights says nothing"
            raise RuleError("every sum must have a weight that is not zero", got=got, remedy=remedy)
        return self.total(sums)

    def add_integers(self, source: int, slots: np.ndarray) -> int:
        """Return a value plus integers in slots; zeros are not added.

        Args:
            slots: integers of any size, shape (n,).
        """
        return self._add(AddPlain(source, self._plaintext(slots))) if slots.any() else source

    def side_by_side(self, values: Sequence[int], columns: int) -> int:
        """Return the sum of values, each some columns further to the right than the one before, by one rotation key.

        Args:
            values: one or more.
            columns: positive.
        """
        found = values[-1]
        for value in values[-2::-1]:
            found = self.add(value, self.rotate(found, -columns))
        return found

    def sum_over(self, source: int, stride: int, count: int) -> int:
        """Return sums of what stands 0, 1, ... count - 1 strides to the right of each slot, cyclically in its row.

        Args:
            count: a power of two.
        """
        while count > 1:
            count //= 2
            source = self.add(source, self.rotate(source, stride * count))
        return source

    def _add(self, step: CircuitStep) -> int:
        self._steps.append(step)
        self._layers.append(self.layer)
        return self.inputs + len(self._steps) - 1

    def _plaintext(self, weight: Weight) -> int:
        self._plaintexts.append(weight if callable(weight) else lambda t: (weight % t).astype(np.uint64))
        return len(self._plaintexts) - 1
