import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.encodings import cheetah
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.coefficient_layout import Grid, grids, weight_polynomial
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.ring import batching
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters
from tests.he.layers import grouped_shapes


@given(st.integers(1, 100), st.integers(1, 16), st.integers(1, 16), st.sampled_from(INSECURE_RING_DEGREES))
def test_ciphertexts_of_a_gemm(d1: int, d2: int, d3: int, n: int) -> None:
    layer = CoefficientLayer(LinearShape.gemm(d1, d2, d3), 1, n, "cheetah")
    grid, tile = layer.placement.grid, cheetah.best_tile(layer.shape, n)
    assert grid.pitch * tile.planes * tile.outputs <= n
    assert layer.ciphertexts_in == -(-d1 // grid.pitch) * -(-d2 // tile.planes)
    assert layer.ciphertexts_out == -(-d1 // grid.pitch) * -(-d3 // tile.outputs)


def test_polynomials_written_out() -> None:
    """Golden: two 2 x 2 maps under a 3 x 3 kernel with padding 1, one zero column and one zero row each."""
    shape, n = LinearShape(2, 2, 2, 1, 3, 1, 1), 64
    layer, t = CoefficientLayer(shape, 1, n, "cheetah"), insecure_parameters(n).plain_modulus
    x = np.arange(1, 9, dtype=np.uint64).reshape(2, 2, 2)
    polynomial = batching.slots_to_coefficients(layer.encode_input(x, t), t)[0]
    assert polynomial[:18].tolist() == [1, 2, 0, 3, 4, 0, 0, 0, 0, 5, 6, 0, 7, 8, 0, 0, 0, 0]
    assert not polynomial[18:].any()
    weight = np.arange(1, 19).reshape(1, 2, 3, 3)
    (factor,) = layer.placement.factors
    filters = weight_polynomial(layer.placement.grid, factor, weight, n)
    assert filters[:18].tolist() == [18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert layer.kept[0].tolist() == [9 + 4, 9 + 5, 9 + 7, 9 + 8]


@given(grouped_shapes(1, 6, 8), st.sampled_from(INSECURE_RING_DEGREES))
def test_no_tile_is_cheaper(shape: LinearShape, n: int) -> None:
    """Against every split of the maps and every D, E that fit."""
    if not grids(shape, n):
        return
    costs = []
    for rows in range(1, shape.rows.outputs + 1):
        for columns in range(1, shape.columns.outputs + 1):
            grid = Grid.of(shape, rows, columns)
            planes = shape.in_channels * len(grid.phases)
            for d in range(1, min(planes, n // grid.pitch) + 1):
                up, down = -(-planes // d), -(-shape.out_channels // (n // grid.pitch // d))
                costs.append((grid.tiles * (cheetah.UP_WEIGHT * up + down), grid.tiles * up * down))
    layer = CoefficientLayer(shape, 1, n, "cheetah")
    if shape.kind == "conv":
        up, down = layer.ciphertexts_in, layer.ciphertexts_out
        assert (cheetah.UP_WEIGHT * up + down, layer.pmults) == min(costs)


def test_the_tiles_of_a_wide_layer_are_found_at_once() -> None:
    layer = CoefficientLayer(LinearShape(224, 224, 3, 64, 7, 2, 3), 1, 4096, "cheetah")
    assert (layer.ciphertexts_in, layer.ciphertexts_out, layer.pmults) == (48, 256, 3072)
