"""Circulant convolutions in CinS: the same as the expanded ones, with fewer products."""

import numpy as np
import pytest

from papers.ckks import cins, circulant, convolution
from papers.ckks.fused import to_coefficients
from privcirnet.errors import RuleError
from privcirnet.he.ckks import linear_map
from tests.he.ckks_toys import Pair, insecure_ckks, random

WIDTH, SLICES, LENGTH = 8, 16, 32


@pytest.mark.parametrize("b", [1, 2, 4, 8, 16])
def test_a_transform_over_channels_divides_the_products(b):
    weights, images = random(b, 32 // b, 48 // b, b, 3, 3), random(9, 48, 7, 7)
    dense = convolution.convolution(circulant.expanded(weights), SLICES, WIDTH)
    found = circulant.convolution(weights, SLICES, WIDTH)
    there, back = (circulant.transform(b, SLICES, LENGTH, inverse=inverse) for inverse in (False, True))
    inputs = cins.encode(cins.pad(images, WIDTH, 3)).reshape(3, -1)
    spectra = [there(each) for each in inputs]
    for mine, theirs in zip(found, dense, strict=True):
        want = sum(linear(each) for linear, each in zip(theirs, inputs, strict=True))
        np.testing.assert_allclose(back(sum(m(s) for m, s in zip(mine, spectra, strict=True))), want, atol=1e-9)
        assert {m.products for m in mine} == {SLICES // b}
        assert {m.products for m in theirs} == {SLICES}
    assert there.products == back.products == (2 * b - 1 if b < SLICES else b)


def test_the_way_back_vanishes_into_the_next_factor():
    """F^-1 and StoC2 have diagonals at multiples of l."""
    back, last = circulant.transform(4, SLICES, LENGTH, inverse=True), to_coefficients(LENGTH, 512)
    assert linear_map.composed([back, last]).products == last.products == SLICES


@pytest.mark.parametrize(
    ("b", "ciphertexts", "dense", "want"), [(4, 1, 64, 30), (8, 1, 64, 38), (4, 8, 4096, 1136), (8, 8, 4096, 752)]
)
def test_products_of_a_layer(b, ciphertexts, dense, want):
    """64 channels a ciphertext, as many ciphertexts of outputs as of inputs: papers/ckks.md's table."""
    slices, length = 64, 2
    products = circulant.convolution(np.ones((slices // b, slices // b, b, 1, 1)), slices, 2)[0][0].products
    once = circulant.transform(b, slices, length).products
    assert ciphertexts**2 * products + 2 * ciphertexts * once == want
    assert ciphertexts**2 * slices == dense


def test_it_runs_encrypted():
    weights = random(1, 4, 4, 4, 3, 3) / 12
    maps = [
        circulant.transform(4, SLICES, LENGTH),
        circulant.convolution(weights, SLICES, WIDTH)[0][0],
        circulant.transform(4, SLICES, LENGTH, inverse=True),
    ]
    ((dense,),) = convolution.convolution(circulant.expanded(weights), SLICES, WIDTH)
    pair, slots = Pair.of(insecure_ckks(3)), cins.encode(cins.pad(random(2, 16, 7, 7), WIDTH, 3)) / 16
    machine, value = pair.machine(set().union(*(linear.steps for linear in maps))), pair.fresh(slots)
    for linear in maps:
        value = machine.map(value, linear)
    assert np.abs(pair.slots(value) - dense(slots)).max() < 2**-22


def test_what_is_refused():
    with pytest.raises(RuleError, match="must divide the channels of a ciphertext: got 3 for 16"):
        circulant.transform(3, SLICES, LENGTH)
    with pytest.raises(RuleError, match="must be full: got 24 and 16 for 16; add channels of zeros"):
        circulant.convolution(np.ones((6, 4, 4, 1, 1)), SLICES, WIDTH)
