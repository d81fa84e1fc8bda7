"""A whole network on ciphertexts as data: a straight line of rotations, sums of plaintext products, and squares.

Values are numbered: the client's ciphertexts first, then the result of each step. The circuit is the same for every
plain modulus; its plaintexts are functions of it. Engines run it (:mod:`.evaluator`), and its counts are read off it.

Slots are two rows of n / 2 columns. A rotation turns both rows left; a swap exchanges them.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.parameters import RELINEARIZATION

Plaintext = Callable[[int], Residues]
"""Plain modulus t -> slots, residues of shape (n,)."""

Term = tuple[int, int]
"""(value, plaintext), by their numbers."""


@dataclass(frozen=True)
class Rotate:
    """A value after an automorphism: with both rows turned left, or exchanged.

    Attributes:
        element: Galois element of the automorphism (:mod:`rlwe.parameters`).
    """

    source: int
    element: int


@dataclass(frozen=True)
class Combine:
    """A sum of plaintext products.

    Attributes:
        extended: whether rotations are multiplied before their division by the special primes (double hoisting).
    """

    terms: tuple[Term, ...]
    extended: bool = False


@dataclass(frozen=True)
class AddStep:
    """The sum of two values."""

    first: int
    second: int


@dataclass(frozen=True)
class AddPlain:
    """A value plus a plaintext."""

    source: int
    plaintext: int


@dataclass(frozen=True)
class SquareStep:
    """A value times itself, relinearised."""

    source: int


@dataclass(frozen=True)
class ModSwitch:
    """A value under a shorter modulus; engines under one modulus leave it as it is.

    Attributes:
        primes: data primes that are left.
    """

    source: int
    primes: int


CircuitStep = Rotate | Combine | AddStep | AddPlain | SquareStep | ModSwitch


def sources_of(step: CircuitStep) -> tuple[int, ...]:
    """Return the values that a step reads."""
    match step:
        case Combine(terms):
            return tuple(value for value, _ in terms)
        case AddStep(first, second):
            return first, second
        case Rotate(source) | AddPlain(source) | SquareStep(source) | ModSwitch(source):
            return (source,)


@dataclass(frozen=True)
class NetworkCircuit:
    """A network as steps.

    Attributes:
        steps: in order; each reads earlier values.
        plaintexts: slots by the number of a plaintext.
        layers: name of the layer that each step belongs to.
    """

    ring_degree: int
    inputs: int
    steps: tuple[CircuitStep, ...]
    plaintexts: tuple[Plaintext, ...] = field(repr=False)
    outputs: tuple[int, ...]
    layers: tuple[str, ...] = field(repr=False)

    @property
    def rotations(self) -> frozenset[int]:
        """Galois elements of all rotations."""
        return frozenset(step.element for step in self.steps if isinstance(step, Rotate))

    def primes_of(self, top: int) -> list[int]:
        """Return the number of data primes of each value."""
        primes = [top] * self.inputs
        for step in self.steps:
            primes.append(step.primes if isinstance(step, ModSwitch) else primes[sources_of(step)[0]])
        return primes

    def keys(self, top: int) -> dict[int, int]:
        """Return the switch keys that the server needs: the most data primes of what each of them switches.

        Args:
            top: data primes of a request.

        Returns:
            by their names (:mod:`rlwe.parameters`), ascending.
        """
        primes, keys = self.primes_of(top), dict[int, int]()
        for step in self.steps:
            if isinstance(step, Rotate | SquareStep):
                kind = step.element if isinstance(step, Rotate) else RELINEARIZATION
                keys[kind] = max(keys.get(kind, 0), primes[step.source])
        return dict(sorted(keys.items()))

    @property
    def counts(self) -> Counter[str]:
        """Operations by name: "rotate", "pmult", "add", "add_plain", "square", "reduce"."""
        return sum((_counts(step) for step in self.steps), Counter[str]())

    def counts_of(self, layer: str) -> Counter[str]:
        """Return the operations of one layer by name."""
        steps = (step for step, name in zip(self.steps, self.layers, strict=True) if name == layer)
        return sum(map(_counts, steps), Counter[str]())

    @property
    def levels(self) -> tuple[int, int]:
        """Return the most plaintext products and the most squares on a way from an input to an output."""
        deep = [(0, 0)] * self.inputs
        for step in self.steps:
            depths = [deep[source] for source in sources_of(step)]
            products, squares = (max(column) for column in zip(*depths, strict=True))
            deep.append((products + isinstance(step, Combine), squares + isinstance(step, SquareStep)))
        return max(deep[output][0] for output in self.outputs), max(deep[output][1] for output in self.outputs)


def _counts(step: CircuitStep) -> Counter[str]:
    match step:
        case Rotate():
            return Counter(rotate=1)
        case Combine(terms):
            return Counter(pmult=len(terms), add=len(terms) - 1)
        case AddStep():
            return Counter(add=1)
        case AddPlain():
            return Counter(add_plain=1)
        case SquareStep():
            return Counter(square=1)
        case ModSwitch():
            return Counter(reduce=1)
