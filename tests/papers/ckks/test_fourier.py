"""Factors of the transform between encodings, alone, together, and in a small network without bootstrapping."""

import numpy as np
import pytest

from papers.ckks import cins, convolution
from papers.ckks.fused import to_coefficients
from privcirnet.errors import RuleError
from privcirnet.he.ckks import embedding, linear_map
from privcirnet.he.ckks.evaluator import Cleartext
from tests.he.ckks_toys import Pair, applied, in_slots, insecure_ckks, random, simulate, slot_order
from tests.papers.ckks.test_cins import convolved, unpadded

SLOTS, LENGTH = 64, 8


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_slot_encoding_becomes_cins_and_back(levels):
    slices = random(0, SLOTS // LENGTH, 2 * LENGTH)
    found = applied(linear_map.to_cins(LENGTH, SLOTS, levels), in_slots(slices))
    np.testing.assert_allclose(found, cins.encode(slices), atol=1e-12)
    np.testing.assert_allclose(applied(linear_map.from_cins(LENGTH, SLOTS, levels, 2j), found), 2j * in_slots(slices))


def test_cins_becomes_coefficient_encoding():
    """S_(n/4) ... S_l of S_(l/2) ... S_1 is the whole transform: the slots of the polynomial with these coefficients."""
    values = random(1, 1, 2 * SLOTS)
    slots = in_slots(values)
    whole = applied(linear_map.to_cins(SLOTS, SLOTS, 1), slots)
    np.testing.assert_allclose(whole, embedding.to_slots(values[0]), atol=1e-12)
    partly = applied(linear_map.to_cins(LENGTH, SLOTS, 1), slots)
    np.testing.assert_allclose(to_coefficients(LENGTH, SLOTS)(partly), whole, atol=1e-12)


def test_a_convolution_absorbs_a_factor_for_nothing():
    """Equation 11: StoC2 and the convolution have diagonals at multiples of l, so that their product has no more."""
    weights = random(2, 8, 8, 3, 3)
    ((linear,),) = convolution.convolution(weights, 8, 4)
    slots = random(3, SLOTS) + 1j * random(4, SLOTS)
    fused = linear_map.composed([linear, to_coefficients(LENGTH, SLOTS)])
    assert (fused.products, fused.rotations) == (linear.products, linear.rotations)
    np.testing.assert_allclose(fused(slots), to_coefficients(LENGTH, SLOTS)(linear(slots)))


def test_a_network_runs_encrypted():
    """Convolution in CinS, slot encoding, square, fully connected layer in slot encoding: five levels."""
    slots, channels, size, width = 512, 16, 7, 8
    images, weights, dense = random(5, channels, size, size), random(6, 16, 16, 3, 3) / 12, random(7, 4, 16 * 49) / 28
    ((linear,),) = convolution.convolution(weights, channels, width)
    back = linear_map.from_cins(width**2 // 2, slots, 2, 0.5)
    order = np.arange(slots) // 32 * 64 + slot_order(32, slots)
    place = np.empty((2, channels * width**2), dtype=int)
    for part in range(2):
        place[part, order + 32 * part] = np.arange(slots)
    pixel = np.arange(channels * width**2).reshape(channels, width, width)[:, :size, :size].reshape(-1)
    halves = [np.flatnonzero(pixel % 64 // 32 == part) for part in range(2)]
    last = [convolution.fully_connected(dense[:, own], place[i, pixel[own]], slots) for i, own in enumerate(halves)]

    def network(machine, value):
        machine.layer = "conv"
        value = machine.bounded(machine.map(value, linear), 120)
        machine.layer = "slots"
        for each in back:
            value = machine.map(value, each)
        other = machine.conjugate(value)
        both = machine.add(value, other), machine.times_i(machine.subtract(other, value))
        parts = [machine.bounded(part, 8) for part in both]
        machine.layer = "square"
        squares = [machine.multiply(part, part) for part in parts]
        machine.layer = "fc"
        return machine.add(*(machine.map(part, each) for part, each in zip(squares, last, strict=True)))

    with pytest.raises(RuleError, match=r"must fit its modulus: .* in layer 'fc' at level 0"):
        simulate(network, insecure_ckks(5, 3, first=45), 256.0)
    with pytest.raises(RuleError, match=r"the bound that its circuit states: got .* for 120 in layer 'conv'"):
        network(Cleartext(), np.full(slots, 1e3 + 0j))

    parameters, encoded = insecure_ckks(5, 3), cins.encode(cins.pad(images, width, 3))
    clear = network(Cleartext(), encoded)
    want = dense @ (convolved(images, weights) ** 2).reshape(-1)
    np.testing.assert_allclose(clear[:4], want, atol=1e-9)
    reply, simulator = simulate(network, parameters, float(np.abs(encoded).max()))
    pair = Pair.of(parameters)
    found = pair.slots(network(pair.machine(simulator.keys), pair.fresh(encoded)))
    assert np.abs(found - clear).max() < 2**-reply.precision_bits
    assert unpadded(cins.pad(images, width), width, size).shape == images.shape
