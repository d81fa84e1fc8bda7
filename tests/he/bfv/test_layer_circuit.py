from hypothesis import given

from privcirnet.he.bfv.layer_circuit import LayerCircuit, multiplied
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from tests.he.circuit_examples import circuits
from tests.he.layer_examples import layers

GOLDEN = LayerCircuit(
    ((0, 0), (1, 5), (1, 6)), (((0, 0), (1, 1)), ((1, 1),), ((0, 2),)), (((0, 0), (1, 7)), ((2, 0),)), (), 3
)
"""Three rotated inputs, the last of them in no sum."""


@given(circuits(steps=(0, 1, 2)))
def test_nothing_is_used_after_its_last_use(circuit: LayerCircuit) -> None:
    for index, last in enumerate(circuit.last_uses):
        users = [number for number, pairs in enumerate(circuit.sums) if index in dict(pairs)]
        assert last == users[-1]


def test_sums_without_a_product_get_one() -> None:
    for present in ([True, True, True], [False, True, True]):
        assert multiplied(GOLDEN, present) == present
    assert multiplied(GOLDEN, [True, False, True]) == [True, True, True]
    assert multiplied(GOLDEN, [False, False, False]) == [True, True, True]


def turns(circuit: LayerCircuit) -> int:
    """Rotations that an engine performs."""
    steps = [step for _, step in circuit.rotated] + [step for terms in circuit.outputs for _, step in terms]
    return sum(map(bool, steps)) + sum(map(len, circuit.folds))


def all_steps(circuit: LayerCircuit) -> set[int]:
    """Every column step, zero left out."""
    pairs = [*circuit.rotated, *(term for terms in circuit.outputs for term in terms)]
    return ({step for _, step in pairs} | {step for own in circuit.folds for step in own}) - {0}


def products(circuit: LayerCircuit) -> int:
    return sum(map(len, circuit.sums))


@given(layers())
def test_a_spectral_layer_s_circuit_has_its_plan_s_counts(layer: SpectralLayer) -> None:
    circuit = layer.circuit
    assert turns(circuit) == layer.rotations
    assert products(circuit) == layer.pmults
    assert len(circuit.outputs) == len(circuit.folds) == layer.ciphertexts_out
    assert all_steps(circuit) == layer.column_steps
    assert {source for source, _ in circuit.rotated} == set(range(layer.ciphertexts_in))
    assert len(set(circuit.rotated)) == len(circuit.rotated)


@given(layers())
def test_every_part_of_a_spectral_layer_s_circuit_is_used(layer: SpectralLayer) -> None:
    circuit = layer.circuit
    used = [pair for pairs in circuit.sums for pair in pairs]
    assert {index for index, _ in used} == set(range(len(circuit.rotated)))
    assert {weight for _, weight in used} == set(range(circuit.weights))
    assert [number for terms in circuit.outputs for number, _ in terms] == list(range(len(circuit.sums)))


SHAPE = LinearShape(4, 4, 2, 2, 3, 1, 1)


def test_tiles_share_their_weights() -> None:
    """Golden: alike pieces for two tiles each make one piece's plaintexts."""
    alone, twice = (
        SpectralLayer(SHAPE, 1, 128, (2, 4), pieces)
        for pieces in ((Piece(1, 2, 2, baby_steps=1),), (Piece(1, 1, 2, baby_steps=1),) * 2)
    )
    assert (len(alone.placed), len(twice.placed)) == (1, 2)
    assert products(twice.circuit) == 2 * twice.circuit.weights == 2 * alone.circuit.weights
    used = [weight for pairs in twice.circuit.sums for _, weight in pairs]
    assert sorted(used) == sorted([*range(twice.circuit.weights)] * 2)


def test_groups_do_not_share_their_weights() -> None:
    layer = SpectralLayer(LinearShape(2, 2, 2, 2, 1, groups=2), 1, 64, (2, 2), (Piece(1, 1, 2, baby_steps=1),) * 2)
    assert products(layer.circuit) == layer.circuit.weights
