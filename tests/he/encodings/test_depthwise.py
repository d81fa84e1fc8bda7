import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.encodings import depthwise, packing
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.coefficient_layout import Grid
from privcirnet.he.encodings.depthwise import GroupTile
from privcirnet.he.encodings.packing import Packing
from privcirnet.he.encodings.shape import LinearShape
from tests.he.grouped import Exchange, random_input, random_weights, shapes, slow_grouped
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters

PAPER = LinearShape(14, 14, 576, 576, 3, 1, 0, 576)
"""(14, 14, 576, 3), a convolution without padding."""


@settings(max_examples=60)
@given(shapes(), st.sampled_from(INSECURE_RING_DEGREES))
def test_group_convolution_equals_direct_sums(shape: LinearShape, n: int) -> None:
    check(shape, n)


@settings(max_examples=60)
@given(shapes(20, 1, 9), st.sampled_from(INSECURE_RING_DEGREES))
def test_depthwise_convolution_equals_direct_sums(shape: LinearShape, n: int) -> None:
    check(shape, n)


def check(shape: LinearShape, n: int) -> None:
    layer, weight, x = CoefficientLayer(shape, 1, n, "falcon"), random_weights(shape), random_input(shape)
    exchange = Exchange(layer, weight, insecure_parameters(n))
    assert (exchange.run(x) == slow_grouped(shape, weight, x)).all()
    assert exchange.server.counts["pmult"] <= layer.pmults


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("channels", "filters"), [(4, 4), (8, 4), (8, 2), (8, 8)])
def test_the_paper_s_packing_and_the_superstring_compute_the_same(channels: int, filters: int, padding: int) -> None:
    """Both run the whole layer, in as many units as the closed form says."""
    groups, n = 20, 2048
    shape = LinearShape(4, 5, groups, groups, 3, 1, padding, groups)
    grid = Grid.of(shape, *shape.output_shape[1:])
    parts = packing.divided(channels, filters)
    rings = [packing.superstring([c for c, _ in part], channels) for part in parts]
    length = packing.closed_form_length(channels, filters)
    assert {ring for _, ring in rings} == {length}
    assert length * grid.pitch <= n
    weight, x = random_weights(shape), random_input(shape)
    for filters_of in (parts, [placed for placed, _ in rings]):
        tile = GroupTile(grid, 1, 1, Packing(tuple(range(channels)), tuple(tuple(p) for p in filters_of)))
        layer = CoefficientLayer(shape, 1, n, "falcon")
        layer.__dict__["placement"] = depthwise.place_tile(shape, tile)
        assert (Exchange(layer, weight, insecure_parameters(n)).run(x) == slow_grouped(shape, weight, x)).all()
        assert layer.ciphertexts_in == -(-groups // channels)


def test_the_paper_s_offsets_among_coefficients() -> None:
    """Its mapping, literally: offset(c') HW + O - l W - l' for weights, (offset(k') + k') HW + O + i W + j for outputs."""
    c, h, r = 4, 5, 3
    shape = LinearShape(h, h, c, c, r, 1, 0, c)
    grid = Grid.of(shape, 3, 3)
    offsets = packing.closed_form(c, c)
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
    c_x, c_w = depthwise.paper_tiling(14, 14, 576, n)
    assert (c_x, c_w) == (8, 4)
    up, down = 576 // c_x, 576 // c_w
    assert (up, down) == (72, 144)
    bits = (up * n + down * n + 576 * 196) * q
    assert bits == 8_978_688 * 8
    assert round(bits / 8e6, 2) == 8.98
    assert packing.closed_form_length(c_x, c_w) * 196 <= n
    assert packing.closed_form_length(c_x, c_w) * 225 > n, "with its padding the paper's tiling does not fit"


def test_paper_tiling_is_the_minimum() -> None:
    for height, channels, n in ((7, 960, 4096), (14, 576, 8192), (28, 192, 4096), (14, 6, 4096)):
        c_x, c_w = depthwise.paper_tiling(height, height, channels, n)
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
        depthwise.paper_tiling(65, 65, 4, 4096)


def test_our_tiles_need_fewer_ciphertexts() -> None:
    found = CoefficientLayer(PAPER, 1, 4096, "falcon")
    assert (found.ciphertexts_in, found.ciphertexts_out) == (96, 96)
    same = CoefficientLayer(LinearShape(14, 14, 576, 576, 3, 1, 1, 576), 1, 4096, "falcon")
    assert (same.ciphertexts_in, same.ciphertexts_out, same.pmults) == (96, 96, 96)


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
    packing_of = packing.side_by_side(2, units)
    assert packing_of is not None
    layer = CoefficientLayer(shape, 1, 2048, "falcon")
    layer.__dict__["placement"] = depthwise.place_tile(shape, GroupTile(grid, planes, outputs, packing_of))
    spread = -(-4 // planes)
    assert (layer.ciphertexts_in, layer.pmults) == (3 * spread, layer.ciphertexts_out * spread)
    weight, x = random_weights(shape), random_input(shape)
    assert (Exchange(layer, weight, insecure_parameters(2048)).run(x) == slow_grouped(shape, weight, x)).all()


def test_a_dense_layer_that_fits_is_one_unit() -> None:
    shape = LinearShape(4, 4, 3, 2, 3, 1, 1)
    layer = CoefficientLayer(shape, 1, 256, "falcon")
    weight, x = random_weights(shape), random_input(shape)
    assert (Exchange(layer, weight, insecure_parameters(256)).run(x) == slow_grouped(shape, weight, x)).all()


def test_a_dense_layer_is_what_cheetah_makes_of_it() -> None:
    shape = LinearShape(4, 4, 300, 2, 3, 1, 1)
    counts = {
        (layer.ciphertexts_in, layer.ciphertexts_out, layer.pmults)
        for layer in (CoefficientLayer(shape, 1, 256, name) for name in ("falcon", "cheetah"))
    }
    assert len(counts) == 1
    with pytest.raises(RuleError, match=r"a kernel's window must fit one polynomial: got kernel 3 .* larger ring"):
        _ = CoefficientLayer(LinearShape(4, 4, 3, 3, 3, 1, 1, 3), 1, 2, "falcon").placement


def test_large_maps_are_cut() -> None:
    shape = LinearShape(40, 24, 6, 6, 3, 1, 1, 6)
    layer = CoefficientLayer(shape, 1, 256, "falcon")
    assert layer.placement.grid.tiles > 1
    weight, x = random_weights(shape), random_input(shape)
    assert (Exchange(layer, weight, insecure_parameters(256)).run(x) == slow_grouped(shape, weight, x)).all()
    assert np.concatenate(layer.kept).size == 6 * 40 * 24
