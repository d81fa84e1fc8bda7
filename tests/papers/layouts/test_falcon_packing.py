"""Falcon's closed form and tiling: its printed numbers, and that our packing computes the same in as many units."""

import pytest

from papers.coefficients import depthwise, depthwise_packing
from papers.coefficients.depthwise import GroupTile
from papers.coefficients.depthwise_packing import Packing
from papers.coefficients.layer import CoefficientLayer
from papers.coefficients.layout import Grid
from papers.layouts import falcon_packing as falcon
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from tests.he.exchange import Party, random_input, random_rows, slow_convolution
from tests.he.insecure import insecure_parameters
from tests.papers.coefficients.test_depthwise_packing import is_exact, padded_filters_are_in, word

EVEN = [2, 4, 6, 8, 10, 18, 32]


def test_the_paper_s_example() -> None:
    """Section IV-B: W_3 000 W_0 0 W_2 00 W_1 0."""
    offsets = falcon.closed_form(4, 4)
    drawn = word([(c, o) for c, o in enumerate(offsets)], falcon.closed_form_length(4, 4))
    assert drawn == [3, None, None, None, 0, None, 2, None, None, 1, None]


@pytest.mark.parametrize("c", EVEN)
def test_closed_form_is_the_formula(c: int) -> None:
    offsets = falcon.closed_form(c, c)
    for i in range(c):
        assert offsets[i] == ((c + 2) * (c - 1 - i) if i >= c / 2 else c + i * (c + 1))
    assert falcon.closed_form_length(c, c) == c + 1 + (c // 2 - 1) * (c + 2)


@pytest.mark.parametrize("c", EVEN)
def test_closed_form_and_superstring_are_right_and_as_long(c: int) -> None:
    members, length = list(range(c)), falcon.closed_form_length(c, c)
    offsets = falcon.closed_form(c, c)
    placed, ring = depthwise_packing.superstring(members, c)
    assert ring == length
    for found in (sorted(enumerate(offsets), key=lambda pair: pair[1]), placed):
        assert padded_filters_are_in(word(found, length), members, c)
        both = Packing(tuple(members), (tuple(found),))
        assert is_exact(both, length, whole=True)
        assert is_exact(both, length, whole=False)
        assert not is_exact(both, length - 1, whole=True)


@pytest.mark.parametrize(("channels", "filters"), [(4, 2), (8, 4), (8, 2), (12, 4), (12, 6), (30, 10)])
def test_divided_closed_form(channels: int, filters: int) -> None:
    parts = falcon.divided(channels, filters)
    length = falcon.closed_form_length(channels, filters)
    assert sorted(c for part in parts for c, _ in part) == list(range(channels))
    assert {len(part) for part in parts} == {filters}
    found = Packing(tuple(range(channels)), tuple(map(tuple, parts)))
    assert is_exact(found, length, whole=False)
    for part in parts:
        assert padded_filters_are_in(word(part, length), [c for c, _ in part], channels)
        assert depthwise_packing.superstring([c for c, _ in part], channels)[1] == length
    assert length <= (channels + 2) * filters / 2 - 1, "the paper's constraint"


def test_what_it_is_for() -> None:
    for channels, filters in ((5, 5), (4, 2), (7, 7)):
        with pytest.raises(RuleError, match="an even number of filters, as many as channels"):
            falcon.closed_form(channels, filters)
    for channels, filters in ((7, 4), (9, 3)):
        with pytest.raises(RuleError, match="even number of filters that divides"):
            falcon.divided(channels, filters)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("channels", "filters"), [(4, 4), (8, 4), (8, 2), (8, 8)])
def test_the_paper_s_packing_and_the_superstring_compute_the_same(channels: int, filters: int, padding: int) -> None:
    """Both run the whole layer, in as many units as the closed form says."""
    groups, n = 20, 2048
    shape = LinearShape(4, 5, groups, groups, 3, 1, padding, groups)
    grid = Grid.of(shape, *shape.output_shape[1:])
    parts = falcon.divided(channels, filters)
    rings = [depthwise_packing.superstring([c for c, _ in part], channels) for part in parts]
    length = falcon.closed_form_length(channels, filters)
    assert {ring for _, ring in rings} == {length}
    assert length * grid.pitch <= n
    weight, x = random_rows(shape, 1), random_input(shape)
    for filters_of in (parts, [placed for placed, _ in rings]):
        tile = GroupTile(grid, 1, 1, Packing(tuple(range(channels)), tuple(tuple(p) for p in filters_of)))
        layer = CoefficientLayer(shape, 1, n, "falcon")
        layer.__dict__["placement"] = depthwise.place_tile(shape, tile)
        assert (Party(layer, weight, None, insecure_parameters(n)).run(x) == slow_convolution(shape, weight, x)).all()
        assert layer.ciphertexts_in == -(-groups // channels)


def test_the_paper_s_offsets_among_coefficients() -> None:
    """Its mapping, literally: offset(c') HW + O - l W - l' for weights, (offset(k') + k') HW + O + i W + j for outputs."""
    c, h, r = 4, 5, 3
    shape = LinearShape(h, h, c, c, r, 1, 0, c)
    grid = Grid.of(shape, 3, 3)
    offsets = falcon.closed_form(c, c)
    found = Packing(tuple(range(c)), (tuple(sorted(enumerate(offsets), key=lambda pair: pair[1])),))
    place = depthwise.place_tile(shape, GroupTile(grid, 1, 1, found))
    o = h * (r - 1) + r - 1
    assert (grid.pitch, grid.origin) == (h * h, o)
    (outputs,), (factor,) = place.outputs, place.factors
    assert {int(k): int(at) for k, at in outputs} == {k: (offsets[k] + k) * h * h + o for k in range(c)}
    assert {int(k): int(at) for k, _, at in factor.filters} == {k: offsets[k] * h * h for k in range(c)}
    assert {(i, j): e for i, j, e in grid.taps(0)} == {(i, j): o - i * h - j for i in range(r) for j in range(r)}
    assert (grid.outputs(0) == [[i * h + j for j in range(3)] for i in range(3)]).all()


def test_the_paper_s_tiling_and_its_bytes() -> None:
    """72 ciphertexts up, 144 down, 72 bits a coefficient: 8.98 MB with its 14 x 14 outputs a channel (table III).

    The 196 outputs are those of a "same" convolution; the tiling is that of a map without padding.
    """
    n, q = 4096, 72
    c_x, c_w = falcon.paper_tiling(14, 14, 576, n)
    assert (c_x, c_w) == (8, 4)
    up, down = 576 // c_x, 576 // c_w
    assert (up, down) == (72, 144)
    bits = (up * n + down * n + 576 * 196) * q
    assert bits == 8_978_688 * 8
    assert round(bits / 8e6, 2) == 8.98
    assert falcon.closed_form_length(c_x, c_w) * 196 <= n
    assert falcon.closed_form_length(c_x, c_w) * 225 > n, "with its padding the paper's tiling does not fit"


def test_paper_tiling_is_the_minimum() -> None:
    for height, channels, n in ((7, 960, 4096), (14, 576, 8192), (28, 192, 4096), (14, 6, 4096)):
        c_x, c_w = falcon.paper_tiling(height, height, channels, n)
        area = height * height
        assert c_x % c_w == 0
        best = min(
            1 / x + 1 / w
            for w in [1, *range(2, channels + 1, 2)]
            for x in range(w, min(channels, n // area) + 1, w)
            if w == 1 or (x + 2) * w <= 2 * n / area + 2
        )
        assert 1 / c_x + 1 / c_w == pytest.approx(best)
    with pytest.raises(RuleError, match="a map must fit one polynomial: got 65 x 65"):
        falcon.paper_tiling(65, 65, 4, 4096)
