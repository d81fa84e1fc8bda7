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
        primes: data primes of what they meet.
        extended: whether they have the special primes' rows.
        kept: how many are held encoded, the first ones.
        held: these; None for none.
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
            primes: data primes of what they meet.
            extended: whether they have the special primes' rows.
            cache: what all sums share.
        """
        rows = primes + extended * evaluator.special
        kept = cache.take(len(plaintexts), 8 * rows * evaluator.parameters.ring_degree)
        made = _encoded(plaintexts[:kept], primes, extended, evaluator) if kept else None
        return cls(plaintexts, primes, extended, kept, made)

    @classmethod
    def encoded(cls, encoded: Sequence[Any]) -> "Factors":
        """Return plaintexts that stay encoded, all of them."""
        return cls((), 0, False, len(encoded), encoded)

    def parts(self, evaluator: Evaluator) -> Iterator[tuple[slice, Any]]:
        """Yield portions of the sum and their encoded plaintexts.

        Args:
            evaluator: for the same plain modulus.
        """
        if self.kept:
            yield slice(0, self.kept), self.held
        for first in range(self.kept, len(self.plaintexts), _AT_ONCE):
            own = slice(first, first + _AT_ONCE)
            yield own, _encoded(self.plaintexts[own], self.primes, self.extended, evaluator)


def encode(circuit: NetworkCircuit, evaluator: Evaluator, top: int, cache: WeightCache | None = None) -> list[Any]:
    """Return a circuit's plaintexts for many images: an entry for each step, None where it has none.

    Args:
        top: data primes of a request.
        cache: how many factors of products stay encoded; None: all of them.
    """
    t, primes, cache = evaluator.parameters.plain_modulus, circuit.primes_of(top), cache or WeightCache()
    found: list[Any] = []
    for step in circuit.steps:
        match step:
            case Combine(terms, extended):
                plaintexts = tuple(circuit.plaintexts[plaintext] for _, plaintext in terms)
                found.append(Factors.of(plaintexts, primes[terms[0][0]], extended, evaluator, cache))
            case AddPlain(source, plaintext):
                found.append(evaluator.encode(circuit.plaintexts[plaintext](t), primes[source]))
            case _:
                found.append(None)
    return found


def _encoded(plaintexts: tuple[Plaintext, ...], primes: int, extended: bool, evaluator: Evaluator) -> Any:
    t = evaluator.parameters.plain_modulus
    return evaluator.encode_factors([plaintext(t) for plaintext in plaintexts], primes, extended=extended)
