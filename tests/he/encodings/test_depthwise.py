import pytest

from privcirnet.he.encodings import depthwise, packing
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.coefficient_layout import Grid
from privcirnet.he.encodings.depthwise import GroupTile
from privcirnet.he.encodings.shape import LinearShape
from tests.he.exchange import Party, random_input, random_rows, slow_convolution
from tests.he.insecure import insecure_parameters


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
    weight, x = random_rows(shape, 1), random_input(shape)
    assert (Party(layer, weight, None, insecure_parameters(2048)).run(x) == slow_convolution(shape, weight, x)).all()


def test_a_dense_layer_is_what_cheetah_makes_of_it() -> None:
    shape = LinearShape(4, 4, 300, 2, 3, 1, 1)
    counts = {
        (layer.ciphertexts_in, layer.ciphertexts_out, layer.pmults)
        for layer in (CoefficientLayer(shape, 1, 256, name) for name in ("falcon", "cheetah"))
    }
    assert len(counts) == 1
