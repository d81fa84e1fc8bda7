"""Sizes that a description may have, at their limits; tests/he/program/test_limits.py asks for more."""

from privcirnet.he.encodings import size_limits
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.pieces import Piece
from privcirnet.he.encodings.shape import LinearShape
from tests.he.layers import paper_layer
from tests.he.program.test_limits import N, coefficient, column, gemm


def test_limits_are_inclusive() -> None:
    assert column(size_limits.MAX_TILES, 1).size_excess == ""
    assert column(4, 1, size_limits.MAX_PIECES).size_excess == ""
    pairs = LinearShape.gemm(1, size_limits.MAX_CHANNELS, size_limits.MAX_CHANNEL_PAIRS // size_limits.MAX_CHANNELS)
    for bits in (2, size_limits.MAX_WEIGHT_BITS):
        assert coefficient(pairs, bits).size_excess == ""


def test_products_are_at_most_counted() -> None:
    """The count is without what a corner saves, and never too small."""
    padded = gemm(4, 5, 3, Piece(1, 4, 8, 2))
    assert padded.pmults <= padded.most_products == 4
    both = (
        paper_layer(LinearShape.gemm(65, 24, 12), 2, N),
        CoefficientLayer(LinearShape.gemm(65, 24, 12), 2, N, "cheetah"),
    )
    assert [layer.most_products for layer in both] == [layer.pmults for layer in both]
