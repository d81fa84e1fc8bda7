"""The encodings that CinS is compared with: they are right, and take what Table 1 says or what is written beside it."""

import numpy as np
import pytest

from papers.ckks import cins, compared
from privcirnet.he.ckks import embedding
from privcirnet.he.ckks.evaluator import Cleartext
from tests.he.ckks_toys import random
from tests.papers.ckks.test_cins import convolved, unpadded

TABLE = {  # at C = 8, f = 3, with what is written in the module
    ("slot", False): (2 * 9 * 8, 2 * 9 + 2 * 8 - 4 - 2),
    ("coefficient", False): (2 * 8 - 1 + 1, 8 - 1),
    ("slot", True): (2 * 9, 2 * 9 - 2),
    ("coefficient", True): (2 * 8 - 1 + 1, 8 - 1),
    ("cins", True): (1, 0),
}
C, SIZE, WIDTH, F = 8, 6, 8, 3
IMAGES, WEIGHTS = random(0, C, SIZE, SIZE), random(1, C, C, F, F)
SLICES = cins.pad(IMAGES, WIDTH, F)


@pytest.mark.parametrize(("case", "want"), TABLE.items())
def test_counts_of_table_1(case, want):
    found = compared.counts(case[0], C, F, depthwise=case[1])
    assert (found["pmult"], found["rotate"]) == want


def test_slot_encoding_convolves():
    inputs, clear = SLICES.reshape(2, -1).astype(complex), Cleartext()
    maps = compared.slot_convolution(WEIGHTS, WIDTH)
    outputs = [clear.map(inputs[0], row[0]) + clear.map(inputs[1], row[1]) for row in maps]
    found = unpadded(np.concatenate(outputs).real.reshape(C, -1), WIDTH, SIZE)
    np.testing.assert_allclose(found, convolved(IMAGES, WEIGHTS), atol=1e-9)
    assert clear.counts["pmult"] == 2 * F**2 * C
    shared = 2 * (F**2 - 1)  # rotations of the inputs serve both outputs
    assert clear.counts["rotate"] - shared == 2 * F**2 + 2 * C - 4 - 2


def test_slot_encoding_convolves_depthwise():
    own, dense, clear = random(2, C, F, F), np.zeros((C, C, F, F)), Cleartext()
    dense[np.arange(C), np.arange(C)] = own
    maps, inputs = compared.slot_depthwise(own, WIDTH), SLICES.reshape(2, -1).astype(complex)
    outputs = [clear.map(slots, linear) for slots, linear in zip(inputs, maps, strict=True)]
    found = unpadded(np.concatenate(outputs).real.reshape(C, -1), WIDTH, SIZE)
    np.testing.assert_allclose(found, convolved(IMAGES, dense), atol=1e-9)
    assert clear.counts == {"pmult": 2 * F**2, "rotate": 2 * F**2 - 2}


@pytest.mark.parametrize("depthwise", [False, True])
def test_coefficient_encoding_convolves(depthwise):
    """Table 1 has 2 C - 1 products: all but one of the C masks."""
    weights, clear = WEIGHTS.copy(), Cleartext()
    if depthwise:
        weights[~np.eye(C, dtype=bool)] = 0
    slots = embedding.to_slots(compared.coefficients(SLICES))
    products = [clear.map(slots, linear) for linear in compared.coefficient_products(weights, WIDTH)]
    assert clear.counts == {"pmult": C, "rotate": 0}
    polynomials = [embedding.to_coefficients(product).astype(complex) for product in products]
    found = compared.gather(clear, polynomials, polynomials[0].size).real.reshape(-1, C).T
    np.testing.assert_allclose(unpadded(found, WIDTH, SIZE), convolved(IMAGES, weights), atol=1e-9)
    assert (clear.counts["pmult"], clear.counts["rotate"]) == (2 * C - 1 + 1, C - 1)
