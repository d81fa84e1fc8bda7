"""How maps are split and where they sit among coefficients; what comes of it is tested with each encoding."""

import pytest

from privcirnet.he.encodings.coefficient_layout import Grid, balanced, tile_sizes
from privcirnet.he.encodings.shape import LinearShape


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
