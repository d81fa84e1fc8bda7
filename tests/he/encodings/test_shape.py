import numpy as np
import pytest
import torch

from privcirnet.errors import RuleError
from privcirnet.he.encodings.shape import Axis, LinearShape


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


def test_stored_weights_are_the_first_rows_of_blocks() -> None:
    assert LinearShape(4, 4, 24, 48, 3, 1, 1).weight_shape(8) == (6, 24, 3, 3)
    assert LinearShape(4, 4, 24, 48, 3, 1, 1, groups=3).weight_shape(8) == (6, 8, 3, 3)
    assert LinearShape(14, 14, 576, 576, 3, 1, 1, groups=576).weight_shape(1) == (576, 1, 3, 3)


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
