"""A network as a circuit, from an encrypted image to encrypted logits, without the client in between.

Values are real, in slot encoding (:mod:`ckks.slotwise`). A convolution takes one level, a square one; so a residual
block takes four, and five levels are enough to bootstrap the end of each block only. A ciphertext of real values is
bootstrapped with one EvalMod, two as the real and the imaginary part of one.

A sum can be bootstrapped if nothing behind it reads what is before it: at the end of a residual block, not within. From
one such sum to the next a number of levels is needed: one for a square, a convolution or a square that is added, two
for the phases before a stride. The first of the two may come before the bootstrapping, where a level is left. Each part
begins at the lowest level that is enough, because all costs less there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks import slotwise
from privcirnet.he.ckks.bootstrapping import Bootstrapping
from privcirnet.he.ckks.embedding import Reals, Slots
from privcirnet.he.ckks.evaluator import CkksEvaluator
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.network import IMAGE, CkksNetwork
from privcirnet.he.ckks.slotwise import Layout

_PHASES, _CLASSIFIER = 2, 2


@dataclass(frozen=True)
class Placement:
    """Levels of the image and of the bootstrapped values.

    Attributes:
        bootstrapped: level of each sum that is bootstrapped, after it.
    """

    image: int
    bootstrapped: dict[int, int]
    early: frozenset[int]


def bootstrap_placement(network: CkksNetwork, spare: int, floor: int) -> Placement:
    """Return the places where a network is bootstrapped, as few and as late as can be.

    Args:
        spare: levels of a bootstrapped value beyond those that its next bootstrapping begins with.
    """
    parts = _Parts(network, spare, floor)
    stretches = parts.best(IMAGE, False)
    if not stretches:
        name, count = parts.longest()
        rule, remedy = f"a part of a network must take at most {spare} levels", "use more spare levels"
        raise RuleError(rule, got=f"{count} up to {name!r}", remedy=remedy)
    (_, image, _), *later = stretches
    bootstrapped = {place: level for place, level, _ in later}
    return Placement(image, bootstrapped, frozenset(place for place, _, early in later if early))


_Part = tuple[int, int, bool]
"""The sum that a part begins with, the level of that, and whether its phases were begun before."""


class _Parts:
    """The parts that a network can be cut into."""

    def __init__(self, network: CkksNetwork, spare: int, floor: int) -> None:
        self._network, self._spare, self._floor = network, spare, floor
        self._cuts = [IMAGE, *(i for i in range(len(network.nodes)) if _is_cut(network, i))]
        self._known: dict[tuple[int, bool], list[_Part] | None] = {}

    def best(self, start: int, early: bool) -> list[_Part] | None:
        """Return the fewest parts from a sum to the end, of these the ones at the lowest levels; None for none."""
        if (start, early) not in self._known:
            self._known[start, early] = self._best(start, early)
        return self._known[start, early]

    def longest(self) -> tuple[str, int]:
        """Return the name of the end of the longest part that nothing can cut, and its levels."""
        pairs = zip(self._cuts, self._cuts[1:], strict=False)
        return max(((self._network.nodes[b].name, _levels(self._network, a, b, False)) for a, b in pairs), key=_count)

    def _best(self, start: int, early: bool) -> list[_Part] | None:
        last = len(self._network.nodes) - 1
        if (end := _levels(self._network, start, last, early) + _CLASSIFIER) <= self._spare + self._floor:
            return [(start, end, early)]
        options: list[list[_Part]] = []
        for cut in self._cuts:
            if cut <= start or cut == last or (count := _levels(self._network, start, cut, early)) > self._spare:
                continue
            is_early = self._network.strided(cut) and count < self._spare
            if rest := self.best(cut, is_early):
                options.append([(start, self._floor + count + is_early, early), *rest])
        return min(options, key=lambda parts: (len(parts), sum(level for _, level, _ in parts)), default=None)


def _count(named: tuple[str, int]) -> int:
    return named[1]


def _is_cut(network: CkksNetwork, place: int) -> bool:
    behind = network.nodes[place + 1 :]
    return all(term.source >= place for node in behind for term in node.terms)


def _levels(network: CkksNetwork, start: int, end: int, early: bool) -> int:
    """Return the levels from one sum, or the image, to another."""
    sums, squares = {start: 0}, dict[int, int]()
    for place in range(start, end + 1):
        if place > start:
            sums[place] = 1 + max(squares[term.source] for term in network.nodes[place].terms)
        squares[place] = sums[place] + (place != IMAGE) + _PHASES * network.strided(place)
        if place == start and early:
            squares[place] -= 1
    return sums[end]


V = TypeVar("V")


@dataclass(frozen=True)
class SlotInterface:
    """Layouts of an image and its logits in slots: the client's view of a circuit.

    Attributes:
        image: layout of the image.
        last: layout of the logits, which are at the first slot of each channel.
        bound: divisor of the pixels.
        answer: divisor of the logits.
    """

    image: Layout
    last: Layout
    bound: float
    answer: float
    classes: int

    def encode(self, image: Reals) -> list[Slots]:
        """Return the slots of an image, of each ciphertext; ``image``: shape (channels, size, size), real values."""
        return self.image.encode(image / self.bound)

    def logits(self, slots: Slots) -> Reals:
        """Return the logits, shape (classes,), each the mean of all slots that have it."""
        logits = slots[:: self.last.area].real.reshape(-1, self.last.channels)
        return logits.mean(axis=0)[: self.classes] * self.answer


class CkksCircuit:
    """The circuit that a server runs, with its plan and its encoded weights.

    Args:
        weights_gb: gigabytes of memory for encoded weights, which are kept; others are encoded anew for each image.
    """

    def __init__(self, network: CkksNetwork, bootstrapping: Bootstrapping, weights_gb: float = 8.0) -> None:
        self.network, self.bootstrapping, slots = network, bootstrapping, bootstrapping.parameters.slots
        self._room = weights_gb * 1e9 / (32 * slots)
        shapes = {IMAGE: (network.channels, network.size)} | dict(enumerate(network.shapes()))
        self.layouts = {i: Layout(max(2, 1 << (c - 1).bit_length()), s, slots) for i, (c, s) in shapes.items()}
        self._maps: dict[tuple[int, int, int], list[LinearMap]] = {}
        classes, last = len(network.bias), self._last
        self.ends = SlotInterface(self.layouts[IMAGE], last, network.bound, network.answer, classes)
        if last.parts > 1 or classes > last.channels:
            rule = "the last maps must fit one ciphertext and have a channel for each class"
            got = f"{last.channels} channels of {last.size} x {last.size} for {classes} classes"
            raise RuleError(rule, got=got, remedy="use more channels, or smaller maps")

    @property
    def weight_bytes(self) -> int:
        """Memory of the encoded weights that are kept, once the circuit has run."""
        return sum(32 * linear.slots * linear.products for maps in self._maps.values() for linear in maps)

    @cached_property
    def placement(self) -> Placement:
        """Places where it is bootstrapped."""
        bootstrapping = self.bootstrapping
        floor = bootstrapping.to_coefficients
        return bootstrap_placement(self.network, bootstrapping.parameters.levels - bootstrapping.levels - floor, floor)

    def encode(self, image: Reals) -> list[Slots]:
        """Return the slots of an image, of each ciphertext; they are encrypted at level ``placement.image``.

        Args:
            image: shape (channels, size, size), real values.
        """
        return self.ends.encode(image)

    def logits(self, slots: Slots) -> Reals:
        """Return the logits, shape (classes,)."""
        return self.ends.logits(slots)

    def __call__(self, machine: CkksEvaluator[V], image: Sequence[V]) -> V:
        """Return the logits, which :meth:`logits` reads."""
        machine.layer = "image"
        values = {IMAGE: [machine.bounded(part, 1.0) for part in image]}
        pairs = {IMAGE: self._paired(machine, IMAGE, values[IMAGE])}
        for number, node in enumerate(self.network.nodes):
            machine.layer = node.name
            sums = self._bootstrapped(machine, number, self._sum(machine, number, values, pairs))
            values[number] = [machine.multiply(part, part) for part in sums]
            pairs[number] = self._paired(machine, number, values[number])
        machine.layer = self.network.head
        return self._classified(machine, pairs[len(self.network.nodes) - 1])

    @cached_property
    def _classifier(self) -> LinearMap:
        return slotwise.pooled_classifier(self.network.weights / self._last.area, self._last)

    @property
    def _last(self) -> Layout:
        return self.layouts[len(self.network.nodes) - 1]

    def _sum(
        self, machine: CkksEvaluator[V], number: int, values: dict[int, list[V]], pairs: dict[int, list[V]]
    ) -> list[V]:
        """Return a node's sum, real, in [-1, 1]."""
        node, layout = self.network.nodes[number], self.layouts[number]
        squares, sums = [t for t in node.terms if not t.layer], list[V]()
        biases = layout.spread(np.sum([t.layer.bias for t in node.terms if t.layer], axis=0))
        for part, bias in enumerate(biases):
            total = None
            for place, term in enumerate(node.terms):
                machine.layer = term.layer.name if term.layer else node.name
                for value, linear in zip(pairs[term.source], self._row(number, place, part), strict=False):
                    product = machine.map(value, linear)
                    total = machine.add(total, product) if total is not None else product
            if total is None:
                raise ValueError(f"the sum {node.name!r} has no convolution")
            machine.layer = node.name
            total = machine.add(total, machine.conjugate(total))
            for term in squares:
                total = machine.add(total, machine.combine([values[term.source][part]], [term.factor]))
            sums.append(machine.bounded(machine.add_plain(total, bias), 1.0, node.rms))
        return sums

    def _row(self, number: int, place: int, part: int) -> list[LinearMap]:
        """Return the maps of a term to one ciphertext of its node; none for a square that is added."""
        term = self.network.nodes[number].terms[place]
        if not term.layer:
            return []
        if (number, place, part) in self._maps:
            return self._maps[number, place, part]
        source, weights = self.layouts[term.source], term.layer.weights
        if term.layer.stride == 2:
            source, weights = slotwise.phased(source), slotwise.over_phases(weights)
        maps = slotwise.convolve(weights, source, self.layouts[number], part)
        diagonals = sum(linear.products for linear in maps)
        if diagonals <= self._room:
            self._room -= diagonals
            self._maps[number, place, part] = maps
        return maps

    def _bootstrapped(self, machine: CkksEvaluator[V], number: int, sums: list[V]) -> list[V]:
        """Return sums, bootstrapped where it is time, and with the first half of their phases, where these are next."""
        if number not in self.placement.bootstrapped:
            return sums
        if number in self.placement.early:
            sums = [machine.map(part, self._phases(number)[0]) for part in sums]
        level, refreshed = self.placement.bootstrapped[number], list[V]()
        for first, *second in zip(sums[::2], sums[1::2], strict=True) if len(sums) > 1 else [sums]:
            if second:
                both = machine.add(first, machine.times_i(second[0]))
                refreshed += self.bootstrapping.both(machine, both)
            else:
                refreshed.append(self.bootstrapping.real(machine, first))
        rms = self.network.nodes[number].rms
        return [machine.lowered(machine.bounded(part, 1.0, rms), level) for part in refreshed]

    def _paired(self, machine: CkksEvaluator[V], number: int, values: list[V]) -> list[V]:
        """Return the inputs of the convolutions behind a node."""
        layout = self.layouts[number]
        if self.network.strided(number):
            maps = self._phases(number)[number in self.placement.early :]
            for linear in maps:
                values = [machine.map(part, linear) for part in values]
            layout = slotwise.phased(layout)
        return slotwise.paired(machine, values, layout)

    def _phases(self, number: int) -> tuple[LinearMap, LinearMap]:
        return _phase_maps(self.layouts[number])

    def _classified(self, machine: CkksEvaluator[V], pairs: Sequence[V]) -> V:
        (total,) = pairs
        layout, step = self._last, 1
        while step < layout.area:
            total, step = machine.add(total, machine.rotate(total, step)), 2 * step
        total = machine.bounded(total, 2**0.5 * layout.area * self.network.pooled)
        total = machine.map(total, self._classifier)
        result = machine.add(total, machine.conjugate(total))
        first = np.arange(layout.slots) % layout.area == 0  # all other slots are zero: they would tell the bias
        return machine.bounded(machine.add_plain(result, first * layout.spread(self.network.bias)[0]), 1.0)


@lru_cache(maxsize=16)
def _phase_maps(layout: Layout) -> tuple[LinearMap, LinearMap]:
    return slotwise.phases(layout)
