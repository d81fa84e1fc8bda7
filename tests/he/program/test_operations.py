"""What holds for every operation."""

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import operation_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds
from privcirnet.he.program import operations as op
from privcirnet.he.program.lookup_table import tabulated
from privcirnet.he.program.operation import KINDS, Node
from privcirnet.he.program.program import Network
from tests.he.layer_examples import paper_layer

LAYER = paper_layer(LinearShape.gemm(2, 4, 4), 1, 64)
EVERY: dict[op.Operation, tuple[int, int, bool]] = {
    op.Input(0, 1): (0, 0, False),
    op.Linear(LAYER): (1, 1, True),
    op.Truncate(1): (1, 0, False),
    op.ExactTruncate(1, 2): (1, 0, False),
    op.Scale(1): (1, 0, False),
    op.Square(): (1, 0, False),
    op.MulConstant(-3): (1, 0, False),
    op.Plus(): (1, 0, True),
    op.Add(): (2, 0, False),
    op.Concat(3): (3, 0, False),
    op.SumPool(2): (1, 0, False),
    op.SumChannels(2, 2): (1, 0, True),
    op.Center(4): (1, 0, False),
    op.MatMul(LAYER, LAYER): (2, 2, True),
    op.Flatten(): (1, 0, False),
    op.Tokens(): (1, 0, True),
    op.Take(0): (1, 0, False),
    op.SliceChannels(0, 1): (1, 0, False),
    op.Transpose(1): (1, 0, False),
    op.AsStrided((1, 1, 1), 0, (), ()): (1, 0, False),
    op.Sampled(1, 0, 1, 1): (1, 0, False),
    op.AssertRange(0, 1): (1, 0, False),
    op.ExactReLU(0): (1, 0, False),
    tabulated("gelu", 3, -3, -3, -8, 7): (1, 0, False),
    op.MaxPool((2, 2), (2, 2), (0, 0), (1, 1)): (1, 0, False),
    op.Top1(4, 0, 1): (1, 0, False),
    op.SubtractMax(1, (4, 1, 1)): (1, 0, False),
}
"""Operation -> (values that it takes, encrypted layers, whether it has weights)."""


def test_one_namespace_has_every_operation() -> None:
    """Manifests have all but composite ones."""
    kinds = {type(operation) for operation in EVERY}
    assert kinds == {getattr(op, name) for name in op.__all__} - {op.Operation}
    assert {kind for kind in kinds if not kind.composite} == set(KINDS.values())
    assert all(name == kind.kind for name, kind in KINDS.items())


def test_descriptions_tell_an_operation_from_its_node() -> None:
    """Their fields lie side by side there; a shape is the same in both."""
    of_nodes = {each.name for each in fields(Node)}
    clashes = {kind: of_nodes.intersection(each.name for each in fields(kind)) - {"shape"} for kind in KINDS.values()}
    assert not any(clashes.values())


def test_facts_of_every_operation() -> None:
    assert {o: (o.arity, len(o.layers), bool(o.tensors((4, 2, 1)))) for o in EVERY} == EVERY


@dataclass(frozen=True)
class Forgotten(op.Operation):
    """An operation that takes a round and says nothing of it."""

    kind: ClassVar[str] = "forgotten"

    local = False


def test_what_an_operation_does_not_say_is_an_error() -> None:
    x, y = Node("x", op.Input(0, 1), (), (1, 2, 2), 0), Node("y", Forgotten(), ("x",), (1, 2, 2), 0)
    with pytest.raises(NotImplementedError):
        bounds.prove(Network((x, y), {}))
    with pytest.raises(NotImplementedError, match="what forgotten costs"):
        operation_cost(y.operation, y.shape, COUNTED, LINKS["local"])
