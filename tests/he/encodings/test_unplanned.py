import copy

import pytest

from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.unplanned import UnplannedLayer, unplanned, unplanned_factor
from privcirnet.he.planning.cost import operation_cost
from privcirnet.he.planning.profile import COUNTED, LINKS
from privcirnet.he.program import operations as op

SHAPE = LinearShape(4, 4, 8, 6, 3, 1, 1)


def test_what_is_known_before_planning_is_the_shape_and_the_block_size() -> None:
    layer, factor = unplanned(SHAPE, 2), unplanned_factor(SHAPE)
    assert (layer.shape, layer.block_size) == (SHAPE, 2)
    assert (factor.shape, factor.block_size) == (SHAPE, 1)
    assert op.Product(factor, factor).groups == 1
    assert copy.deepcopy(layer) == layer == UnplannedLayer(SHAPE, 2) != factor


@pytest.mark.parametrize("member", ["rotations", "circuit", "column_steps", "ring_degree"])
def test_everything_else_is_refused(member: str) -> None:
    with pytest.raises(AttributeError, match=f"a layer that is not planned yet has no {member}"):
        getattr(unplanned(SHAPE, 2), member)


def test_it_has_no_cost() -> None:
    with pytest.raises(AssertionError):
        operation_cost(op.Linear(unplanned(SHAPE, 2)), SHAPE.output_shape, COUNTED, LINKS["local"])
