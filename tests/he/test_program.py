import numpy as np

from privcirnet.he import program
from privcirnet.he.planner import paper_layer
from privcirnet.he.program import Add, Input, Linear, Node, Program, Square, SumPool, Truncate, Weights
from privcirnet.he.rearrangement import Flatten
from privcirnet.he.shape import LinearShape
from tests.he.exchange import random_rows, slow_layer
from tests.he.insecure import insecure_parameters


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
    values = program.interpret(made, x)
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
    values = program.interpret(made, x, truncate=lambda node, v: -(-v >> node.operation.bits))
    assert (values["at"][0] == 2).all()
    assert (values["at"][1] == -1).all()
    assert values["x"].dtype == np.int64


def test_program_properties() -> None:
    made = residual_program()
    assert made.output.name == "flat"
    assert made.column_steps == made.linear_nodes[0][1].column_steps
