"""A convolution fused with bootstrapping, encrypted at a toy ring degree."""

import numpy as np

from papers.ckks import convolution
from papers.ckks.fused import FusedConvolution
from privcirnet.he.ckks.bootstrapping import Bootstrapping
from privcirnet.he.ckks.evaluator import Cleartext
from privcirnet.he.ckks.simulator import Simulator
from tests.he.ckks.test_bootstrapping import toy
from tests.he.ckks_toys import Pair, random


def test_a_convolution_is_fused_with_bootstrapping():
    """Algorithm 1: what comes out is what the convolution in a row with the bootstrapping gives, in slot encoding."""
    refresh = Bootstrapping(toy(spare=5), to_coefficients=2, to_slots=2)
    weights = random(0, 16, 16, 3, 3) / 400
    ((linear,),) = convolution.convolution(weights, 16, 8)
    layer = FusedConvolution(refresh, linear, 32, levels=2)
    assert (layer.merged.products, layer.merged.rotations) == (linear.products, linear.rotations)
    slots = np.random.default_rng(0).uniform(-1, 1, (2, 512))
    slots = slots[0] + 1j * slots[1]
    fused, clear = Cleartext(), Cleartext()
    want = layer.in_a_row(clear, slots)
    np.testing.assert_allclose(layer(fused, slots), want, atol=1e-9)
    assert fused.counts["pmult"] < clear.counts["pmult"]
    for run, level in ((layer, layer.levels_fused), (layer.in_a_row, layer.levels_in_a_row)):
        simulator, pair = Simulator(refresh.parameters), Pair.of(refresh.parameters)
        assert run(simulator, simulator.fresh(2**0.5, level)).level == 7
        fresh = pair.server.receive(pair.client.encrypt(slots, level), level)
        assert np.abs(pair.slots(run(pair.machine(simulator.keys), fresh)) - want).max() < 2**-22
