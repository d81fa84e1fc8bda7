"""Any circuit there can be: a Hypothesis strategy."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.ring.modular import Residues


@st.composite
def circuits(draw: st.DrawFn, steps: tuple[int, ...] = (0,), most: int = 6) -> LayerCircuit:
    """Outputs use inner sums, and inner sums rotated inputs, in ascending order; weight 0 never makes a whole sum.

    Args:
        draw: Hypothesis'.
        steps: column steps of rotated inputs; all but zero may be giant steps and folds too.
        most: rotated inputs.
    """
    inputs, weights = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    rotated = draw(st.permutations(list(product(range(inputs), steps))))[: draw(st.integers(1, most))]
    sums: list[tuple[Pair, ...]] = []
    outputs: list[tuple[Pair, ...]] = []
    reached = 0
    while reached < len(rotated):
        terms: list[Pair] = []
        for _ in range(draw(st.integers(1, 3))):
            fresh = draw(st.integers(0, min(4, len(rotated) - reached)))
            used = draw(st.sets(st.integers(0, reached - 1), max_size=5)) if reached else set[int]()
            used |= set(range(reached, reached + fresh)) or {max(reached - 1, 0)}
            reached = max(used | {reached - 1}) + 1
            terms.append((len(sums), draw(st.sampled_from(steps))))
            sums.append(tuple(draw(_products(sorted(used), weights))))
        outputs.append(tuple(terms))
    turns = st.lists(st.sampled_from([step for step in steps if step]), max_size=2) if any(steps) else st.just([])
    folds = tuple(tuple(draw(turns)) for _ in outputs)
    return LayerCircuit(tuple(rotated), tuple(sums), tuple(outputs), folds, weights + 1)


@st.composite
def _products(draw: st.DrawFn, used: list[int], weights: int) -> list[Pair]:
    chosen = [draw(st.integers(0, weights)) for _ in used]
    chosen[0] = chosen[0] if any(chosen) else 1
    return list(zip(used, chosen, strict=True))


def inputs_of(circuit: LayerCircuit) -> int:
    """Ciphertexts that a circuit needs."""
    return max(source for source, _ in circuit.rotated) + 1


def random_weights(circuit: LayerCircuit, n: int, t: int, seed: int) -> Residues:
    """Slots of its weights, (weights, n), those of weight 0 zero."""
    slots = np.random.default_rng(seed).integers(0, t, (circuit.weights, n), dtype=np.uint64)
    slots[0] = 0
    return slots
