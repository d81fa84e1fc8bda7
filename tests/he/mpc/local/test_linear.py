"""Linear layers in clear against Python's integers, for every kind of layer, and with the largest numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values, dense_weight
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.mpc.local.linear import ClearLinear, clear_linear
from privcirnet.he.mpc.local.products import EXACT_BITS, split
from privcirnet.he.program import operations as op
from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.operation import Weights
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads
from tests.he.exchange import slow_convolution
from tests.he.layer_examples import depthwise_shapes, layers, shapes

T = modular.largest_prime(60, 2)
MODULI = [modular.largest_prime(bits, 2) for bits in (4, 20, 41, 54, 60, 61)]


def python_convolution(x: np.ndarray, weight: np.ndarray, shape: LinearShape, t: int) -> Residues:
    """The sum over the window in Python's integers: x (C, H, W), weight (K, C/groups, R, R)."""
    return (slow_convolution(shape, weight.astype(object), x.astype(object)) % t).astype(np.uint64)


def residues(shape: tuple[int, ...], t: int, seed: int = 0) -> Residues:
    """Random ones, with the extremes of signed residues among them."""
    found = np.random.default_rng(seed).integers(0, t, shape, dtype=np.uint64)
    found.reshape(-1)[:4] = np.array([t - 1, 0, t // 2, t // 2 + 1], dtype=np.uint64)[: found.size]
    return found


def weights(shape: LinearShape, b: int, largest: int = 127, seed: int = 0) -> Values:
    return np.random.default_rng(seed).integers(-largest, largest + 1, shape.weight_shape(b))


def check(shape: LinearShape, b: int, t: int, rows: Values | None = None, share: Residues | None = None) -> None:
    rows = weights(shape, b) if rows is None else rows
    share = residues(shape.input_shape, t) if share is None else share
    bias = residues(shape.output_shape, t, 1)
    wanted = python_convolution(share, dense_weight(rows, shape, b), shape, t)
    layer = ClearLinear(shape, b, rows, t)
    assert (layer.apply(share) == wanted).all()
    assert (layer.apply(share, bias) == modular.add(wanted, bias, t)).all()


@given(shapes(), st.sampled_from(MODULI), st.integers(0, 20))
def test_any_convolution(found: tuple[LinearShape, int], t: int, bits: int) -> None:
    shape, b = found
    check(shape, b, t, weights(shape, b, 1 << bits))


@given(depthwise_shapes(), st.sampled_from(MODULI))
def test_any_depthwise_convolution(shape: LinearShape, t: int) -> None:
    check(shape, 1, t)


@given(layers())
def test_what_the_interpreter_says(layer: SpectralLayer) -> None:
    rows, random = weights(layer.shape, layer.block_size), np.random.default_rng(0)
    x, bias = (
        random.integers(-128, 128, layer.shape.input_shape),
        random.integers(-1000, 1000, layer.shape.out_channels),
    )
    wanted = apply(op.Linear(layer), [x], Weights(rows, bias))
    own = residues(x.shape, T)
    other = modular.subtract(modular.residues(x, T), own, T)
    constants = np.broadcast_to(modular.residues(bias, T)[:, None, None], wanted.shape)
    clear = clear_linear(layer, rows, T)
    total = modular.add(clear.apply(own), clear.apply(other, constants), T)
    assert (modular.centered(total, T) == wanted).all()


@pytest.mark.parametrize("b", [1, 2, 4, 8, 16, 32, 64, 3, 12])
@pytest.mark.parametrize("kernel", [1, 3])
def test_block_sizes(b: int, kernel: int) -> None:
    channels = 2 * b, 3 * b
    check(LinearShape(5, 3, *channels, kernel, 1, kernel // 2), b, T)


@pytest.mark.parametrize("threads_", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "shape",
    [
        LinearShape(48, 40, 8, 16, 3, 1, 1),
        LinearShape(45, 45, 64, 8, 3, 2, 1),
        LinearShape(1, 1, 64, 40),
        LinearShape.gemm(2000, 40, 8),
        LinearShape(30, 30, 48, 48, 3, 1, 1, groups=3),
        LinearShape(30, 30, 48, 48, 3, 2, 1, groups=48),
    ],
)
def test_work_in_parts(shape: LinearShape, threads_: int) -> None:
    b = 1 if shape.groups == 48 else 4
    with threads.using(threads_):
        check(shape, b, T)


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("bits", [1, 8, 12, 20, 30])
@pytest.mark.parametrize("extreme", ["half", "above", "least", "most"])
def test_the_largest_numbers_in_every_place(t: int, bits: int, extreme: str) -> None:
    shape, b = LinearShape(3, 3, 32, 16, 3, 1, 1), 8
    value = {"half": t // 2, "above": t // 2 + 1, "least": 1, "most": t - 1}[extreme]
    for sign in (1, -1):
        rows = np.full(shape.weight_shape(b), sign << bits)
        check(shape, b, t, rows, np.full(shape.input_shape, value, dtype=np.uint64))


@pytest.mark.parametrize("t", MODULI[1:])
@pytest.mark.parametrize("count", [2, 3])
def test_the_largest_weights_of_a_split(t: int, count: int) -> None:
    """Sums that only just fit: of any residues, and of those whose digits are the largest."""
    largest = (1 << EXACT_BITS) // ((1 << (-(-t.bit_length() // count) - 1)) + 1)
    assert split(t, largest).count == count
    assert split(t, largest + 1).count > count
    width = split(t, largest).width
    edges = {sign * (i << width) + (j << (width - 1)) for i in range(4) for j in (-1, 1) for sign in (-1, 1)}
    values = np.array([edge % t for edge in edges], dtype=np.uint64)
    share = np.concatenate([values, residues((1000,), t)])[None, :, None]
    for sign in (1, -1):
        check(LinearShape.gemm(share.size, 1, 1), 1, t, np.full((1, 1, 1, 1), sign * largest), share)


def test_shares_may_be_strided_and_are_not_changed() -> None:
    shape = LinearShape(6, 6, 8, 8, 3, 1, 1)
    share = residues((16, 6, 12), T)[::2, :, ::2]
    before = share.copy()
    layer = ClearLinear(shape, 4, weights(shape, 4), T)
    assert (layer.apply(share) == layer.apply(before)).all()
    assert (share == before).all()


def test_weights_beyond_exact_sums_are_refused() -> None:
    shape = LinearShape(1, 1, 4, 4)
    with pytest.raises(RuleError, match="absolute weights of an output must add up to less than 2"):
        ClearLinear(shape, 1, np.full(shape.weight_shape(1), 1 << 51), T)
