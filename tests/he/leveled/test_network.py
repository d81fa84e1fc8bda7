"""Integer networks of leveled inference: exact beyond 64 bits, and bounds."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.leveled.network import LeveledLayer, LeveledNetwork


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


def test_rows_that_are_not_those_of_whole_blocks_are_refused():
    """845 to 100 with blocks of 8: 13 rows of 848, and not 12 of 845."""
    shape = LinearShape.gemm(1, 845, 100)
    rows, bias = np.ones(shape.weight_shape(8), dtype=np.int64), np.zeros(100, dtype=object)
    assert LeveledLayer("fc1", shape, 8, rows, bias).weight.shape == (100, 845, 1, 1)
    for wrong, short in ((rows[:-1], bias), (rows[:, :-3], bias), (rows, bias[:-1])):
        with pytest.raises(RuleError, match=r"rows and bias must have the shapes \(13, 848, 1, 1\), \(100,\): got"):
            LeveledLayer("fc1", shape, 8, wrong, short)
