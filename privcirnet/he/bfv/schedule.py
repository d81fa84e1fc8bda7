"""A circuit cut into pieces of work for an engine that holds many ciphertexts at a time, with products as index arrays.

Segments share no rotated input (tiles, channel groups). Blocks are runs of outputs whose inner sums are computed
together. Both only bound how much is in memory at a time: results do not depend on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.ring.kernels.inner_products import Terms
from privcirnet.he.ring.modular import Integers


@dataclass(frozen=True)
class OutputBlock:
    """Consecutive outputs and the products of their inner sums.

    Attributes:
        terms: products of the sums, as (rotated input counted from the segment's first, weight).
    """

    outputs: slice
    sums: slice
    terms: Terms


@dataclass(frozen=True)
class Segment:
    """Consecutive blocks that need no rotated input of others.

    Attributes:
        rotated: entries of the circuit's ``rotated`` that the blocks need.
        blocks: in the order of the outputs.
    """

    rotated: slice
    blocks: tuple[OutputBlock, ...]


@dataclass(frozen=True)
class Limits:
    """Most numbers of items in memory at a time, if the circuit can be cut."""

    rotated: int
    sums: int
    products: int


def schedule(circuit: LayerCircuit, present: Sequence[bool], limits: Limits) -> tuple[Segment, ...]:
    """Cut a circuit into segments and blocks, each as large as the limits allow.

    A block has at least one output and a segment at least one block, whatever the limits are.

    Args:
        circuit: circuit whose outputs use inner sums, and inner sums rotated inputs, in ascending order.
        present: whether each weight is not zero; products with zero are left out.
        limits: limits on what is in memory at a time.

    Returns:
        segments in the order of the outputs.
    """
    nonzero = np.array(present, dtype=bool)
    flat = np.array([pair for pairs in circuit.sums for pair in pairs], dtype=np.int64).reshape(-1, 2)
    ends = np.array([0, *accumulate(map(len, circuit.sums))])
    needed = nonzero[flat[:, 1]]
    flat, ends = flat[needed], np.concatenate([[0], np.cumsum(needed)])[ends]
    segments: list[Segment] = []
    for rotated, outputs in _segments(circuit, limits.rotated):
        blocks = [_block(circuit, part, flat, ends, rotated.start) for part in _blocks(circuit, outputs, limits)]
        segments.append(Segment(rotated, tuple(blocks)))
    return tuple(segments)


def _segments(circuit: LayerCircuit, most_rotated: int) -> Iterator[tuple[slice, slice]]:
    """Yield (rotated, outputs) of each segment: the cut is where nothing that was rotated is needed again."""
    rotated = output = needed = first_rotated = first_output = 0
    for output, terms in enumerate(circuit.outputs):
        used = [index for number, _ in terms for index, _ in circuit.sums[number]]
        last = max(number for number, _ in terms)
        rotated = max(rotated, max(used) + 1)
        needed = max([needed, *circuit.last_uses[first_rotated:rotated]])
        complete = needed <= last
        following = circuit.outputs[output + 1 : output + 2]
        if complete and (not following or rotated - first_rotated >= most_rotated):
            yield slice(first_rotated, rotated), slice(first_output, output + 1)
            first_rotated, first_output = rotated, output + 1


def _blocks(circuit: LayerCircuit, outputs: slice, limits: Limits) -> Iterator[slice]:
    first, sums, products = outputs.start, 0, 0
    for output in range(outputs.start, outputs.stop):
        sizes = [len(circuit.sums[number]) for number, _ in circuit.outputs[output]]
        if first < output and (sums + len(sizes) > limits.sums or products + sum(sizes) > limits.products):
            yield slice(first, output)
            first, sums, products = output, 0, 0
        sums, products = sums + len(sizes), products + sum(sizes)
    yield slice(first, outputs.stop)


def _block(circuit: LayerCircuit, outputs: slice, flat: Integers, ends: Integers, first_rotated: int) -> OutputBlock:
    numbers = [number for terms in circuit.outputs[outputs] for number, _ in terms]
    sums = slice(numbers[0], numbers[-1] + 1)
    if numbers != list(range(sums.start, sums.stop)):
        raise ValueError("sums of a block of outputs must follow each other")
    pairs = flat[ends[sums.start] : ends[sums.stop]] - np.array([first_rotated, 0])
    return OutputBlock(outputs, sums, Terms(pairs, ends[sums.start : sums.stop + 1] - ends[sums.start]))


def shared_out(terms: Sequence[Pair], limit: int) -> list[Sequence[Pair]]:
    """Return an output's terms in runs of like size, each with a rotation if there are several.

    Args:
        terms: (inner sum, column step) of each.
        limit: most runs.
    """
    runs = max(1, min(limit, sum(bool(step) for _, step in terms)))
    ordered = sorted(terms, key=lambda term: not term[1])
    return [ordered[first::runs] for first in range(runs)]
