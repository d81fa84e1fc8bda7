"""Sums of whole residues against Python's integers and against digits, up to the largest that fit into 64 bits."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.layers.integer import dense_weight
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local import linear
from privcirnet.he.mpc.local.matrix_products import MatrixProducts
from privcirnet.he.ring import modular
from privcirnet.he.system import threads
from tests.he.layer_examples import depthwise_shapes
from tests.he.mpc.local.test_linear import python_convolution, residues, weights

T = modular.largest_prime(51, 2)
MODULI = [modular.largest_prime(bits, 2) for bits in (4, 20, 41, 51, 54)]


@pytest.fixture(autouse=True)
def everywhere() -> object:
    """Dense layers are computed so on every machine."""
    with patch.object(linear, "multiplies_words", lambda: True):
        yield


def check(shape: LinearShape, t: int, largest: int = 100) -> None:
    rows, share, bias = weights(shape, 1, largest), residues(shape.input_shape, t), residues(shape.output_shape, t, 1)
    assert linear.fits(shape, 1, rows, t)
    layer, slow = linear.WholeSums(shape, rows, t), MatrixProducts(shape, 1, rows, t)
    wanted = python_convolution(share, dense_weight(rows, shape, 1), shape, t)
    assert (layer(share) == wanted).all()
    assert (layer(share, bias) == modular.add(wanted, bias, t)).all()
    assert (layer(share, bias) == slow(share, bias)).all()


@given(depthwise_shapes(), st.sampled_from(MODULI), st.integers(1, 4))
def test_any_depthwise_convolution(shape: LinearShape, t: int, count: int) -> None:
    with threads.using(count):
        check(shape, t, 10 if t >> 53 else 100)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.sampled_from(MODULI), st.integers(1, 4))
def test_any_dense_layer(into: int, out: int, side: int, t: int, count: int) -> None:
    with threads.using(count):
        check(LinearShape(side, 40, into, out), t, 10 if t >> 53 else 100)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    "shape",
    [
        LinearShape(32, 32, 40, 40, 3, 1, 1, groups=40),
        LinearShape(32, 32, 40, 40, 3, 2, 1, groups=40),
        LinearShape(32, 32, 24, 30),
        LinearShape(3, 3, 30, 70),
    ],
)
def test_work_in_parts(shape: LinearShape, count: int) -> None:
    with threads.using(count):
        check(shape, T)


DEPTHWISE = LinearShape(3, 3, 4, 4, 3, 1, 1, groups=4)
LONGER = (modular.largest_prime(56, 2), modular.largest_prime(60, 2))


@pytest.mark.parametrize(
    ("t", "shape"),
    [
        *((t, DEPTHWISE) for t in MODULI),
        *((t, LinearShape.gemm(7, inputs, 5)) for t in (*MODULI, *LONGER) for inputs in (4, 8, 21)),
    ],
)
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("value", ["half", "above", "most"])
def test_the_largest_sums_that_fit(t: int, shape: LinearShape, sign: int, value: str) -> None:
    """Of one weight a map; of four inputs that only just fit, one after the other, and reduced ones in between."""
    largest = ((1 << 63) - 1 - 3 * t) // (t // 2 + 1)
    if shape is DEPTHWISE:
        rows = np.zeros(shape.weight_shape(1), dtype=np.int64)
        rows[:, 0, 1, 1] = sign * largest
    else:
        rows = np.full(shape.weight_shape(1), sign * (largest // 4))
    share = np.full(shape.input_shape, {"half": t // 2, "above": t // 2 + 1, "most": t - 1}[value], dtype=np.uint64)
    bias = np.full(shape.output_shape, t - 1, dtype=np.uint64)
    assert linear.fits(shape, 1, rows, t)
    wanted = python_convolution(share, rows, shape, t)
    assert (linear.WholeSums(shape, rows, t)(share, bias) == modular.add(wanted, bias, t)).all()
    rows[0, 0, shape.kernel // 2, shape.kernel // 2] = sign * (largest + 1)
    assert not linear.fits(shape, 1, rows, t), "a sum or what makes it positive would not fit into 64 bits"


@pytest.mark.parametrize("stride", [1, 2])
def test_a_depthwise_layer_in_three_passes(stride: int) -> None:
    t, shape = modular.largest_prime(55, 2), LinearShape(9, 8, 6, 6, 3, stride, 1, groups=6)
    rows, share = np.full(shape.weight_shape(1), -127), np.full(shape.input_shape, t // 2, dtype=np.uint64)
    assert linear.fits(shape, 1, rows, t)
    assert len(linear.WholeSums(shape, rows, t)._passes) == 3
    bias = residues(shape.output_shape, t)
    wanted = python_convolution(share, rows, shape, t)
    assert (linear.WholeSums(shape, rows, t)(share) == wanted).all()
    assert (linear.WholeSums(shape, rows, t)(share, bias) == modular.add(wanted, bias, t)).all()
    assert not linear.fits(shape, 1, rows, modular.largest_prime(56, 2)), "that would take more passes"


def test_which_layers_have_whole_sums() -> None:
    dense = LinearShape(8, 8, 16, 16)
    assert linear.fits(dense, 1, weights(dense, 1), T)
    assert not linear.fits(dense, 4, weights(dense, 4), T)
    windows = LinearShape(8, 8, 16, 16, 3, 1, 1)
    assert not linear.fits(windows, 1, weights(windows, 1), T)
    with patch.object(linear, "multiplies_words", lambda: False):
        assert not linear.fits(dense, 1, weights(dense, 1), T)
