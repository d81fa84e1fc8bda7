import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.functional import circulant
from privcirnet.he import program
from privcirnet.he.planner import paper_layer
from privcirnet.he.program import Add, Flatten, Input, Linear, Node, Program, Square, SumPool, Truncate, Weights
from privcirnet.he.shape import LinearShape
from tests.he.exchange import random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters


@pytest.mark.parametrize("largest", [100, 1 << 26], ids=["in float64", "in int64"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(1, 1, 0), (3, 1, 1), (3, 2, 1), (5, 3, 0), (2, 2, 1)])
def test_convolution_is_exact(kernel: int, stride: int, padding: int, groups: int, largest: int) -> None:
    shape = LinearShape(7, 6, 4, 8, kernel, stride, padding, groups)
    rows, x = random_rows(shape, 1, largest=largest), random_input(shape, largest=largest)
    found = program.convolve(x, rows, shape)
    assert found.dtype == np.int64
    assert (found == slow_layer(shape, 1, rows, np.zeros(8, dtype=np.int64), x)).all()
    if largest == 100:
        tensors = (torch.from_numpy(v.astype(np.float64)) for v in (x, rows))
        assert (torch.nn.functional.conv2d(*tensors, None, stride, padding, 1, groups).numpy() == found).all()


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_expansion_is_the_training_side_s(b: int) -> None:
    rows = np.random.default_rng(0).integers(-9, 9, (3, 2 * b, 3, 3))
    assert (program.expand_rows(rows, b) == circulant.expand(torch.from_numpy(rows), b).numpy()).all()


@given(st.lists(st.integers(-(2**55), 2**55), min_size=1), st.integers(0, 50))
def test_round_shift_is_to_nearest(values: list[int], bits: int) -> None:
    found = program.round_shift(np.array(values), bits).tolist()
    assert found == [(2 * v + (1 << bits)) // (2 << bits) for v in values]
    assert all(abs(v - (f << bits)) * 2 <= 1 << bits for v, f in zip(values, found, strict=True))


def test_sum_pool_leaves_the_rest_out() -> None:
    x = np.arange(2 * 5 * 4).reshape(2, 5, 4)
    assert program.sum_pool(x, 2).tolist() == [
        [[int(x[c, i : i + 2, j : j + 2].sum()) for j in (0, 2)] for i in (0, 2)] for c in range(2)
    ]


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
