import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import Axis, LinearShape
from privcirnet.he.layers.spectral_layout import SpectralLayout, lanes_to_slots, slots_to_lanes


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


@pytest.mark.parametrize(("b", "groups"), [(0, 1), (-1, 1), (5, 1), (8, 1), (4, 2)])
def test_block_size_must_fit_a_group(b: int, groups: int) -> None:
    with pytest.raises(RuleError, match=rf"block size must .* both weight dimensions: got {b} for \(8, 4\)|got 4 for"):
        SpectralLayout(LinearShape(4, 4, 4, 8, groups=groups), b, (1, 1))


@pytest.mark.parametrize("tile", [(0, 4), (4, 0), (5, 4), (4, 4), (-1, 1)])
def test_a_tile_must_lie_in_the_output(tile: tuple[int, int]) -> None:
    with pytest.raises(RuleError, match=rf"at least one output .*: got \({tile[0]}, {tile[1]}\) of \(4, 3\)"):
        SpectralLayout(LinearShape(4, 3, 4, 4, 3, 1, 1), 2, tile)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("groups", [1, 3])
def test_shapes_are_the_training_side_s(kernel: int, stride: int, groups: int) -> None:
    shape = LinearShape(9, 7, 3, 6, kernel, stride, kernel // 2, groups)
    layer = torch.nn.Conv2d(3, 6, kernel, stride, kernel // 2, groups=groups)
    assert shape.input_shape == (3, 9, 7)
    assert shape.output_shape == tuple(layer(torch.zeros(1, 3, 9, 7)).shape[1:])
    assert shape.weight_shape(1) == tuple(layer.weight.shape)
    assert shape.kind == ("gemm" if kernel == stride == groups == 1 else "conv")


def test_a_group_for_each_channel_is_depthwise() -> None:
    assert LinearShape(4, 4, 6, 6, 3, 2, 1, groups=6).kind == "depthwise"
    assert LinearShape(4, 4, 6, 6, 1, groups=6).kind == "depthwise"
    assert LinearShape(4, 4, 6, 12, 3, groups=6).kind == "conv", "two outputs a channel"
    assert LinearShape(4, 4, 6, 6, 3, groups=3).kind == "conv"
    assert LinearShape(4, 4, 1, 1, 3).kind == "conv"


@pytest.mark.parametrize("position", range(7))
@pytest.mark.parametrize("size", [0, -1])
def test_dimensions_must_be_positive(position: int, size: int) -> None:
    """All but the padding, which may be zero."""
    sizes = [4, 4, 4, 4, 1, 1, 0, 1]
    sizes[position + (position == 6)] = size
    with pytest.raises(RuleError, match="dimensions must be positive"):
        LinearShape(*sizes)


@pytest.mark.parametrize(("kernel", "padding"), [(5, 0), (3, 3), (3, -1), (1, 1)])
def test_kernel_and_padding_must_fit(kernel: int, padding: int) -> None:
    with pytest.raises(RuleError, match=f"got kernel {kernel}, padding {padding}, input 4 x 4"):
        LinearShape(4, 4, 1, 1, kernel, 1, padding)


@pytest.mark.parametrize(("channels", "groups"), [((4, 8), 3), ((4, 6), 4), ((6, 4), 4), ((4, 4), 8)])
def test_groups_must_divide_both_channel_counts(channels: tuple[int, int], groups: int) -> None:
    into, out = channels
    with pytest.raises(RuleError, match=rf"groups must divide both .*: got {groups} for \({out}, {into}\)"):
        LinearShape(4, 4, into, out, groups=groups)


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5, 7])
def test_taps_are_the_kernel_in_phases(kernel: int, stride: int) -> None:
    """Each kernel index once, and stride a + phase = r - padding."""
    for padding in range(kernel):
        axis = Axis(11, kernel, stride, padding)
        found = [(r, stride * a + phase) for phase, taps in axis.taps.items() for r, a in taps]
        assert sorted(found) == [(r, r - padding) for r in range(kernel)]
        assert list(axis.taps) == sorted(set(axis.taps)) == sorted({(r - padding) % stride for r in range(kernel)})
        for phase, taps in axis.taps.items():
            assert axis.reach(phase) == (min(a for _, a in taps), max(a for _, a in taps))
            assert axis.stored(phase) == len(np.arange(11)[phase::stride])


def test_an_axis_is_transformed_where_taps_reach_out() -> None:
    assert not Axis(8, 1, 1, 0).transformed
    assert not Axis(8, 1, 2, 0).transformed
    assert not Axis(8, 2, 2, 0).transformed, "a kernel as large as the stride, without overlap: one product a phase"
    assert Axis(8, 3, 1, 1).transformed
    assert Axis(8, 3, 2, 1).transformed
    assert Axis(1, 3, 1, 1).transformed, "public shapes decide, whatever the map's size"
