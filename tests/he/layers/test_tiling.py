import itertools

import numpy as np
import pytest

from privcirnet.he.layers.shape import Axis
from privcirnet.he.layers.spectral_layout import CyclicTiles

AXES = [
    Axis(size, kernel, stride, padding)
    for size, kernel, stride in itertools.product(range(1, 10), (1, 3, 5, 7), (1, 2, 3))
    for padding in range(kernel)
    if kernel <= size + 2 * padding
] + [
    Axis(size, kernel, stride, padding, behind)
    for size, (kernel, padding, behind), stride in itertools.product(
        (1, 4, 9), ((2, 0, 1), (3, 0, 1), (3, 2, 0), (4, 1, 2)), (1, 2, 3)
    )
    if kernel <= size + padding + behind
]


def slow_correlation(x: np.ndarray, w: np.ndarray, axis: Axis) -> list[int]:
    """y[u] = sum_r w[r] x[stride u + r - padding], nothing outside."""

    def at(i: int) -> int:
        return int(x[i]) if 0 <= i < axis.size else 0

    behind = axis.padding if axis.behind is None else axis.behind
    starts = range(-axis.padding, axis.size + behind - axis.kernel + 1, axis.stride)
    return [sum(int(w[r]) * at(start + r) for r in range(axis.kernel)) for start in starts]


def cyclic(images: dict[int, np.ndarray], w: np.ndarray, axis: Axis) -> np.ndarray:
    """Sum over phases of cyclic correlations of (tiles, N), along N."""
    return sum(w[r] * np.roll(images[phase], -a, axis=1) for phase, taps in axis.taps.items() for r, a in taps)


def of_the_product(x: np.ndarray, w: np.ndarray, tiled: CyclicTiles) -> list[int]:
    padded = {phase: np.append(x[phase :: tiled.axis.stride], 0) for phase in tiled.axis.taps}
    images = {phase: padded[phase][tiled.sources(phase)] for phase in padded}
    assert all(image.shape == (tiled.count, tiled.length) for image in images.values())
    return cyclic(images, w, tiled.axis).reshape(-1)[tiled.output_places].tolist()


def by_hand(x: np.ndarray, w: np.ndarray, axis: Axis, tile: int, length: int) -> list[int] | None:
    """The same tiles on cycles of any length, put there value by value; None where two share a place."""
    found: list[int] = []
    for start in range(0, axis.outputs, tile):
        count, images = min(tile, axis.outputs - start), {}
        for phase, taps in axis.taps.items():
            image, taken = np.zeros((1, length), dtype=np.int64), set[int]()
            read = {u + a for u in range(count) for _, a in taps}
            for m in range(min(read), max(read) + 1):
                position = (start + m) * axis.stride + phase
                if 0 <= start + m and position < axis.size:
                    if m % length in taken:
                        return None
                    taken.add(m % length)
                    image[0, m % length] = x[position]
            images[phase] = image
        found += cyclic(images, w, axis)[0, :count].tolist()
    return found


@pytest.mark.parametrize("kernel", sorted({axis.kernel for axis in AXES}))
def test_every_tile_size_is_exact_at_the_smallest_length(kernel: int) -> None:
    random = np.random.default_rng(0)
    for axis in (axis for axis in AXES if axis.kernel == kernel):
        x, w = random.integers(1, 1000, axis.size), random.integers(1, 1000, axis.kernel)
        expected = slow_correlation(x, w, axis)
        assert len(expected) == axis.outputs, axis
        for tile in range(1, axis.outputs + 1):
            assert_smallest(CyclicTiles(axis, tile), x, w, expected)


def assert_smallest(tiled: CyclicTiles, x: np.ndarray, w: np.ndarray, expected: list[int]) -> None:
    """Right at its length, wrong at every shorter one."""
    axis, tile = tiled.axis, tiled.tile
    assert tiled.count == len(range(0, axis.outputs, tile)), tiled
    assert of_the_product(x, w, tiled) == expected, tiled
    assert by_hand(x, w, axis, tile, tiled.length) == expected, tiled
    for shorter in range(tile, tiled.length):
        assert by_hand(x, w, axis, tile, shorter) != expected, f"length {shorter} would do for {tiled}"


KNOWN = {
    Axis(16, 3, 1, 1): 17,
    Axis(16, 5, 1, 2): 18,
    Axis(16, 7, 1, 3): 19,
    Axis(16, 1, 1, 0): 16,
    Axis(16, 3, 1, 0): 16,
    Axis(16, 3, 2, 1): 9,
    Axis(5, 3, 2, 1): 3,
    Axis(8, 2, 2, 0): 4,
    Axis(9, 2, 2, 0): 4,
    Axis(112, 3, 1, 1): 113,
}


def test_known_lengths_without_tiles() -> None:
    """docs/mathematics.md, "Transform lengths": one run of zeros serves both borders."""
    assert {axis: CyclicTiles(axis, axis.outputs).length for axis in KNOWN} == KNOWN
