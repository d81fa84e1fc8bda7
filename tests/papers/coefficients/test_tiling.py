from papers.coefficients.tiling import PaddedTiles
from privcirnet.he.layers.shape import Axis
from tests.he.layers.test_tiling import KNOWN


def test_a_line_needs_as_many_places_as_a_cycle() -> None:
    """One run of zeros serves both borders."""
    same = [axis for axis in KNOWN if axis.stride == 1]
    assert [PaddedTiles(axis, axis.outputs).length for axis in same] == [KNOWN[axis] for axis in same]


def test_a_padded_tile_brings_its_halo_and_a_whole_map_none() -> None:
    halves = PaddedTiles(Axis(8, 3, 1, 1), 4)
    assert (halves.shift, halves.top, halves.size, halves.length) == (1, 2, 6, 6)
    assert [halves.read(index, 0) for index in range(2)] == [(0, 5, 1), (3, 5, 0)]
    whole = PaddedTiles(Axis(8, 3, 1, 1), 8)
    assert (whole.shift, whole.top, whole.size, whole.length) == (0, 1, 8, 9)
    assert whole.read(0, 0) == (0, 8, 0)
    assert whole.useful_taps(0) == [(0, -1), (1, 0), (2, 1)]
    assert PaddedTiles(Axis(1, 3, 1, 1), 1).useful_taps(0) == [(1, 0)]
