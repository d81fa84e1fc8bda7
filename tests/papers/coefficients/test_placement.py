"""Where maps sit among coefficients: how they are split, and the tiles that are cheapest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.coefficients import cheetah, depthwise, depthwise_packing
from papers.coefficients.depthwise import GroupTile
from papers.coefficients.layer import CoefficientLayer
from papers.coefficients.layout import Grid, balanced, grids, tile_sizes, weight_polynomial
from privcirnet.he.bfv import batching
from privcirnet.he.layers.shape import LinearShape
from tests.he.exchange import Party, random_input, random_rows, slow_convolution
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters
from tests.he.layer_examples import grouped_shapes


@given(st.integers(1, 100), st.integers(1, 16), st.integers(1, 16), st.sampled_from(INSECURE_RING_DEGREES))
def test_ciphertexts_of_a_gemm(d1: int, d2: int, d3: int, n: int) -> None:
    layer = CoefficientLayer(LinearShape.gemm(d1, d2, d3), 1, n, "cheetah")
    grid, tile = layer.placement.grid, cheetah.best_tile(layer.shape, n)
    assert grid.pitch * tile.planes * tile.outputs <= n
    assert layer.ciphertexts_in == -(-d1 // grid.pitch) * -(-d2 // tile.planes)
    assert layer.ciphertexts_out == -(-d1 // grid.pitch) * -(-d3 // tile.outputs)
    wide, tall = LinearShape(d1, 2, d2, d3), LinearShape.gemm(2 * d1, d2, d3)
    sent = [CoefficientLayer(shape, 1, n, "cheetah").ciphertexts_in for shape in (wide, tall)]
    assert sent[0] == sent[1], "positions are one axis"


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


@pytest.mark.parametrize(
    ("shape", "tile", "pitch"),
    [
        (LinearShape(14, 14, 1, 1, 3, 1, 1), (14, 14), 15 * 15),
        (LinearShape(14, 10, 1, 1, 5, 1, 2), (14, 10), 16 * 12),
        (LinearShape(14, 14, 1, 1, 3, 2, 1), (7, 7), 8 * 8),
        (LinearShape(14, 14, 1, 1, 3, 1, 1), (7, 14), 9 * 15),  # a tile brings its halo
    ],
)
def test_one_zero_row_and_column_serve_both_borders(shape: LinearShape, tile: tuple[int, int], pitch: int) -> None:
    assert Grid.of(shape, *tile).pitch == pitch


def test_shares_and_sizes() -> None:
    assert tile_sizes(12) == [12, 6, 4, 3, 2, 1]
    assert balanced(576, 18) == sorted({-(-576 // c) for c in range(32, 577)}, reverse=True)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_bytes_do_not_grow_with_the_group_s_size(size: int) -> None:
    """Table III: the paper's 72 ciphertexts up and 144 down for every size, or our 96 and 96, which are fewer bytes."""
    layer = CoefficientLayer(LinearShape(14, 14, 576, 576, 3, 1, 1, 576 // size), 1, 4096, "falcon")
    found = layer.ciphertexts_in, layer.ciphertexts_out, layer.pmults
    assert found == ((96, 96, 96) if size == 1 else (72, 144, 144 * size // 2))


@pytest.mark.parametrize(("planes", "outputs"), [(1, 1), (1, 2), (2, 3), (3, 1), (4, 2)])
def test_groups_that_are_spread_over_ciphertexts(planes: int, outputs: int) -> None:
    """Every split of four channels and three outputs a group; the last part of three and one is a short one."""
    shape = LinearShape(4, 5, 20, 15, 3, 1, 1, 5)
    grid = Grid.of(shape, *shape.output_shape[1:])
    units = 2048 // (grid.pitch * planes * outputs)
    packing_of = depthwise_packing.side_by_side(2, units)
    assert packing_of is not None
    layer = CoefficientLayer(shape, 1, 2048, "falcon")
    layer.__dict__["placement"] = depthwise.place_tile(shape, GroupTile(grid, planes, outputs, packing_of))
    spread = -(-4 // planes)
    assert (layer.ciphertexts_in, layer.pmults) == (3 * spread, layer.ciphertexts_out * spread)
    weight, x = random_rows(shape, 1), random_input(shape)
    assert (Party(layer, weight, None, insecure_parameters(2048)).run(x) == slow_convolution(shape, weight, x)).all()


def test_a_dense_layer_is_what_cheetah_makes_of_it() -> None:
    shape = LinearShape(4, 4, 300, 2, 3, 1, 1)
    counts = {
        (layer.ciphertexts_in, layer.ciphertexts_out, layer.pmults)
        for layer in (CoefficientLayer(shape, 1, 256, name) for name in ("falcon", "cheetah"))
    }
    assert len(counts) == 1
