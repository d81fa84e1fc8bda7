"""A circuit cut in pieces of work for an engine that holds many ciphertexts at a time, with products as index arrays.

Segments share no turned input (tiles, channel groups); blocks are runs of outputs whose inner sums are computed
together. Both only bound how much is held at a time: results do not depend on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from privcirnet.he.engines.circuit import Circuit
from privcirnet.he.engines.kernels.inner_products import Terms
from privcirnet.he.ring.modular import Integers


@dataclass(frozen=True)
class Block:
    """Consecutive outputs and the products of their inner sums.

    Attributes:
        outputs: which.
        sums: their inner sums.
        terms: products of the sums, as (turned input counted from the segment's first, weight).
    """

    outputs: slice
    sums: slice
    terms: Terms


@dataclass(frozen=True)
class Segment:
    """Consecutive blocks that need no turned input of others."""

    turned: slice
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Limits:
    """How much is held at a time, if it can be cut.

    Attributes:
        turned: turned inputs of a segment.
        sums: inner sums of a block.
        products: products of a block, which is to say weights.
    """

    turned: int
    sums: int
    products: int


def schedule(circuit: Circuit, present: Sequence[bool], limits: Limits) -> tuple[Segment, ...]:
    """Segments and blocks of a circuit, each as large as fits; a block has at least one output, a segment one block.

    Args:
        circuit: whose outputs use inner sums, and inner sums turned inputs, in ascending order.
        present: whether each weight is not zero; products with zero are left out.
        limits: on what is held at a time.
    """
    kept = np.array(present, dtype=bool)
    flat = np.array([pair for pairs in circuit.sums for pair in pairs], dtype=np.int64).reshape(-1, 2)
    ends = np.array([0, *accumulate(map(len, circuit.sums))])
    chosen = kept[flat[:, 1]]
    flat, ends = flat[chosen], np.concatenate([[0], np.cumsum(chosen)])[ends]
    segments: list[Segment] = []
    for turned, outputs in _segments(circuit, limits.turned):
        blocks = [_block(circuit, part, flat, ends, turned.start) for part in _blocks(circuit, outputs, limits)]
        segments.append(Segment(turned, tuple(blocks)))
    return tuple(segments)


def _segments(circuit: Circuit, most_turned: int) -> Iterator[tuple[slice, slice]]:
    """(turned, outputs) of each segment: cut where nothing that was turned is needed again."""
    turned = output = needed = first_turned = first_output = 0
    for output, terms in enumerate(circuit.outputs):
        used = [index for number, _ in terms for index, _ in circuit.sums[number]]
        last = max(number for number, _ in terms)
        turned = max(turned, max(used) + 1)
        needed = max(needed, *(circuit.last_uses[index] for index in used))
        complete = needed <= last
        following = circuit.outputs[output + 1 : output + 2]
        if complete and (not following or turned - first_turned >= most_turned):
            yield slice(first_turned, turned), slice(first_output, output + 1)
            first_turned, first_output = turned, output + 1


def _blocks(circuit: Circuit, outputs: slice, limits: Limits) -> Iterator[slice]:
    first, sums, products = outputs.start, 0, 0
    for output in range(outputs.start, outputs.stop):
        own = [len(circuit.sums[number]) for number, _ in circuit.outputs[output]]
        if first < output and (sums + len(own) > limits.sums or products + sum(own) > limits.products):
            yield slice(first, output)
            first, sums, products = output, 0, 0
        sums, products = sums + len(own), products + sum(own)
    yield slice(first, outputs.stop)


def _block(circuit: Circuit, outputs: slice, flat: Integers, ends: Integers, first_turned: int) -> Block:
    numbers = [number for terms in circuit.outputs[outputs] for number, _ in terms]
    sums = slice(numbers[0], numbers[-1] + 1)
    assert numbers == list(range(sums.start, sums.stop))
    pairs = flat[ends[sums.start] : ends[sums.stop]] - np.array([first_turned, 0])
    return Block(outputs, sums, Terms(pairs, ends[sums.start : sums.stop + 1] - ends[sums.start]))
