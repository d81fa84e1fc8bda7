"""A circuit's plaintexts as a server holds them: encoded, as far as a limit on memory goes, and again when needed.

Every image needs every plaintext once, in the same order, so the first ones stay
(:class:`bfv.weight_cache.WeightCache`). The others are encoded in portions while their sum is computed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from privcirnet.he.bfv.evaluator import Evaluator
from privcirnet.he.bfv.network_circuit import AddPlain, Combine, NetworkCircuit, Plaintext
from privcirnet.he.bfv.weight_cache import WeightCache

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

    @classmethod
    def encoded(cls, encoded: Sequence[Any]) -> "Factors":
        """Return plaintexts that stay encoded, all of them."""
        return cls((), 0, False, len(encoded), encoded)

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
