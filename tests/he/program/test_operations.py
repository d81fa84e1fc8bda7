"""What holds for every operation, and that one which is none of them is an error wherever it is met."""

from collections.abc import Callable
from dataclasses import dataclass
from types import UnionType
from typing import Any, get_args

import numpy as np
import pytest

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program import bounds, interpreter, manifest, rearrangement, validate
from privcirnet.he.program import operations as op
from privcirnet.he.program.program import Node, Program
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import paper_layer

LAYER = paper_layer(LinearShape.gemm(2, 4, 4), 1, 64)
EVERY: dict[op.Operation, tuple[int, int, bool]] = {
    op.Input(0, 1): (0, 0, False),
    op.Linear(LAYER): (1, 1, True),
    op.Truncate(1): (1, 0, False),
    op.Scale(1): (1, 0, False),
    op.Square(): (1, 0, False),
    op.ClientAided("relu", 0, 0): (1, 0, False),
    op.Add(): (2, 0, False),
    op.Concat(3): (3, 0, False),
    op.SumPool(2): (1, 0, False),
    op.Product(LAYER, LAYER): (2, 2, True),
    op.Flatten(): (1, 0, False),
    op.Tokens(): (1, 0, True),
    op.Take(0): (1, 0, False),
    op.Channels(0, 1): (1, 0, False),
    op.Transpose(1): (1, 0, False),
    op.Gather((1, 1, 1), 0, (), ()): (1, 0, False),
}
"""Operation -> (values that it takes, encrypted layers, whether it has weights)."""


def test_one_namespace_has_every_operation() -> None:
    assert {type(operation) for operation in EVERY} == set(get_args(op.Operation))
    classes = {name for name in op.__all__ if isinstance(getattr(op, name), type)}
    assert classes == {cls.__name__ for cls in get_args(op.Operation)}
    assert isinstance(op.Operation, UnionType)


def test_facts_of_every_operation() -> None:
    found = {o: (op.arity(o), len(op.encrypted_layers(o)), op.has_weights(o)) for o in EVERY}
    assert found == EVERY


@dataclass(frozen=True)
class Doubled:
    """An operation that no part of the package knows."""


DOUBLED: Any = Doubled()
X, Y = Node("x", op.Input(0, 1), (), (1, 2, 2), 0), Node("y", DOUBLED, ("x",), (1, 2, 2), 0)
PARAMETERS = insecure_parameters(64)
UNKNOWN: dict[str, Callable[[], object]] = {
    "arity": lambda: op.arity(DOUBLED),
    "encrypted layers": lambda: op.encrypted_layers(DOUBLED),
    "has weights": lambda: op.has_weights(DOUBLED),
    "rearrange": lambda: rearrangement.rearrange(DOUBLED, np.zeros((1, 2, 2))),
    "shape after": lambda: rearrangement.shape_after(DOUBLED, (1, 2, 2)),
    "unfit": lambda: rearrangement.unfit(DOUBLED, (1, 2, 2)),
    "interpreter": lambda: interpreter.apply(DOUBLED, [np.zeros((1, 2, 2), dtype=np.int64)]),
    "bounds": lambda: bounds.prove_nodes((X, Y), {}),
    "check": lambda: validate.check(Program((X, Y), PARAMETERS)),
    "description": lambda: manifest.to_dict(Program((X, Y), PARAMETERS)),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_operation_is_an_error_everywhere(case: str) -> None:
    with pytest.raises(AssertionError, match="unreachable"):
        UNKNOWN[case]()
