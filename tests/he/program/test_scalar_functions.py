"""Functions that are no polynomials: values and ranges."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.program import scalar_functions

TORCH = {
    "relu": torch.nn.ReLU(),
    "relu6": torch.nn.ReLU6(),
    "hardswish": torch.nn.Hardswish(),
    "gelu": torch.nn.GELU(),
    "gelu_tanh": torch.nn.GELU(approximate="tanh"),
    "silu": torch.nn.SiLU(),
    "mish": torch.nn.Mish(),
    "leakyrelu": torch.nn.LeakyReLU(),
    "sigmoid": torch.nn.Sigmoid(),
    "hardsigmoid": torch.nn.Hardsigmoid(),
    "tanh": torch.nn.Tanh(),
    "selu": torch.nn.SELU(),
    "leakyrelu(0.2)": torch.nn.LeakyReLU(0.2),
    "leakyrelu(-0.5)": torch.nn.LeakyReLU(-0.5),
    "elu(0.7)": torch.nn.ELU(0.7),
    "celu(2.0)": torch.nn.CELU(2.0),
    "softplus(3.0)": torch.nn.Softplus(3.0, 40),
    "hardtanh(-inf,0.5)": torch.nn.Hardtanh(-math.inf, 0.5),
    "hardtanh(-1.0,1.0)": torch.nn.Hardtanh(),
}


def test_every_function_is_tested() -> None:
    known = {*scalar_functions.TABULATED, *scalar_functions.WITH_NUMBERS} - {"exp", "reciprocal", "rsqrt"}
    assert {name.partition("(")[0] for name in TORCH} == known


@pytest.mark.parametrize(
    "name",
    [
        *("elu", "elu(1)", "elu(nan)", "elu(inf)", "elu(-1.0)", "elu(1.0", "elu(1.0))", "elu(1.0,1.0)", "elu()"),
        *("leakyrelu(inf)", "hardtanh(1.0,0.0)", "hardtanh(nan,1.0)", "hardtanh(0.0)", "softplus(0.0)"),
        *("elu(0x1)", "tanh(1.0)", "", "("),
    ],
)
def test_other_names_are_nobodys(name: str) -> None:
    assert scalar_functions.function_named(name) is None


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("steps", [(-6, -6), (-6, -4), (0, 0), (-3, 1)])
def test_values_are_the_functions_rounded(name: str, steps: tuple[int, int]) -> None:
    values = np.arange(-1000, 1001).reshape(3, -1, 1)
    real = TORCH[name](torch.from_numpy(values.astype(np.float64) * 2.0 ** steps[0])).numpy() * 2.0 ** -steps[1]
    found = scalar_functions.apply(name, values, *steps)
    assert found.dtype == np.int64
    assert found.shape == values.shape
    assert np.abs(found - real).max() <= 0.5 + 1e-9


def test_values_of_every_size_are_carried() -> None:
    values = np.array([-(1 << 58), 1 << 58])
    for name, function in TORCH.items():
        real = function(torch.from_numpy(values * 2.0**-40)).numpy() * 2.0**40
        assert scalar_functions.apply(name, values, -40, -40).tolist() == np.floor(real + 0.5).tolist()


@pytest.mark.parametrize("name", TORCH)
@given(st.integers(-90, 60), st.integers(0, 90), st.integers(0, 3))
def test_ranges_are_attained_and_never_left(name: str, low: int, width: int, bits: int) -> None:
    values = np.arange(low, low + width + 1)
    inside = scalar_functions.apply(name, values, -4, -4 + bits)
    least, most = scalar_functions.ends(name, values[:1], values[-1:], -4, -4 + bits)
    assert least[0] <= inside.min()
    assert (most[0], inside.min() - least[0] <= 1) == (inside.max(), True)
