"""Circuits of coefficient layers: their counts, that they can be cut, and the least work of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.bench.roofline import layer_work
from papers.coefficients.layer import COEFFICIENT_ENCODINGS, CoefficientLayer
from privcirnet.he.bfv.kernel_engine import Limits, schedule
from privcirnet.he.layers.shape import LinearShape
from tests.benchmarks.bench.test_roofline import L, N, counted
from tests.he.bfv.test_layer_circuit import products, turns
from tests.he.bfv.test_schedule import LIMITS, check_bounds, check_coverage
from tests.he.layer_examples import grouped_shapes

MANY_TILES = LinearShape(90, 70, 2, 3, 3, 1, 1)
"""Its maps are cut in tiles at a ring degree of 2048."""
ENCODINGS = st.sampled_from(sorted(COEFFICIENT_ENCODINGS))


@pytest.mark.slow
@given(grouped_shapes(), ENCODINGS, LIMITS)
@example(MANY_TILES, "cheetah", Limits(1, 1, 1))
@example(MANY_TILES, "cheetah", Limits(4, 5, 9))
def test_every_coefficient_layer_can_be_cut(shape: LinearShape, encoding: str, limits: Limits) -> None:
    circuit = CoefficientLayer(shape, 1, 2048, encoding).circuit
    segments = schedule(circuit, [True] * circuit.weights, limits)
    check_coverage(circuit, [True] * circuit.weights, segments)
    check_bounds(segments)


@pytest.mark.slow
@given(grouped_shapes(), ENCODINGS)
@example(MANY_TILES, "cheetah")
def test_a_coefficient_layer_s_circuit_has_its_placement_s_counts(shape: LinearShape, encoding: str) -> None:
    layer = CoefficientLayer(shape, 1, 2048, encoding)
    circuit, tiles = layer.circuit, layer.placement.grid.tiles
    assert turns(circuit) == 0
    assert products(circuit) == layer.pmults == circuit.weights * tiles
    assert circuit.rotated == tuple((number, 0) for number in range(layer.ciphertexts_in))
    assert circuit.outputs == tuple(((number, 0),) for number in range(layer.ciphertexts_out))
    assert all(not own for own in circuit.folds)
    for tile in range(tiles):
        own = circuit.sums[tile * len(layer.placement.outputs) :][: len(layer.placement.outputs)]
        assert sorted(weight for pairs in own for _, weight in pairs) == list(range(circuit.weights))


def test_work_of_a_coefficient_layer() -> None:
    layer = CoefficientLayer(LinearShape(6, 6, 8, 2, 3, 1, 1), 1, N, "cheetah")
    assert layer_work(layer, L) == counted(layer)
