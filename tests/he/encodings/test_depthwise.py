import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.encodings import depthwise, packing
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.coefficient_layout import Grid
from privcirnet.he.encodings.depthwise import GroupTile
from privcirnet.he.encodings.shape import LinearShape
from tests.he.grouped import Exchange, random_input, random_weights, shapes, slow_grouped
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters

PAPER = LinearShape(14, 14, 576, 576, 3, 1, 0, 576)
"""(14, 14, 576, 3), a convolution without padding."""


@given(shapes(), st.sampled_from(INSECURE_RING_DEGREES))
def test_group_convolution_equals_direct_sums(shape: LinearShape, n: int) -> None:
    check(shape, n)


@given(shapes(20, 1, 9), st.sampled_from(INSECURE_RING_DEGREES))
def test_depthwise_convolution_equals_direct_sums(shape: LinearShape, n: int) -> None:
    check(shape, n)


def check(shape: LinearShape, n: int) -> None:
    layer, weight, x = CoefficientLayer(shape, 1, n, "falcon"), random_weights(shape), random_input(shape)
    exchange = Exchange(layer, weight, insecure_parameters(n))
    assert (exchange.run(x) == slow_grouped(shape, weight, x)).all()
    assert exchange.server.counts["pmult"] <= layer.pmults


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
