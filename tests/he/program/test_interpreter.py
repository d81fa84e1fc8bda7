"""The interpreter against sums and products written out, and each rearrangement against its picture."""

import itertools

import numpy as np
import pytest

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program import interpreter
from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.operation import NO_ROWS, Node, Weights
from privcirnet.he.program.operations import Add, Input, Linear, MatMul, Square, SumPool, Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.program.rearrangement import (
    AsStrided,
    Flatten,
    Rearrangement,
    SliceChannels,
    Take,
    Tokens,
    Transpose,
)
from tests.he.exchange import random_rows, slow_layer
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import paper_layer


def residual_program() -> Program:
    """X -> conv -> truncate -> + -> square -> pool -> flatten, the sum with what went into a second convolution."""
    shape = LinearShape(4, 4, 2, 2, 3, 1, 1)
    layer = paper_layer(shape, 2, 256)
    size = (2, 4, 4)
    nodes = (
        Node("x", Input(-3, 3), (), size, 0),
        Node("a", Linear(layer), ("x",), size, -2),
        Node("at", Truncate(2), ("a",), size, 0),
        Node("sum", Add(), ("at", "x"), size, 0),
        Node("sq", Square(), ("sum",), size, 0),
        Node("pool", SumPool(2), ("sq",), (2, 2, 2), -2),
        Node("flat", Flatten(), ("pool",), (8, 1, 1), -2),
    )
    weights = {"a": Weights(random_rows(shape, 2), np.array([5, -6]))}
    return Program(nodes, insecure_parameters(256, {2, 5}), weights)


def test_interpreter_evaluates_every_node() -> None:
    made = residual_program()
    x = np.arange(32).reshape(2, 4, 4) % 7 - 3
    values = interpreter.interpret(made, x)
    layer, weights = made.linear_nodes[0][1], made.weights["a"]
    a = slow_layer(layer.shape, 2, weights.rows, weights.bias, x)
    total = np.floor(a / 4 + 0.5).astype(np.int64) + x
    assert (values["a"] == a).all()
    assert (values["sum"] == total).all()
    pooled = (total**2).reshape(2, 2, 2, 2, 2).sum(axis=(2, 4))
    assert (values["flat"] == pooled.reshape(8, 1, 1)).all()
    assert {n.name: values[n.name].shape for n in made.nodes} == {n.name: n.shape for n in made.nodes}


def test_interpreter_takes_what_the_parties_did() -> None:
    made = residual_program()
    x = np.zeros((2, 4, 4), dtype=np.uint8)
    values = interpreter.interpret(made, x, truncate=lambda node, v: -(-v >> node.operation.bits))
    assert (values["at"][0] == 2).all()
    assert (values["at"][1] == -1).all()
    assert values["x"].dtype == np.int64


def test_a_product_is_its_formula() -> None:
    """Number by number: y[h B + j, i] = sum over e of left[h k + e, i] right[h k + e, j] + bias."""
    groups, k, a, b = 2, 3, 2, 4
    random = np.random.default_rng(0)
    left, right = random.integers(-9, 10, (groups * k, a, 1)), random.integers(-9, 10, (groups * k, b, 1))
    shapes = LinearShape.product(left.shape, right.shape, groups), LinearShape.product(right.shape, left.shape, groups)
    operation = MatMul(*(paper_layer(shape, 1, 64) for shape in shapes))
    bias = random.integers(-9, 10, groups * b)
    found = apply(operation, [left, right], Weights(NO_ROWS, bias))
    assert found.shape == (groups * b, a, 1)
    for h, j, i in itertools.product(range(groups), range(b), range(a)):
        total = sum(int(left[h * k + e, i, 0]) * int(right[h * k + e, j, 0]) for e in range(k))
        assert found[h * b + j, i, 0] == total + bias[h * b + j]


def test_tokens_have_constants_added() -> None:
    constants = np.arange(10).reshape(2, 5)
    found = apply(Tokens(), [np.full((2, 2, 2), 100)], Weights(NO_ROWS, constants))
    assert found[..., 0].tolist() == [[0, 101, 102, 103, 104], [5, 106, 107, 108, 109]]


REARRANGED = {
    Flatten(): lambda x: x.reshape(-1),
    Take(2): lambda x: x[:, 2, 0],
    SliceChannels(1, 3): lambda x: x[1:4],
    Transpose(2): lambda x: np.stack([[x[3 * h + a, p, 0] for a in range(3)] for h in range(2) for p in range(4)]),
    AsStrided((2, 3, 1), 5, (2, 3), (0, 4)): lambda x: np.stack([x.reshape(-1)[[5, 9, 13]]] * 2),
    AsStrided((1, 4, 2), 23, (4, 2), (-1, -4)): lambda x: x[:, ::-1][::-1].reshape(6, 4)[:2].T,
    AsStrided((1, 1, 1), 7, (), ()): lambda x: x.reshape(-1)[7],
    Tokens(): lambda x: np.stack([[0, *x[c, :, 0]] for c in range(6)]),
}


@pytest.mark.parametrize("operation", REARRANGED, ids=lambda operation: type(operation).__name__)
def test_values_go_to_their_places(operation: Rearrangement) -> None:
    x = np.arange(1, 25).reshape(6, 4, 1)
    found = operation.places(x)
    assert found.shape == operation.shape_after([x.shape])
    assert found.reshape(-1).tolist() == REARRANGED[operation](x).reshape(-1).tolist()
