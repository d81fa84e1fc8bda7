"""Falcon's complex transforms: the circuit is what the integers say, near the layer, and costs more than exact ones."""

import numpy as np
import pytest

from papers.falcon2020.circuits.engines import evaluator_of
from papers.falcon2020.circuits.evaluator import encode, run
from papers.layouts.falcon_quantized import QuantizedLayer, exact_circuit
from privcirnet.errors import DoesNotFit
from privcirnet.he.bfv import engines
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring import modular
from tests.he.insecure import insecure_parameters
from tests.papers.falcon2020.exact_networks import layer

N = 1024


def outputs(made: QuantizedLayer, circuit, x: np.ndarray) -> np.ndarray:
    """What the clear-text engine leaves at the outputs' slots, as signed integers."""
    parameters, values, places = insecure_parameters(N, plain_bits=45), made.layout.values, made.layout.outputs
    client, server, t = (
        engines.CleartextClient(parameters),
        evaluator_of(engines.CleartextServer)(parameters),
        parameters.plain_modulus,
    )
    keys = server.load(client.keys(circuit.rotations), circuit.rotations)
    slots = modular.residues(np.where(values >= 0, x[values], 0), t)
    value = server.receive(client.encrypt(slots))
    (found,) = run(circuit, encode(circuit, server, 1), [value], server, keys)
    decrypted = client.decrypt(server.answer(found, np.zeros_like(found.values), keys))
    at = [int(np.flatnonzero(places == output)[0]) for output in range(made.layer.shape.out_channels)]
    return modular.centered(decrypted, t)[at]


@pytest.mark.parametrize(("inputs", "channels", "k"), [(20, 12, 4), (13, 5, 8), (9, 7, 4)])
def test_the_circuit_is_what_the_integers_say_and_near_the_layer(inputs, channels, k):
    made = QuantizedLayer(layer("fc", LinearShape.gemm(1, inputs, channels), k, 7), N)
    x = np.random.default_rng(1).integers(-20, 21, inputs)
    found = outputs(made, made.circuit(), x)
    assert found.tolist() == made.evaluate(x).tolist()
    assert 2 * np.abs(found).max() < 1 << made.result_bits(20)
    wanted = made.layer.matrix @ x
    assert np.abs(found / made.scale - wanted).max() < 0.05 * np.abs(wanted).max()
    assert not np.array_equal(np.rint(found / made.scale), wanted), "rounding is lost for good"


def test_exact_transforms_lose_nothing_and_take_half_of_the_rotations():
    made = QuantizedLayer(layer("fc", LinearShape.gemm(1, 20, 12), 4, 7), N)
    x, exact = np.random.default_rng(1).integers(-20, 21, 20), exact_circuit(made.layer, N)
    assert outputs(made, exact, x).tolist() == (made.layer.matrix @ x + made.layer.bias).tolist()
    ours, theirs = exact.counts, made.circuit().counts
    assert ours["rotate"] < theirs["rotate"] <= 2 * ours["rotate"]
    assert ours["pmult"] < theirs["pmult"]


def test_a_layer_with_too_many_blocks_is_refused():
    with pytest.raises(DoesNotFit, match="must fit a row"):
        QuantizedLayer(layer("fc", LinearShape.gemm(1, 200, 12), 4, 7), 64).circuit()
