"""Planes of bits against bits of integers."""

import numpy as np
import pytest

from privcirnet.he.mpc.kernels.planes import values_into
from privcirnet.he.mpc.ot.session import planes
from tests.he.mpc.transfers import bits_of


@pytest.mark.parametrize("bits", [1, 5, 16, 17, 40, 64])
def test_planes_are_the_bits_of_values_and_back(bits: int) -> None:
    values = np.random.default_rng(bits).integers(0, 2**64, 192, dtype=np.uint64)
    found = planes(values, bits)
    assert all((bits_of(plane) == values >> np.uint64(j) & np.uint64(1)).all() for j, plane in enumerate(found))
    back = np.empty_like(values)
    values_into(back, found)
    assert (back == values & np.uint64(2**bits - 1)).all()
