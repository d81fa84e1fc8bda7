"""What every encoding promises: the members of a layer; papers/coefficients keeps the same promises."""

import copy
import json
from dataclasses import asdict, fields, is_dataclass

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer, UnplannedLayer, unplanned, unplanned_factor
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.cost import operation_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import operations as op
from tests.he.exchange import random_rows
from tests.he.insecure import insecure_parameters

N = 256
SHAPE = LinearShape(4, 4, 6, 6, 3, 1, 1, groups=3)
LAYERS: dict[str, Layer] = {"cirencode": SpectralLayer(SHAPE, 2, N, (4, 4), (Piece(1, 1, 4, 1),) * 3)}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_members_agree_with_each_other(layer: Layer) -> None:
    t, random = insecure_parameters(N, layer.transform_lengths).plain_modulus, np.random.default_rng(0)
    spectrum = layer.spectrum(random_rows(SHAPE, 2), t)
    assert spectrum.shape == layer.spectrum_shape
    sent = (layer.ciphertexts_in, N), (layer.ciphertexts_out, N)
    assert layer.encode_input(np.zeros(SHAPE.input_shape, dtype=np.uint64), t).shape == sent[0]
    assert layer.decode_output(random.integers(0, t, sent[1], dtype=np.uint64), t).shape == SHAPE.output_shape
    circuit = layer.circuit
    assert sum(map(len, circuit.sums)) == layer.pmults <= layer.most_products
    assert len(circuit.outputs) == layer.ciphertexts_out
    assert {source for source, _ in circuit.rotated} == set(range(layer.ciphertexts_in))
    assert {step for _, step in circuit.rotated} - {0} <= layer.column_steps
    assert layer.kept is None or len(layer.kept) == layer.ciphertexts_out
    assert layer.noise_bits(insecure_parameters(N, layer.transform_lengths)) > 0
    assert (layer.transformed_values == 0) == (layer.transform_lengths == {1})


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_layer_is_its_fields(layer: Layer) -> None:
    """Public data: frozen, plain, and all that there is to two equal layers."""
    assert is_dataclass(layer)
    assert json.loads(json.dumps(asdict(layer)))["shape"] == asdict(SHAPE)
    again = type(layer)(**{field.name: getattr(layer, field.name) for field in fields(layer)})
    assert again == layer
    assert hash(again) == hash(layer)
    with pytest.raises(AttributeError, match="cannot assign"):
        layer.block_size = 1


UNPLANNED = LinearShape(4, 4, 8, 6, 3, 1, 1)


def test_what_is_known_before_planning_is_the_shape_and_the_block_size() -> None:
    layer, factor = unplanned(UNPLANNED, 2), unplanned_factor(UNPLANNED)
    assert (layer.shape, layer.block_size) == (UNPLANNED, 2)
    assert (factor.shape, factor.block_size) == (UNPLANNED, 1)
    assert op.MatMul(factor, factor).groups == 1
    assert copy.deepcopy(layer) == layer == UnplannedLayer(UNPLANNED, 2) != factor


@pytest.mark.parametrize("member", ["rotations", "circuit", "column_steps", "ring_degree"])
def test_everything_else_is_refused(member: str) -> None:
    with pytest.raises(AttributeError, match=f"a layer that is not planned yet has no {member}"):
        getattr(unplanned(UNPLANNED, 2), member)


def test_it_has_no_cost() -> None:
    with pytest.raises(RuleError, match="a layer must be planned before its cost is known: got unplanned"):
        operation_cost(op.Linear(unplanned(UNPLANNED, 2)), UNPLANNED.output_shape, COUNTED, LINKS["local"])
