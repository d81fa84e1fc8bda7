"""Packed residues against Python's own big integers, and every message that is not one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.mpc.local.packing import pack, packed_size, unpack
from privcirnet.he.ring import modular
from privcirnet.he.system import threads

MODULI = (2, 3, 5, 251, 257, 65537, (1 << 41) - 21, (1 << 54) - 33, (1 << 60) - 93, (1 << 61) - 1, (1 << 64) - 59)


def as_one_number(values: list[int], t: int) -> bytes:
    """The values as the digits of one number, little-endian."""
    width = (t - 1).bit_length()
    number = sum(value << (width * i) for i, value in enumerate(values))
    return number.to_bytes(-(-width * len(values) // 8), "little")


def residues(count: int, t: int) -> modular.Residues:
    found = np.random.default_rng(count).integers(0, t, count, dtype=np.uint64)
    found[: min(2, count)] = t - 1
    found[-1:] = t - 1
    return found


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 63, 64, 65, 1000])
def test_bytes_are_one_little_endian_number(t: int, count: int) -> None:
    values = residues(count, t)
    message = pack(values, t)
    assert message == as_one_number(values.tolist(), t)
    assert len(message) == packed_size(count, t)
    assert (unpack(message, (count,), t) == values).all()


@given(st.integers(2, (1 << 61) - 1), st.data())
def test_any_values_of_any_modulus(t: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, t - 1), max_size=200))
    assert pack(np.array(values, dtype=np.uint64), t) == as_one_number(values, t)
    assert unpack(as_one_number(values, t), (len(values),), t).tolist() == values


@pytest.mark.parametrize("count", [passes.AT_ONCE, 5 * passes.AT_ONCE + 3])
def test_many_values_on_several_threads(count: int) -> None:
    t = (1 << 54) - 33
    values = residues(count, t)
    with threads.using(3):
        message = pack(values, t)
        assert (unpack(message, (count,), t) == values).all()
    assert message == as_one_number(values.tolist(), t)


def test_shapes_and_strides() -> None:
    values = residues(120, 257).reshape(4, 5, 6)[:, ::2]
    assert (unpack(pack(values, 257), values.shape, 257) == values).all()


def test_another_length_is_refused() -> None:
    message = pack(residues(100, 257), 257)
    for wrong in (b"", message[:-1], message + b"\0"):
        with pytest.raises(RuleError, match="100 packed values of 9 bits must take 113 bytes"):
            unpack(wrong, (100,), 257)


@pytest.mark.parametrize("place", [0, 63, 64, 40_000, 49_999])
def test_a_value_that_is_not_under_the_modulus_is_refused(place: int) -> None:
    values = residues(50_000, 257)
    values[place] = 257
    with pytest.raises(RuleError, match="packed values must be under their modulus"):
        unpack(as_one_number(values.tolist(), 257), (50_000,), 257)


@pytest.mark.parametrize("count", range(1, 8))
def test_each_bit_beyond_the_last_value_is_refused(count: int) -> None:
    """One spare bit is enough for a second message with the same values."""
    message = pack(np.ones(count, dtype=np.uint64), 2)
    for bit in range(count, 8):
        with pytest.raises(RuleError, match="zeros after the last one"):
            unpack(bytes([message[0] | 1 << bit]), (count,), 2)
