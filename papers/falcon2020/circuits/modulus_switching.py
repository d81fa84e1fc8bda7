"""Modulus switches in a circuit: a value loses data primes as soon as its noise outweighs them.

A switch divides noise and modulus alike and adds a rounding. While the noise that is left outweighs the rounding, the
result has as much room as before, and everything that follows costs less: transforms, key switches and keys grow with
the number of data primes. Engines under one modulus leave the switches out; their results are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from papers.falcon2020.circuits.network_circuit import (
    AddStep,
    CircuitStep,
    Combine,
    ModSwitch,
    NetworkCircuit,
    Rotate,
    SquareStep,
    sources_of,
)
from papers.falcon2020.circuits.noise import Noise
from papers.falcon2020.circuits.plain_moduli import LeveledParameters

_MARGIN = 2.0
"""log2 of the variance that a switched value's noise has at least over the rounding: the switch costs a third of a bit
of room then."""


@dataclass
class _Levels:
    """A circuit while its switches are put in; values have new numbers."""

    noise: Noise
    bits: tuple[int, ...]
    steps: list[CircuitStep] = field(default_factory=list[CircuitStep])
    layers: list[str] = field(default_factory=list[str])
    found: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    switched: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def add(self, step: CircuitStep, noise: float, primes: int, layer: str) -> int:
        self.steps.append(step)
        self.layers.append(layer)
        self.found.append((noise, primes))
        return len(self.found) - 1

    def at(self, value: int, primes: int, layer: str) -> int:
        """A value with as many data primes, not more than its own."""
        noise, before = self.found[value]
        if primes == before:
            return value
        if (value, primes) not in self.switched:
            reduced = self.noise.reduced(noise, before, primes)
            self.switched[value, primes] = self.add(ModSwitch(value, primes), reduced, primes, layer)
        return self.switched[value, primes]

    def lowered(self, value: int, layer: str) -> int:
        """A value without the data primes that its noise outweighs."""
        noise, before = self.found[value]
        primes = before
        while primes > 1 and noise - 2 * sum(self.bits[primes - 1 : before]) >= self.noise.rounding + _MARGIN:
            primes -= 1
        return self.at(value, primes, layer)


def with_switches(circuit: NetworkCircuit, parameters: LeveledParameters) -> NetworkCircuit:
    """Return a circuit with its modulus switches; all outputs end with as many primes.

    Args:
        circuit: without any.
    """
    noise, bits = Noise(parameters), parameters.data_bits
    made = _Levels(noise, bits, found=[(noise.fresh, len(bits))] * circuit.inputs)
    numbers = list(range(circuit.inputs))
    for step, layer in zip(circuit.steps, circuit.layers, strict=True):
        own = [numbers[source] for source in sources_of(step)]
        primes = min(made.found[value][1] for value in own)
        if isinstance(step, Rotate | SquareStep):
            primes = min(primes, parameters.key_primes)
        own = [made.at(value, primes, layer) for value in own]
        after = noise.after(step, [made.found[value][0] for value in own], primes)
        numbers.append(made.lowered(made.add(reading(step, own), after, primes, layer), layer))
    outputs = [numbers[output] for output in circuit.outputs]
    last = min(parameters.key_primes, *(made.found[value][1] for value in outputs))
    found = tuple(made.at(value, last, circuit.layers[-1]) for value in outputs)
    return replace(circuit, steps=tuple(made.steps), outputs=found, layers=tuple(made.layers))


def at_one_modulus(circuit: NetworkCircuit, primes: int) -> NetworkCircuit:
    """Return a circuit as an engine under one modulus runs it: its switches drop nothing.

    Args:
        primes: data primes of every value.
    """
    steps = tuple(replace(step, primes=primes) if isinstance(step, ModSwitch) else step for step in circuit.steps)
    return replace(circuit, steps=steps)


def reading(step: CircuitStep, sources: Sequence[int]) -> CircuitStep:
    """Return a step that reads other values."""
    match step:
        case Combine(terms):
            return replace(step, terms=tuple((value, own) for value, (_, own) in zip(sources, terms, strict=True)))
        case AddStep():
            return AddStep(*sources)
        case _:
            return replace(step, source=sources[0])
