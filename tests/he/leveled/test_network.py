"""Integer networks of leveled inference: exact beyond 64 bits, bounds, and what programs they come from."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.unplanned import unplanned
from privcirnet.he.leveled.network import LeveledLayer, LeveledNetwork, network_of
from privcirnet.he.params.parameters import choose
from privcirnet.he.program import operations as op
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Node, Program, Weights
from tests.he.leveled.networks import image_of, network


def extreme() -> LeveledNetwork:
    """All weights and biases at their largest, and of one sign."""
    shapes = LinearShape(28, 28, 1, 5, 5, 2, 1), LinearShape.gemm(1, 845, 100), LinearShape.gemm(1, 100, 10)
    layers = [
        LeveledLayer(f"l{i}", s, 1, np.full(s.weight_shape(1), 127), np.full(s.out_channels, 1 << 60, dtype=object))
        for i, s in enumerate(shapes)
    ]
    return LeveledNetwork(tuple(layers), 0, 16)


def test_values_are_python_integers_and_the_bound_is_reached():
    made = extreme()
    found = made.evaluate(np.full((1, 28, 28), 16))
    assert {type(value) for value in found} == {int}
    values = [16 * 127 * 25 + (1 << 60)] * 845
    hidden = 127 * sum(value**2 for value in values) + (1 << 60)
    exact = 127 * 100 * hidden**2 + (1 << 60)
    assert found[0] <= exact, "windows at the border see padding"
    assert found[0] > exact * 99 // 100
    assert made.bits == exact.bit_length() + 1


def program_of(made: LeveledNetwork, *, truncated: bool = False) -> Program:
    """The same network as nodes."""
    shape = made.layers[0].shape.input_shape
    nodes, weights, before = [Node("image", op.Input(made.low, made.high), (), shape, 0)], {}, "image"
    for layer in made.layers:
        if before != "image":
            shape = nodes[-1].shape
            kinds = [("square", op.Square()), *([("truncate", op.Truncate(1))] if truncated else [])]
            for kind, operation in kinds:
                nodes.append(Node(f"{kind}{len(nodes)}", operation, (nodes[-1].name,), shape, 0))
            flat = (int(np.prod(shape)), 1, 1)
            if shape != flat:
                nodes.append(Node(f"flatten{len(nodes)}", op.Flatten(), (nodes[-1].name,), flat, 0))
        linear = op.Linear(unplanned(layer.shape, layer.block_size))
        nodes.append(Node(layer.name, linear, (nodes[-1].name,), layer.shape.output_shape, 0))
        weights[layer.name], before = Weights(layer.rows, layer.bias.astype(np.int64)), layer.name
    return Program(tuple(nodes), choose({1}, 41), weights)


def test_a_program_s_network_is_what_its_interpreter_says():
    made = network(2, 6, 5, 3, b=4, largest=2)
    program, image = program_of(made), image_of(made)
    again = network_of(program)
    assert [layer.block_size for layer in again.layers] == [1, 4, 1]
    assert list(again.evaluate(image)) == interpret(program, image)[program.output.name].reshape(-1).tolist()


def test_rows_that_are_not_those_of_whole_blocks_are_refused():
    """845 to 100 with blocks of 8: 13 rows of 848, and not 12 of 845."""
    shape = LinearShape.gemm(1, 845, 100)
    rows, bias = np.ones(shape.weight_shape(8), dtype=np.int64), np.zeros(100, dtype=object)
    assert LeveledLayer("fc1", shape, 8, rows, bias).weight.shape == (100, 845, 1, 1)
    for wrong, short in ((rows[:-1], bias), (rows[:, :-3], bias), (rows, bias[:-1])):
        with pytest.raises(RuleError, match=r"rows and bias must have the shapes \(13, 848, 1, 1\), \(100,\): got"):
            LeveledLayer("fc1", shape, 8, wrong, short)


def test_what_is_rounded_or_does_not_alternate_is_refused():
    made = network(2, 6, 5, 3)
    with pytest.raises(RuleError, match="one square between each two: got truncate at truncate3"):
        network_of(program_of(made, truncated=True))
    program = program_of(made)
    with pytest.raises(RuleError, match="must end in a linear layer"):
        network_of(Program(program.nodes[:3], program.parameters, program.weights))
