"""The transform between slots and coefficients in several levels, and back."""

import numpy as np
import pytest

from privcirnet.he.leveled.ckks import embedding, fourier
from tests.he.leveled.ckks.toys import applied, in_slots, random

SLOTS = 64


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_values_in_slots_become_coefficients_and_come_back(levels):
    values = random(0, 1, 2 * SLOTS)
    found = applied(fourier.to_cins(SLOTS, SLOTS, levels), in_slots(values))
    np.testing.assert_allclose(found, embedding.to_slots(values[0]), atol=1e-12)
    back = applied(fourier.from_cins(SLOTS, SLOTS, levels, 2j), found)
    np.testing.assert_allclose(back, 2j * in_slots(values), atol=1e-12)
