"""Bootstrapping at a toy ring degree: its polynomial, its levels, and a ciphertext that gets new ones."""

import numpy as np
import pytest
from numpy.polynomial import chebyshev as series

from privcirnet.he.leveled.ckks import chebyshev
from privcirnet.he.leveled.ckks.bootstrapping import Bootstrapping
from privcirnet.he.leveled.ckks.cleartext import Cleartext
from privcirnet.he.leveled.ckks.simulator import Simulator
from tests.he.leveled.ckks.toys import Pair, insecure_ckks, random_slots


@pytest.mark.parametrize("degree", [1, 5, 7, 8, 31, 63])
def test_polynomials_are_right_and_take_the_levels_that_are_said(degree):
    coefficients, x = np.random.default_rng(degree).normal(size=degree + 1), np.linspace(-1, 1, 512)
    clear, simulator = Cleartext(), Simulator(insecure_ckks(9))
    found = chebyshev.Polynomial(clear, x.astype(complex), degree)(coefficients)
    np.testing.assert_allclose(found, series.chebval(x, coefficients), atol=1e-9)
    estimate = chebyshev.Polynomial(simulator, simulator.fresh(), degree)(coefficients)
    assert 9 - estimate.level <= chebyshev.levels_of(degree)
    assert clear.counts["multiply"] <= 2 * degree**0.5 + degree.bit_length()


def test_a_ciphertext_gets_new_levels():
    parameters = insecure_ckks(18, 6, scale_bits=57, first=60)
    refresh = Bootstrapping(parameters, to_coefficients=2, to_slots=3)
    assert 2**-refresh.failure_bits >= 2 * 1024 * np.exp(-(refresh.multiples**2) / 2 / ((1 + 2 * 1024 / 3) / 12))
    slots = random_slots(0) * 0.9
    clear = np.abs(refresh(Cleartext(), slots) - slots).max()
    assert clear < 2**-20
    simulator = Simulator(parameters)
    estimate = refresh(simulator, simulator.fresh(level=2))
    assert estimate.level == parameters.levels - refresh.levels == 3
    pair = Pair.of(parameters)
    low = pair.server.receive(pair.client.encrypt(slots, level=2), 2)
    found = refresh(pair.machine(simulator.steps), low)
    assert found.level == estimate.level
    errors = np.abs(pair.slots(found) - slots)
    assert errors.max() < 2**-18 < clear + 2**-estimate.precision_bits
    assert np.sqrt((errors**2).mean()) < 2**-22
