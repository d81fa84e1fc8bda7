"""A circuit with each of its repetitions once: steps of one kind on values of one kind are alike.

Levels, noise and costs depend on what a step does and on what it reads, and not on weights. LoLa's products of an
output are thousands of the same line of steps; parameters are chosen for one of them, counted as often as it stands
there.
"""

from dataclasses import replace
from typing import Any

from papers.falcon2020.circuits.modulus_switching import reading
from papers.falcon2020.circuits.network_circuit import AddPlain, CircuitStep, Combine, NetworkCircuit, sources_of


def without_repetitions(circuit: NetworkCircuit) -> tuple[NetworkCircuit, tuple[int, ...]]:
    """Return the steps that differ, and how often each of them stands in a circuit.

    The client's ciphertexts stay as they are. Outputs are as many as before, the same value where they are alike.
    """
    numbers, known = list(range(circuit.inputs)), dict[Any, int]()
    steps, layers, counts = list[CircuitStep](), list[str](), list[int]()
    for step, layer in zip(circuit.steps, circuit.layers, strict=True):
        made = reading(step, [numbers[source] for source in sources_of(step)])
        kind = (layer, _kind(made))
        if kind not in known:
            known[kind] = circuit.inputs + len(steps)
            steps.append(made)
            layers.append(layer)
            counts.append(0)
        counts[known[kind] - circuit.inputs] += 1
        numbers.append(known[kind])
    outputs = tuple(numbers[output] for output in circuit.outputs)
    return replace(circuit, steps=tuple(steps), layers=tuple(layers), outputs=outputs), tuple(counts)


def _kind(step: CircuitStep) -> object:
    """What a step does and reads, whatever its plaintexts."""
    match step:
        case Combine():
            return sources_of(step), step.extended
        case AddPlain():
            return replace(step, plaintext=0)
        case _:
            return step
