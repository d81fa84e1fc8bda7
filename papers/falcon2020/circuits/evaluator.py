"""The server's operations on ciphertexts for one plain modulus, its encoded plaintexts, and the run of a circuit.

A ciphertext is dropped once no later step reads it. Every image needs every plaintext once, in the same order, so the
first ones stay encoded as far as the limit on memory goes (:class:`bfv.weight_cache.WeightCache`). The others are
encoded in portions while their sum is computed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from time import process_time
from typing import Any, Protocol

from papers.falcon2020.circuits.network_circuit import (
    AddPlain,
    AddStep,
    CircuitStep,
    Combine,
    ModSwitch,
    NetworkCircuit,
    Plaintext,
    Rotate,
    SquareStep,
    sources_of,
)
from privcirnet.he.bfv.interface import Ciphertext
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.ring.modular import Residues


class Evaluator(Protocol):
    """The server's operations for one plain modulus.

    Attributes:
        special: rows that an extended plaintext has over those of its data primes.
        counts: operations by name.
    """

    parameters: Parameters
    special: int
    counts: Counter[str]

    def encode(self, slots: Residues, primes: int) -> Any:
        """Return a plaintext for sums.

        Args:
            slots: residues, shape (n,).
            primes: data primes of what it is added to.
        """
        ...

    def encode_factors(self, slots: Sequence[Residues], primes: int, *, extended: bool) -> Any:
        """Return the plaintexts of a sum of products.

        Args:
            slots: residues, shape (n,), none all zero.
            primes: data primes of the ciphertexts that they multiply.
            extended: whether that is not divided by the special primes' product yet, if the engine has such values.
        """
        ...

    def turn(self, ciphertext: Ciphertext, element: int, keys: Any) -> Ciphertext:
        """Return a ciphertext after an automorphism. Counted as "rotate".

        Args:
            element: Galois element of the automorphism.

        Raises:
            RuleError: there is no key for it.
        """
        ...

    def to_ntt(self, ciphertext: Ciphertext) -> Ciphertext:
        """Return a ciphertext in the form that products are made in."""
        ...

    def combine(self, ciphertexts: Sequence[Ciphertext], factors: Any) -> Ciphertext:
        """Return the sum of plaintext products.

        Args:
            ciphertexts: results of :meth:`to_ntt`.
            factors: results of :meth:`encode_factors`, one for each.
        """
        ...

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Return the sum of two ciphertexts.

        Args:
            second: ciphertext with as many data primes.
        """
        ...

    def add_plain(self, ciphertext: Ciphertext, plaintext: Any) -> Ciphertext:
        """Return ciphertext + plaintext.

        Args:
            plaintext: result of :meth:`encode`.
        """
        ...

    def square(self, ciphertext: Ciphertext, keys: Any) -> Ciphertext:
        """Return the ciphertext times itself, relinearised."""
        ...

    def reduce(self, ciphertext: Ciphertext, primes: int) -> Ciphertext:
        """Return a ciphertext under fewer data primes; an engine under one modulus returns it as it is.

        Args:
            primes: data primes that are left.
        """
        ...

    def answer(self, ciphertext: Ciphertext, addend: Residues, keys: Any) -> bytes:
        """Mask a result, flood its noise, switch to the smallest modulus that still decrypts, and serialise.

        Args:
            ciphertext: ciphertext with the data primes of answers, or more.
            addend: slots to add: shares of zero where the client may read, uniform elsewhere.

        Returns:
            bytes for the client.
        """
        ...


def run(
    circuit: NetworkCircuit,
    plaintexts: Sequence[Any],
    inputs: Sequence[Ciphertext],
    evaluator: Evaluator,
    keys: Any,
    timed: list[float] | None = None,
) -> list[Ciphertext]:
    """Return the outputs of a circuit.

    Args:
        circuit: circuit of the network.
        plaintexts: result of :func:`encode`.
        inputs: the client's ciphertexts.
        evaluator: evaluator for the same plain modulus.
        keys: keys of the client.
        timed: function that takes the processor seconds of each step; None: none.
    """
    values: dict[int, Ciphertext] = dict(enumerate(inputs))
    readers = Counter(source for step in circuit.steps for source in set(sources_of(step)))
    readers.update(circuit.outputs)
    in_ntt: dict[int, Ciphertext] = {}
    for number, (step, plaintext) in enumerate(zip(circuit.steps, plaintexts, strict=True), circuit.inputs):
        started = process_time()
        values[number] = _apply(step, values, in_ntt, plaintext, evaluator, keys)
        if timed is not None:
            timed.append(process_time() - started)
        for source in set(sources_of(step)):
            readers[source] -= 1
            if not readers[source]:
                del values[source]
                in_ntt.pop(source, None)
    return [values[output] for output in circuit.outputs]


def _apply(
    step: CircuitStep, values: dict[int, Any], in_ntt: dict[int, Any], plaintext: Any, evaluator: Evaluator, keys: Any
) -> Ciphertext:
    match step:
        case Rotate(source, element):
            return evaluator.turn(values[source], element, keys)
        case AddStep(first, second):
            return evaluator.add(values[first], values[second])
        case AddPlain(source):
            return evaluator.add_plain(values[source], plaintext)
        case SquareStep(source):
            return evaluator.square(values[source], keys)
        case ModSwitch(source, primes):
            return evaluator.reduce(values[source], primes)
        case Combine(terms):
            for source, _ in terms:
                if source not in in_ntt:
                    in_ntt[source] = evaluator.to_ntt(values[source])
            sources = [in_ntt[source] for source, _ in terms]
            return reduce(
                evaluator.add, (evaluator.combine(sources[part], some) for part, some in plaintext.parts(evaluator))
            )


_AT_ONCE = 32
"""Plaintexts that are encoded together when they are needed."""


@dataclass(frozen=True)
class Factors:
    """The plaintexts of a sum of products for one plain modulus.

    Attributes:
        plaintexts: all of them.
        primes: data primes of the ciphertexts that they multiply.
        extended: whether they have the special primes' rows.
        kept: number of them that are held encoded, the first ones.
        held: encoded plaintexts; None for none.
    """

    plaintexts: tuple[Plaintext, ...] = field(repr=False)
    primes: int
    extended: bool
    kept: int
    held: Any = field(repr=False)

    @classmethod
    def of(
        cls, plaintexts: tuple[Plaintext, ...], primes: int, extended: bool, evaluator: Evaluator, cache: WeightCache
    ) -> "Factors":
        """Return plaintexts, encoded as far as there is room.

        Args:
            primes: data primes of the ciphertexts that they multiply.
            extended: whether they have the special primes' rows.
            cache: cache that all sums share.
        """
        rows = primes + extended * evaluator.special
        count = cache.take(len(plaintexts), 8 * rows * evaluator.parameters.ring_degree)
        encoded = _encoded(plaintexts[:count], primes, extended, evaluator) if count else None
        return cls(plaintexts, primes, extended, count, encoded)

    def parts(self, evaluator: Evaluator) -> Iterator[tuple[slice, Any]]:
        """Yield portions of the sum and their encoded plaintexts.

        Args:
            evaluator: evaluator for the same plain modulus.
        """
        if self.kept:
            yield slice(0, self.kept), self.held
        for first in range(self.kept, len(self.plaintexts), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            yield part, _encoded(self.plaintexts[part], self.primes, self.extended, evaluator)


def encode(circuit: NetworkCircuit, evaluator: Evaluator, top: int, cache: WeightCache | None = None) -> list[Any]:
    """Return a circuit's plaintexts for many images: an entry for each step, None where it has none.

    Args:
        top: data primes of a request.
        cache: cache that limits how many factors stay encoded; None: all of them.
    """
    t, primes, cache = evaluator.parameters.plain_modulus, circuit.primes_of(top), cache or WeightCache()
    encoded: list[Any] = []
    for step in circuit.steps:
        match step:
            case Combine(terms, extended):
                plaintexts = tuple(circuit.plaintexts[plaintext] for _, plaintext in terms)
                encoded.append(Factors.of(plaintexts, primes[terms[0][0]], extended, evaluator, cache))
            case AddPlain(source, plaintext):
                encoded.append(evaluator.encode(circuit.plaintexts[plaintext](t), primes[source]))
            case _:
                encoded.append(None)
    return encoded


def _encoded(plaintexts: tuple[Plaintext, ...], primes: int, extended: bool, evaluator: Evaluator) -> Any:
    t = evaluator.parameters.plain_modulus
    return evaluator.encode_factors([plaintext(t) for plaintext in plaintexts], primes, extended=extended)
