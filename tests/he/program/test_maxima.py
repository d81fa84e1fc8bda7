"""Maxima, where they are, sums of channels: what they come to and are in clear, and bounds that hold."""

from dataclasses import replace

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.planning.plan_program import decompose_all
from privcirnet.he.program import bounds
from privcirnet.he.program import operations as op
from privcirnet.he.program.bounds import Intervals
from privcirnet.he.program.interpreter import Integers
from privcirnet.he.program.manifest import check_nodes
from privcirnet.he.program.operation import KINDS, NO_ROWS, Node, Weights
from privcirnet.he.program.program import Network

SHAPE = (6, 7, 6)
POOLS = [
    op.MaxPool((2, 2), (2, 2), (0, 0), (3, 3)),
    op.MaxPool((3, 3), (2, 2), (1, 1), (4, 3)),
    op.MaxPool((3, 2), (1, 3), (1, 0), (7, 2)),
    op.MaxPool((2, 2), (2, 2), (0, 0), (4, 3)),  # a window that reaches over the edge
    op.MaxPool((7, 6), (1, 1), (0, 0), (1, 1)),
]
BELOW = [op.SubtractMax(groups, SHAPE) for groups in (1, 2, 6)]


def place(count: int) -> Node:
    """Of the largest value of the image."""
    return Node("y", op.Top1(count, -3, 4), ("x",), (1, 1, 1), 0)


def network(operation: op.Operation) -> Network:
    """One operation on the image; parties would need a share, integers don't."""
    after = operation.shape_after([SHAPE])
    return Network((Node("x", op.Input(-500, 900), (), SHAPE, 0), Node("y", operation, ("x",), after, 0)), {})


def largest_of_windows(x: np.ndarray, pool: op.MaxPool) -> np.ndarray:
    """Window by window, with -inf around."""
    found = np.empty((len(x), *pool.size), dtype=np.int64)
    for i, j in np.ndindex(*pool.size):
        top, left = i * pool.stride[0] - pool.padding[0], j * pool.stride[1] - pool.padding[1]
        rows, columns = slice(max(top, 0), top + pool.kernel[0]), slice(max(left, 0), left + pool.kernel[1])
        found[:, i, j] = x[:, rows, columns].reshape(len(x), -1).max(1)
    return found


@pytest.mark.parametrize("operation", [*POOLS, *BELOW])
def test_pieces_are_what_the_operation_is(operation: op.Operation) -> None:
    whole = network(operation)
    pieces = decompose_all(whole, bounds.prove(whole))
    assert all(type(node.operation) in KINDS.values() for node in pieces.nodes)
    assert check_nodes(pieces.nodes) is not None
    proved, tight = bounds.prove(pieces), bounds.prove(whole)["y"]
    assert (proved["y"][0].min(), proved["y"][1].max()) == (tight[0].min(), tight[1].max())
    for seed in range(5):
        x = np.random.default_rng(seed).integers(-500, 901, SHAPE)
        values = Integers(x).values(pieces.nodes, pieces.weights)
        if isinstance(operation, op.MaxPool):
            assert (values["y"] == largest_of_windows(x, operation)).all()
        else:
            parts = np.split(x, operation.groups)
            assert (values["y"] == np.concatenate([part - part.max(axis=0) for part in parts])).all()
        assert (values["y"] == operation.values(x)).all()
        for name, (low, high) in proved.items():
            assert (low <= values[name]).all()
            assert (values[name] <= high).all()


@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_every_place_wins_and_the_first_of_equal_values(count: int) -> None:
    whole = Network((Node("x", op.Input(-3, 4), (), (count, 1, 1), 0), place(count)), {})
    pieces = decompose_all(whole, bounds.prove(whole))
    assert sum(isinstance(node.operation, op.ExactReLU) for node in pieces.nodes) == (count - 1).bit_length()
    proved = bounds.prove(pieces)
    random = np.random.default_rng(count).integers(-3, 5, (20, count))
    for x in (*np.full((1, count), -3), *(np.eye(count, dtype=np.int64) * 7 - 3), *random):
        values = Integers(x.reshape(-1, 1, 1)).values(pieces.nodes, pieces.weights)
        assert values["y"].item() == x.argmax() == Integers(x).values(whole.nodes, {})["y"].item()
        assert all((low <= values[name]).all() and (values[name] <= high).all() for name, (low, high) in proved.items())


def test_each_further_row_and_column_of_a_window_takes_one() -> None:
    counts = [
        sum(isinstance(node.operation, op.ExactReLU) for node in decompose_all(network(operation), {}).nodes)
        for operation in (POOLS[0], POOLS[1], POOLS[4], *BELOW)
    ]
    assert counts == [2, 4, 11, 3, 2, 0], "halves of the channels of a group, until one is left"


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        (op.SubtractMax(4, SHAPE), "maxima of 4 groups"),
        (op.SubtractMax(2, (6, 7, 5)), "maxima of 2 groups"),
        (op.Center(5), "centering of 5 of 6 channels"),
        (op.SumChannels(4, 1), "sums of 1 of 6 channels"),
        (op.MaxPool((2, 2), (2, 2), (2, 0), (3, 3)), "windows of"),
        (op.MaxPool((2, 2), (2, 2), (0, 0), (5, 3)), "windows of"),
        (op.Top1(3, -3, 4), r"the largest of 3 in \(6, 7, 6\)"),
        (op.Sampled(0, 0, 1, 1), "1 places from 0 on along axis 0"),
        (op.Sampled(1, -1000, 1, 1), "1 places from -1000"),
        (op.Sampled(1, 0, 1, 1 << 40), "places from 0"),
        (op.AssertRange(3, 2), "values in"),
        (op.ExactReLU(20), "an exact ReLU by 20 bits"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(operation: op.Operation, problem: str) -> None:
    made = network(op.AssertRange(0, 1))
    shape = (SHAPE[0], *operation.size) if isinstance(operation, op.MaxPool) else SHAPE
    nodes = (made.nodes[0], replace(made.nodes[1], operation=operation, shape=shape))
    with pytest.raises(RuleError, match=problem):
        check_nodes(nodes)


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_channels_are_summed_and_centered(count: int) -> None:
    shape, groups = (3 * count, 2, 1), 3
    x, constants = np.random.default_rng(0).integers(-9, 10, shape), np.array([4, -5, 6])
    step = -(3 * count - 1).bit_length()
    nodes = (
        Node("x", op.Input(-9, 9), (), shape, 0),
        Node("sum", op.SumChannels(groups, count), ("x",), (groups, 2, 1), 0),
        Node("centered", op.Center(3 * count), ("x",), shape, step),
    )
    weights = {"sum": Weights(NO_ROWS, constants)}
    check_nodes(nodes)
    found, proved = Integers(x).values(nodes, weights), Intervals().values(nodes, weights)
    assert (found["sum"] == x.reshape(groups, count, 2, 1).sum(1) + constants[:, None, None]).all()
    assert (found["centered"] == 3 * count * x - x.sum(0)).all()
    assert all(((proved[n][0] <= found[n]) & (found[n] <= proved[n][1])).all() for n in found)
