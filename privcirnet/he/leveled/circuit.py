"""A whole network on ciphertexts as data: a straight line of rotations, sums of plaintext products, and squares.

Values are numbered: the client's ciphertexts first, then the result of each step. The circuit is the same for every
plain modulus; its plaintexts are functions of it. Engines run it (:mod:`leveled.engine`), the noise estimate walks it
(:mod:`leveled.noise`), and its counts are read off it.

Slots are two rows of n / 2 columns. A rotation turns both rows left; a swap exchanges them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Residues

SWAP = 0
"""The column step that stands for an exchange of the rows."""

Plaintext = Callable[[int], Residues]
"""Plain modulus t -> slots, residues of shape (n,)."""

Term = tuple[int, int]
"""(value, plaintext), by their numbers."""


@dataclass(frozen=True)
class Rotate:
    """A value with both rows turned left, or exchanged.

    Attributes:
        source: the value.
        columns: 1 to n / 2 - 1, or :data:`SWAP`.
    """

    source: int
    columns: int


@dataclass(frozen=True)
class Combine:
    """A sum of plaintext products.

    Attributes:
        terms: the products.
    """

    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Add:
    """The sum of two values."""

    first: int
    second: int


@dataclass(frozen=True)
class AddPlain:
    """A value plus a plaintext."""

    source: int
    plaintext: int


@dataclass(frozen=True)
class Square:
    """A value times itself, relinearised."""

    source: int


Step = Rotate | Combine | Add | AddPlain | Square


def sources_of(step: Step) -> tuple[int, ...]:
    """Return the values that a step reads.

    Args:
        step: of a circuit.
    """
    match step:
        case Combine(terms):
            return tuple(value for value, _ in terms)
        case Add(first, second):
            return first, second
        case Rotate(source) | AddPlain(source) | Square(source):
            return (source,)


@dataclass(frozen=True)
class Circuit:
    """A network as steps.

    Attributes:
        ring_degree: n.
        inputs: ciphertexts that the client sends.
        steps: in order; each reads earlier values.
        plaintexts: by number.
        outputs: values that are sent back.
        layers: name of the layer that each step belongs to.
    """

    ring_degree: int
    inputs: int
    steps: tuple[Step, ...]
    plaintexts: tuple[Plaintext, ...] = field(repr=False)
    outputs: tuple[int, ...]
    layers: tuple[str, ...] = field(repr=False)

    @property
    def rotations(self) -> frozenset[int]:
        """Column steps of all rotations: what the server needs keys for."""
        return frozenset(step.columns for step in self.steps if isinstance(step, Rotate))

    @property
    def squares(self) -> int:
        """Products of ciphertexts."""
        return sum(isinstance(step, Square) for step in self.steps)

    @property
    def counts(self) -> Counter[str]:
        """Operations by name: "rotate", "pmult", "add", "add_plain", "square"."""
        return sum((_counts(step) for step in self.steps), Counter[str]())

    def counts_of(self, layer: str) -> Counter[str]:
        """Return the operations of one layer by name.

        Args:
            layer: its name.
        """
        own = (step for step, name in zip(self.steps, self.layers, strict=True) if name == layer)
        return sum(map(_counts, own), Counter[str]())

    @property
    def levels(self) -> tuple[int, int]:
        """The most plaintext products and the most squares on a way from an input to an output."""
        deep = [(0, 0)] * self.inputs
        for step in self.steps:
            found = [deep[source] for source in sources_of(step)]
            products, squares = (max(column) for column in zip(*found, strict=True))
            deep.append((products + isinstance(step, Combine), squares + isinstance(step, Square)))
        return max(deep[output][0] for output in self.outputs), max(deep[output][1] for output in self.outputs)


def _counts(step: Step) -> Counter[str]:
    match step:
        case Rotate():
            return Counter(rotate=1)
        case Combine(terms):
            return Counter(pmult=len(terms), add=len(terms) - 1)
        case Add():
            return Counter(add=1)
        case AddPlain():
            return Counter(add_plain=1)
        case Square():
            return Counter(square=1)


class Builder:
    """A circuit while it is put together. Every method returns the number of a value.

    Args:
        ring_degree: n.
        inputs: ciphertexts that the client sends.
    """

    def __init__(self, ring_degree: int, inputs: int) -> None:
        self.ring_degree, self.inputs = ring_degree, inputs
        self.layer = ""
        self._steps: list[Step] = []
        self._layers: list[str] = []
        self._plaintexts: list[Plaintext] = []
        self._rotated: dict[Rotate, int] = {}

    @property
    def row(self) -> int:
        """Columns of a row."""
        return self.ring_degree // 2

    def built(self, outputs: Sequence[int]) -> Circuit:
        """Return the circuit.

        Args:
            outputs: values that are sent back.
        """
        steps, plaintexts, layers = tuple(self._steps), tuple(self._plaintexts), tuple(self._layers)
        return Circuit(self.ring_degree, self.inputs, steps, plaintexts, tuple(outputs), layers)

    def rotate(self, source: int, columns: int) -> int:
        """Turn both rows left; the same rotation of a value is done once, one by whole rows not at all.

        Args:
            source: a value.
            columns: any number, also negative: to the right.
        """
        step = Rotate(source, columns % self.row)
        if not step.columns:
            return source
        if step not in self._rotated:
            self._rotated[step] = self._add(step)
        return self._rotated[step]

    def swap(self, source: int) -> int:
        """Exchange the rows.

        Args:
            source: a value.
        """
        return self._add(Rotate(source, SWAP))

    def add(self, first: int, second: int) -> int:
        """Add two values.

        Args:
            first: a value.
            second: another.
        """
        return self._add(Add(first, second))

    def total(self, values: Sequence[int]) -> int:
        """Add values.

        Args:
            values: one or more.
        """
        found = values[0]
        for value in values[1:]:
            found = self.add(found, value)
        return found

    def square(self, source: int) -> int:
        """Square every slot.

        Args:
            source: a value.
        """
        return self._add(Square(source))

    def products(self, terms: Sequence[tuple[int, Plaintext]]) -> int:
        """Add up plaintext products.

        Args:
            terms: (value, plaintext), no plaintext zero.
        """
        return self._add(Combine(tuple((value, self._plaintext(plaintext)) for value, plaintext in terms)))

    def weighted(self, terms: Sequence[tuple[int, np.ndarray]]) -> int:
        """Add up products with integers in slots; those with zeros alone are left out.

        Args:
            terms: (value, integers of shape (n,)).

        Raises:
            RuleError: all are zero.
        """
        kept = [(value, integers(slots)) for value, slots in terms if slots.any()]
        if not kept:
            got, remedy = f"none in layer {self.layer}", "train it again: an output without weights says nothing"
            raise RuleError("every sum must have a weight that is not zero", got=got, remedy=remedy)
        return self.products(kept)

    def add_integers(self, source: int, slots: np.ndarray) -> int:
        """Add integers in slots; zeros are not added.

        Args:
            source: a value.
            slots: integers of any size, shape (n,).
        """
        return self._add(AddPlain(source, self._plaintext(integers(slots)))) if slots.any() else source

    def side_by_side(self, values: Sequence[int], columns: int) -> int:
        """Add up values, each some columns further to the right than the one before; one rotation key serves all.

        Args:
            values: one or more.
            columns: positive.
        """
        found = values[-1]
        for value in values[-2::-1]:
            found = self.add(value, self.rotate(found, -columns))
        return found

    def sum_over(self, source: int, stride: int, count: int) -> int:
        """Add up every value with those that stand 1, 2, ... count - 1 strides to its right, cyclically in its row.

        Args:
            source: a value.
            stride: columns.
            count: a power of two.
        """
        while count > 1:
            count //= 2
            source = self.add(source, self.rotate(source, stride * count))
        return source

    def _add(self, step: Step) -> int:
        self._steps.append(step)
        self._layers.append(self.layer)
        return self.inputs + len(self._steps) - 1

    def _plaintext(self, plaintext: Plaintext) -> int:
        self._plaintexts.append(plaintext)
        return len(self._plaintexts) - 1


def integers(slots: np.ndarray) -> Plaintext:
    """Return integers as a plaintext.

    Args:
        slots: integers of any size, shape (n,).
    """
    return lambda t: (slots % t).astype(np.uint64)
