"""Double hoisting (Bossuat et al., eprint 2020/1203): which sums of products take rotations before their division by P.

A key switch computes under the data primes and the special ones, and divides by their product P. A rotation that is
*extended* leaves that out. Sums of rotations are divided once; a sum of products, too, if its plaintexts have the
special primes' rows: for each rotation it saves a division, for each product it multiplies k rows more.
"""

from collections import Counter
from dataclasses import replace

from papers.falcon2020.circuits.network_circuit import (
    AddStep,
    CircuitStep,
    Combine,
    NetworkCircuit,
    Rotate,
    SquareStep,
    sources_of,
)

_TRANSFORM = 8.0
"""Rows of products with a plaintext in the time of one transform."""


def with_double_hoisting(circuit: NetworkCircuit, top: int, special: int) -> NetworkCircuit:
    """Return a circuit whose sums of products are extended where that takes less time.

    Args:
        top: data primes of a request.
        special: special primes, k.
    """
    steps, primes, extended = list[CircuitStep](), circuit.primes_of(top), [False] * circuit.inputs
    readers = Counter(source for step in circuit.steps for source in set(sources_of(step)))
    for step in circuit.steps:
        own = step
        if isinstance(step, Combine):
            sources = sources_of(step)
            rotations = sum(1 / readers[source] for source in sources if extended[source])
            saved = rotations * (special + primes[sources[0]]) * _TRANSFORM
            own = replace(step, extended=saved > special * len(sources))
        steps.append(own)
        extended.append(_is_extended(own, extended))
    return replace(circuit, steps=tuple(steps))


def _is_extended(step: CircuitStep, extended: list[bool]) -> bool:
    """Whether a step's result is still to be divided by P."""
    match step:
        case Rotate() | SquareStep():
            return True
        case Combine():
            return step.extended
        case AddStep():
            return any(extended[source] for source in sources_of(step))
        case _:
            return False
