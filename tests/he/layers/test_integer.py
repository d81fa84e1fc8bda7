"""Exact arithmetic in clear, against direct sums and against the training side."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.layers import integer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.nn.functional import circulant
from tests.he.exchange import random_input, random_rows, slow_convolution
from tests.he.layer_examples import grouped_shapes


@given(grouped_shapes(), st.integers(0, 2**32 - 1))
def test_convolution_is_the_loop(shape: LinearShape, seed: int) -> None:
    """Any groups, kernel, stride, padding and rectangular map."""
    weight, x = random_rows(shape, 1, seed), random_input(shape, seed + 1)
    before = weight.copy(), x.copy()
    found = integer.convolve(x, weight, shape)
    assert found.dtype == np.int64
    assert (found == slow_convolution(shape, weight, x)).all()
    image, kernel = (torch.from_numpy(v.astype(np.float64)) for v in (x, weight))
    (top, bottom), (left, right) = (window.ends for window in shape.windows)
    padded = torch.nn.functional.pad(image, (left, right, top, bottom))
    same = torch.nn.functional.conv2d(padded, kernel, None, shape.strides, 0, 1, shape.groups)
    assert (same.numpy() == found).all()
    assert (weight == before[0]).all()
    assert (x == before[1]).all()


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_is_exact_where_doubles_are_not(groups: int) -> None:
    """A sum that is odd and over 2^53."""
    shape = LinearShape(1, 1, 2 * groups, 2 * groups, groups=groups)
    x = np.full(shape.input_shape, (1 << 27) + 1, dtype=np.int64)
    weight = np.full((2 * groups, 2, 1, 1), (1 << 27) - 1, dtype=np.int64)
    weight[:, 1] = 2
    expected = ((1 << 27) + 1) * ((1 << 27) - 1) + 2 * ((1 << 27) + 1)
    assert float(expected) != expected
    assert integer.convolve(x, weight, shape).ravel().tolist() == [expected] * 2 * groups


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_expansion_is_the_training_side_s(b: int) -> None:
    rows = np.random.default_rng(0).integers(-9, 9, (3, 2 * b, 3, 3))
    assert (integer.expand_rows(rows, b) == circulant.expand(torch.from_numpy(rows), b).numpy()).all()


@given(st.lists(st.integers(-(2**55), 2**55), min_size=1), st.integers(0, 50))
def test_round_shift_is_to_nearest(values: list[int], bits: int) -> None:
    found = integer.round_shift(np.array(values), bits).tolist()
    assert found == [(2 * v + (1 << bits)) // (2 << bits) for v in values]
    assert all(abs(v - (f << bits)) * 2 <= 1 << bits for v, f in zip(values, found, strict=True))


def test_nothing_is_left_of_a_word_that_is_shifted_by_more():
    """As where a branch is so small beside its sum that its step is 2^70 times finer."""
    values = np.array([-(2**63), -1, 0, 2**63 - 1])
    for bits in (64, 70, 200):
        assert integer.round_shift(values, bits).tolist() == [0] * 4


def test_sum_pool_leaves_the_rest_out() -> None:
    x = np.arange(2 * 5 * 4).reshape(2, 5, 4)
    assert integer.sum_pool(x, (2, 2)).tolist() == [
        [[int(x[c, i : i + 2, j : j + 2].sum()) for j in (0, 2)] for i in (0, 2)] for c in range(2)
    ]
    assert integer.sum_pool(x, (5, 3)).tolist() == [[[int(x[c, :, :3].sum())]] for c in range(2)]
