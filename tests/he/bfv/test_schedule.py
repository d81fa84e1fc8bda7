from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.bfv.kernel_engine import Limits, OutputBlock, Segment, schedule
from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.layers.spectral_layer import SpectralLayer
from tests.he.circuit_examples import circuits
from tests.he.layer_examples import layers


def present_in(circuit: LayerCircuit) -> list[bool]:
    return [weight > 0 for weight in range(circuit.weights)]


def products_of(block: OutputBlock, segment: Segment) -> list[list[Pair]]:
    """Each inner sum's products as the circuit numbers them."""
    absolute = block.terms.pairs + np.array([segment.rotated.start, 0])
    first = block.terms.first
    return [list(map(tuple, absolute[start:end].tolist())) for start, end in pairwise(first)]


def check_coverage(circuit: LayerCircuit, present: Sequence[bool], segments: tuple[Segment, ...]) -> None:
    """Every output and every inner sum once, in order, with all products that are not with zero."""
    blocks = [(segment, block) for segment in segments for block in segment.blocks]
    outputs = [index for _, block in blocks for index in range(block.outputs.start, block.outputs.stop)]
    assert outputs == list(range(len(circuit.outputs)))
    sums = [index for _, block in blocks for index in range(block.sums.start, block.sums.stop)]
    assert sums == list(range(len(circuit.sums)))
    products = [own for segment, block in blocks for own in products_of(block, segment)]
    assert products == [[pair for pair in pairs if present[pair[1]]] for pairs in circuit.sums]


def check_bounds(segments: tuple[Segment, ...]) -> None:
    """Segments follow on one another, and no product reaches out of its segment."""
    for before, after in pairwise(segments):
        assert before.rotated.stop == after.rotated.start
    for segment in segments:
        for block in segment.blocks:
            assert block.terms.pairs[:, 0].min() >= 0
            assert block.terms.pairs[:, 0].max() < segment.rotated.stop - segment.rotated.start


LIMITS = st.builds(Limits, st.integers(1, 5), st.integers(1, 5), st.integers(1, 12))


@given(circuits(steps=(0, 1, 2), most=9), LIMITS)
def test_any_circuit_is_cut_where_nothing_is_needed_again_into_blocks_that_fit(
    circuit: LayerCircuit, limits: Limits
) -> None:
    segments = schedule(circuit, present_in(circuit), limits)
    check_coverage(circuit, present_in(circuit), segments)
    check_bounds(segments)
    for segment in segments:
        last = segment.blocks[-1].sums.stop - 1
        assert all(circuit.last_uses[index] <= last for index in range(segment.rotated.start, segment.rotated.stop))
        sizes = [held(circuit, block.outputs) for block in segment.blocks]
        for (sums, products), block in zip(sizes, segment.blocks, strict=True):
            fits = sums <= limits.sums and products <= limits.products
            assert fits or block.outputs.stop - block.outputs.start == 1
        for (sums, products), after in zip(sizes, segment.blocks[1:], strict=False):
            more = held(circuit, slice(after.outputs.start, after.outputs.start + 1))
            assert sums + more[0] > limits.sums or products + more[1] > limits.products
    assert all(segment.rotated.stop - segment.rotated.start >= limits.rotated for segment in segments[:-1])


def held(circuit: LayerCircuit, outputs: slice) -> tuple[int, int]:
    """(inner sums, products) of some outputs."""
    numbers = [number for terms in circuit.outputs[outputs] for number, _ in terms]
    return len(numbers), sum(len(circuit.sums[number]) for number in numbers)


def side_by_side(pieces: int) -> LayerCircuit:
    """Pieces of two rotated inputs each, which share nothing."""
    numbers = range(pieces)
    return LayerCircuit(
        tuple((number, step) for number in numbers for step in (0, 1)),
        tuple(((2 * number, 1), (2 * number + 1, 1)) for number in numbers),
        tuple(((number, 0),) for number in numbers),
        ((),) * pieces,
        2,
    )


@pytest.mark.parametrize(("most", "sizes"), [(1, [2] * 5), (2, [2] * 5), (3, [4, 4, 2]), (10, [10]), (64, [10])])
def test_pieces_that_share_nothing_are_cut_at_the_limit(most: int, sizes: list[int]) -> None:
    segments = schedule(side_by_side(5), [False, True], Limits(most, 128, 1024))
    assert [segment.rotated.stop - segment.rotated.start for segment in segments] == sizes


def test_a_segment_holds_what_later_outputs_need_of_its_rotated_inputs() -> None:
    """A pruned layer may skip a rotated input first and read it later."""
    circuit = LayerCircuit(((0, 0), (0, 1), (0, 2)), (((0, 0), (2, 0)), ((1, 0),)), (((0, 0),), ((1, 0),)), ((), ()), 1)
    segments = schedule(circuit, [True], Limits(1, 1, 1))
    check_coverage(circuit, [True], segments)
    check_bounds(segments)
    assert [segment.rotated for segment in segments] == [slice(0, 3)]


@given(layers(), LIMITS)
def test_every_spectral_layer_can_be_cut(layer: SpectralLayer, limits: Limits) -> None:
    segments = schedule(layer.circuit, [True] * layer.circuit.weights, limits)
    check_coverage(layer.circuit, [True] * layer.circuit.weights, segments)
    check_bounds(segments)
