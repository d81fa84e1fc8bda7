"""CinS encoding and its layers against plain convolutions; Table 1's counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.ckks import cins, convolution
from privcirnet.errors import RuleError
from privcirnet.he.ckks import embedding
from privcirnet.he.ckks.evaluator import Cleartext
from tests.he.ckks_toys import random


def convolved(images, weights, stride=1):
    """A convolution with padding (f - 1) / 2, pixel by pixel."""
    outputs, _, f, _ = weights.shape
    radius, size = f // 2, images.shape[1]
    padded = np.pad(images, ((0, 0), (radius, radius), (radius, radius)))
    rows = range(0, size, stride)
    found = [
        [[(padded[:, y : y + f, x : x + f] * weights[k]).sum() for x in rows] for y in rows] for k in range(outputs)
    ]
    return np.array(found)


def unpadded(slices, width, size):
    return slices.reshape(len(slices), width, width)[:, :size, :size]


@given(st.integers(0, 4), st.integers(1, 5), st.integers(0, 2**32))
def test_products_of_slots_are_local_negacyclic_convolutions(log_slices, log_length, seed):
    """Equation 7, the local convolution theorem."""
    first, second = random(seed, 2, 1 << log_slices, 1 << log_length)
    products = []
    for x, y in zip(first, second, strict=True):
        whole = np.convolve(x, y)
        low = np.zeros(x.size)
        for place, value in enumerate(whole):
            low[place % x.size] += value if place < x.size else -value
        products.append(low)
    found = cins.decode(cins.encode(first) * cins.encode(second), first.shape[1])
    np.testing.assert_allclose(found, products, atol=1e-9)


def test_one_slice_is_the_coefficient_encoding():
    values = random(0, 1, 64)
    assert np.array_equal(cins.encode(values), embedding.to_slots(values[0]))


def test_slices_move_by_rotations():
    slices = random(1, 8, 16)
    np.testing.assert_allclose(cins.decode(np.roll(cins.encode(slices), -3 * 8), 16), np.roll(slices, -3, axis=0))


@pytest.mark.parametrize(("kernel", "width"), [(1, 8), (3, 8), (5, 8)])
def test_a_convolution_is_its_diagonals(kernel, width):
    images, weights, size = random(2, 4, 6, 6), random(3, 4, 4, kernel, kernel), 6
    ((linear,),) = convolution.convolution(weights, 4, width)
    found = cins.decode(linear(cins.encode(cins.pad(images, width))), width**2)
    np.testing.assert_allclose(unpadded(found, width, size), convolved(images, weights), atol=1e-9)


def test_more_channels_are_blocks():
    images, weights = random(4, 8, 6, 6), random(5, 4, 8, 3, 3)
    (row,) = convolution.convolution(weights, 4, 8)
    inputs = [cins.encode(cins.pad(images[start : start + 4], 8)) for start in (0, 4)]
    found = cins.decode(row[0](inputs[0]) + row[1](inputs[1]), 64)
    np.testing.assert_allclose(unpadded(found, 8, 6), convolved(images, weights), atol=1e-9)


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_strided_convolution_is_one_over_phases(kernel):
    """Algorithm 2: decomposition in slot encoding, then a convolution with stride 1; outputs are dense."""
    images, weights = random(6, 2, 14, 14), random(7, 8, 2, kernel, kernel)
    slices = cins.pad(images, 16)
    slots = (slices[:, :128] + 1j * slices[:, 128:]).reshape(-1)
    moved = convolution.decomposition(2, 2, 16)(slots).reshape(8, 32)
    phases = np.concatenate([moved.real, moved.imag], axis=1)
    np.testing.assert_array_equal(unpadded(phases, 8, 7)[3], images[0, 1::2, 1::2])
    ((linear,),) = convolution.strided(weights, 2, 8, 8)
    found = cins.decode(linear(cins.encode(phases)), 64)
    np.testing.assert_allclose(unpadded(found, 8, 7), convolved(images, weights, 2), atol=1e-9)


def test_depthwise_and_pools_take_one_product_and_no_rotation():
    images, weights = random(8, 4, 6, 6), random(9, 4, 3, 3)
    dense = np.zeros((4, 4, 3, 3))
    dense[np.arange(4), np.arange(4)] = weights
    slots = cins.encode(cins.pad(images, 8))
    for linear, want in (
        (convolution.depthwise(weights, 8), convolved(images, dense)),
        (convolution.average_pool(2, 4, 8), images.reshape(4, 3, 2, 3, 2).mean(axis=(2, 4))),
        (convolution.average_pool(6, 4, 8), images.mean(axis=(1, 2))[:, None, None]),
    ):
        assert (linear.products, linear.rotations) == (1, 0)
        found, step = unpadded(cins.decode(linear(slots), 64), 8, 6), 6 // want.shape[1]
        np.testing.assert_allclose(found[:, ::step, ::step], want, atol=1e-9)


def test_a_fully_connected_layer_takes_values_from_their_places():
    weights, values = random(10, 3, 5), random(11, 5)
    slots, places = np.zeros(64, dtype=complex), [3, 9, 10, 40, 63]
    slots[places] = values
    found = convolution.fully_connected(weights, places, 64)(slots)
    np.testing.assert_allclose(found[:3], weights @ values)


@pytest.mark.parametrize("slices", [4, 16, 64])
def test_table_1_counts_of_cins(slices):
    """C products and 2 sqrt(C) - 2 rotations; depthwise one product."""
    clear, slots = Cleartext(), np.zeros(slices * 8, dtype=complex)
    ((linear,),) = convolution.convolution(random(12, slices, slices, 3, 3), slices, 4)
    clear.map(slots, linear)
    assert clear.counts == {"pmult": slices, "rotate": 2 * round(slices**0.5) - 2}
    assert linear.slots * 2 == slices * 4**2, "n real values in a message"


def test_a_kernel_must_fit():
    assert cins.width_for(14, 3) == cins.width_for(15, 3) == 16
    assert cins.width_for(16, 3) == 32
    cins.pad(np.zeros((1, 15, 15)), 16, 3)
    with pytest.raises(RuleError, match=r"must fit the width of a slice: got 16 \+ 1 for 16; use 32"):
        cins.pad(np.zeros((1, 16, 16)), 16, 3)
