import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.layout import (
    Axis,
    LinearShape,
    SpectralLayout,
    lanes_to_slots,
    next_power_of_two,
    slots_to_lanes,
)

AXES = [
    Axis(size, kernel, stride, padding)
    for size, kernel, stride in itertools.product(range(1, 10), (1, 3, 5, 7), (1, 2, 3))
    for padding in range(kernel)
    if kernel <= size + 2 * padding
]


def slow_correlation(x: np.ndarray, w: np.ndarray, axis: Axis) -> list[int]:
    """y[u] = sum_r w[r] x[stride u + r - padding], nothing outside."""

    def at(i: int) -> int:
        return int(x[i]) if 0 <= i < axis.size else 0

    starts = range(-axis.padding, axis.size + axis.padding - axis.kernel + 1, axis.stride)
    return [sum(int(w[r]) * at(start + r) for r in range(axis.kernel)) for start in starts]


def cyclic_correlation(x: np.ndarray, w: np.ndarray, axis: Axis, length: int) -> list[int] | None:
    """The same from phase images on a cycle of that length; None if they do not fit it."""
    total = np.zeros(length, dtype=np.int64)
    for phase, taps in axis.taps.items():
        part = x[phase :: axis.stride][: axis.read_size(phase)]
        if len(part) > length or axis.outputs > length:
            return None
        image = np.zeros(length, dtype=np.int64)
        image[: len(part)] = part
        for r, offset in taps:
            total += w[r] * np.roll(image, -offset)
    return total[: axis.outputs].tolist()


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_length_is_exact_and_smallest(axis: Axis) -> None:
    random = np.random.default_rng(0)
    x, w = random.integers(1, 1000, axis.size), random.integers(1, 1000, axis.kernel)
    expected = slow_correlation(x, w, axis)
    assert len(expected) == axis.outputs
    assert cyclic_correlation(x, w, axis, axis.length) == expected
    assert cyclic_correlation(x, w, axis, axis.length + 5) == expected
    if axis.length > 1:
        assert cyclic_correlation(x, w, axis, axis.length - 1) != expected
    assert axis.transformed == any(o for taps in axis.taps.values() for _, o in taps)


@pytest.mark.parametrize(
    ("axis", "length"),
    [
        (Axis(16, 3, 1, 1), 17),
        (Axis(16, 5, 1, 2), 18),
        (Axis(16, 1, 1, 0), 16),
        (Axis(16, 3, 2, 1), 9),
        (Axis(5, 3, 2, 1), 3),
        (Axis(8, 2, 2, 0), 4),
        (Axis(9, 2, 2, 0), 4),
    ],
)
def test_known_lengths(axis: Axis, length: int) -> None:
    """he.md 2.1: one run of zeros serves both borders."""
    assert axis.length == length


def test_phases_that_no_tap_reads_are_not_sent() -> None:
    layout = SpectralLayout(LinearShape(8, 8, 4, 4, kernel=1, stride=2), 2, 8192)
    assert layout.phases == [(0, 0)]
    assert layout.blocks_in == 2
    layout = SpectralLayout(LinearShape(8, 8, 4, 4, kernel=3, stride=2, padding=1), 2, 8192)
    assert layout.phases == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert layout.blocks_in == 8


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_shapes(kernel: int, stride: int) -> None:
    shape = LinearShape(9, 7, 3, 5, kernel, stride, kernel // 2)
    assert shape.input_shape == (3, 9, 7)
    assert shape.output_shape == (5, -(-9 // stride), -(-7 // stride))
    assert shape.kind == ("gemm" if kernel == stride == 1 else "conv")
    assert LinearShape.gemm(9, 3, 5) == LinearShape(9, 1, 3, 5)


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
    turned = np.roll(rows, -width // 2, axis=2).reshape(count, -1)
    assert (slots_to_lanes(turned, lanes) == np.roll(values, -1, axis=1)).all()


def test_next_power_of_two() -> None:
    assert [next_power_of_two(n) for n in (1, 2, 3, 4, 5, 289, 512, 513)] == [1, 2, 4, 4, 8, 512, 512, 1024]


def test_lane_arithmetic() -> None:
    layout = SpectralLayout(LinearShape(16, 16, 64, 64, 3, 1, 1), 8, 8192)
    assert layout.extent == layout.spectral_extent == (17, 17)
    assert (layout.lane_length, layout.lane_slots, layout.lanes) == (8 * 289, 4096, 2)
    assert layout.transform_lengths == {8, 17}
    gemm = SpectralLayout(LinearShape.gemm(256, 192, 576), 4, 8192)
    assert (gemm.extent, gemm.spectral_extent, gemm.transform_lengths) == ((256, 1), (1, 1), {4, 1})
    assert (gemm.lane_slots, gemm.lanes, gemm.blocks_in, gemm.blocks_out) == (1024, 8, 48, 144)
    one = SpectralLayout(LinearShape.gemm(1, 16, 16), 1, 8192)
    assert (one.lane_slots, one.lanes) == (2, 4096)


@pytest.mark.parametrize("b", [0, -1, 3, 8])
def test_block_size_must_divide(b: int) -> None:
    with pytest.raises(RuleError, match=rf"block size must divide both weight dimensions: got {b} for \(8, 4\)"):
        SpectralLayout(LinearShape(4, 4, 4, 8), b, 8192)


def test_a_lane_must_fit() -> None:
    with pytest.raises(RuleError, match="must fit one ciphertext: got 9248 values for 8192 slots"):
        SpectralLayout(LinearShape(33, 33, 8, 8, 3, 1, 1), 8, 8192)


@pytest.mark.parametrize(
    "sizes", [(0, 4, 1, 1), (4, 0, 1, 1), (4, 4, 0, 1), (4, 4, 1, 0), (4, 4, 1, 1, 0), (4, 4, 1, 1, 1, 0)]
)
def test_dimensions_must_be_positive(sizes: tuple[int, ...]) -> None:
    with pytest.raises(RuleError, match="dimensions must be positive"):
        LinearShape(*sizes)


@pytest.mark.parametrize(("kernel", "padding"), [(5, 0), (3, 3), (3, -1), (1, 1)])
def test_kernel_and_padding_must_fit(kernel: int, padding: int) -> None:
    with pytest.raises(RuleError, match=f"got kernel {kernel}, padding {padding}, input 4 x 4"):
        LinearShape(4, 4, 1, 1, kernel, 1, padding)


@pytest.mark.parametrize("groups", [0, 3, 4])
def test_groups_divide_both_channels(groups: int) -> None:
    assert LinearShape(4, 4, 8, 6, 3, 1, 1, groups=2).groups == 2
    with pytest.raises(RuleError, match=f"groups must divide the input and the output channels: got {groups} groups"):
        LinearShape(4, 4, 8, 6, 3, 1, 1, groups)
