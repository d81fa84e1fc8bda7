import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.encodings.layout import SpectralLayout, lanes_to_slots, slots_to_lanes
from privcirnet.he.encodings.shape import LinearShape


@given(st.integers(1, 3), st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4, 16]))
def test_lanes_and_slots(count: int, lanes: int, width: int) -> None:
    values = np.arange(count * lanes * width, dtype=np.uint64).reshape(count, lanes, width)
    slots = lanes_to_slots(values)
    assert slots.shape == (count, lanes * width)
    assert (slots_to_lanes(slots, lanes) == values).all()
    rows = slots.reshape(count, 2, -1)
    for lane in range(lanes):
        left = lane * width // 2
        picture = [rows[:, row, left : left + width // 2] for row in (0, 1)]
        assert (np.concatenate(picture, axis=1) == values[:, lane]).all()
    rotated = np.roll(rows, -width // 2, axis=2).reshape(count, -1)
    assert (slots_to_lanes(rotated, lanes) == np.roll(values, -1, axis=1)).all()


def test_a_whole_map_is_one_tile_and_a_token_one_each() -> None:
    conv = SpectralLayout.whole(LinearShape(16, 16, 64, 64, 3, 1, 1), 8)
    assert (conv.tile, conv.tiles) == ((16, 16), 1)
    assert conv.extent == conv.spectral_extent == (17, 17)
    assert (conv.cell, conv.blocks_in, conv.blocks_out) == (8 * 289, 8, 8)
    assert conv.spectrum_shape == (1, 8, 8, 8, 17, 17)
    assert (conv.transform_lengths, conv.transformed_axes) == ({8, 17}, [-3, -2, -1])
    gemm = SpectralLayout.whole(LinearShape.gemm(256, 192, 576), 4)
    assert (gemm.tile, gemm.tiles) == ((1, 1), 256)
    assert (gemm.extent, gemm.spectral_extent) == ((1, 1), (1, 1))
    assert (gemm.cell, gemm.blocks_in, gemm.blocks_out) == (4, 48, 144)
    assert (gemm.transform_lengths, gemm.transformed_axes) == ({4, 1}, [-3])
    bolt = SpectralLayout.whole(LinearShape.gemm(256, 192, 576), 1)
    assert (bolt.cell, bolt.transform_lengths, bolt.transformed_axes) == (1, {1}, [])


def test_cells_of_tiles_and_groups() -> None:
    tiled = SpectralLayout(LinearShape(16, 12, 64, 32, 3, 1, 1), 8, (8, 5))
    assert (tiled.tiles, tiled.extent, tiled.cell) == (2 * 3, (10, 7), 8 * 70)
    assert tiled.transform_lengths == {8, 10, 7}
    depthwise = SpectralLayout.whole(LinearShape(14, 14, 576, 576, 3, 1, 1, groups=576), 1)
    assert (depthwise.cell, depthwise.blocks_in, depthwise.blocks_out) == (225, 1, 1)
    assert depthwise.spectrum_shape == (576, 1, 1, 1, 15, 15)
    grouped = SpectralLayout.whole(LinearShape(8, 8, 32, 16, 3, 2, 1, groups=4), 2)
    assert (grouped.blocks_in, grouped.blocks_out) == (4 * 4, 2)
    one_axis = SpectralLayout(LinearShape(8, 1, 2, 2, 2, 2, 1), 1, (4, 1))
    assert one_axis.transformed_axes == [-2, -1]


@pytest.mark.parametrize(("b", "groups"), [(0, 1), (-1, 1), (5, 1), (8, 1), (4, 2)])
def test_block_size_must_fit_a_group(b: int, groups: int) -> None:
    with pytest.raises(RuleError, match=rf"block size must .* both weight dimensions: got {b} for \(8, 4\)|got 4 for"):
        SpectralLayout(LinearShape(4, 4, 4, 8, groups=groups), b, (1, 1))


@pytest.mark.parametrize("tile", [(0, 4), (4, 0), (5, 4), (4, 4), (-1, 1)])
def test_a_tile_must_lie_in_the_output(tile: tuple[int, int]) -> None:
    with pytest.raises(RuleError, match=rf"at least one output .*: got \({tile[0]}, {tile[1]}\) of \(4, 3\)"):
        SpectralLayout(LinearShape(4, 3, 4, 4, 3, 1, 1), 2, tile)
