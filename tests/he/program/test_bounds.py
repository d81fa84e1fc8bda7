"""Bounds of all values, and how wrong or revealing truncation can be under them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import expand_rows
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program import bounds
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import NO_ROWS, Node, Weights
from privcirnet.he.program.operations import Add, Input, Linear, MatMul, Scale, Square, SumPool, Truncate
from privcirnet.he.program.program import Network, Program
from privcirnet.he.program.rearrangement import Flatten
from tests.he.exchange import random_rows
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import paper_layer
from tests.he.networks import attention, random_image

N = 256
PARAMETERS = insecure_parameters(N, {2, 5, 3})


def conv(name: str, source: str, log_step: int = 0) -> Node:
    return Node(name, Linear(paper_layer(LinearShape(4, 4, 2, 2, 3, 1, 1), 2, N)), (source,), (2, 4, 4), log_step)


def chain(*nodes: Node, low: int = -3, high: int = 3, seed: int = 0) -> Program:
    weights = {
        node.name: Weights(random_rows(node.operation.layer.shape, 2, seed + i, 5), np.array([7, -9]))
        for i, node in enumerate(nodes)
        if isinstance(node.operation, Linear)
    }
    return Program((Node("x", Input(low, high), (), (2, 4, 4), 0), *nodes), PARAMETERS, weights)


def deep(low: int, high: int, bits: int, seed: int) -> Program:
    same, half = (2, 4, 4), (2, 2, 2)
    return chain(
        conv("a", "x"),
        Node("at", Truncate(bits), ("a",), same, 0),
        Node("ats", Scale(1), ("at",), same, -1),
        Node("sum", Add(), ("ats", "x"), same, -1),
        Node("sq", Square(), ("sum",), same, 0),
        Node("sqt", Truncate(3), ("sq",), same, 0),
        conv("b", "sqt"),
        Node("pool", SumPool(2), ("b",), half, 0),
        Node("flat", Flatten(), ("pool",), (8, 1, 1), 0),
        low=low,
        high=high,
        seed=seed,
    )


@given(st.integers(-20, 5), st.integers(0, 20), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_no_value_leaves_its_interval(low: int, width: int, bits: int, seed: int) -> None:
    """Whatever the image and whichever way each truncation falls."""
    made, random = deep(low, low + width, bits, seed % 100), np.random.default_rng(seed)
    intervals = bounds.prove(made)
    ends = random.choice([low, low + width], (2, 4, 4))
    for image in (ends, random.integers(low, low + width + 1, (2, 4, 4))):
        values = interpret(
            made,
            image,
            lambda node, v: v + random.integers(0, 1 << node.operation.bits, v.shape) >> node.operation.bits,
        )
        for name, (lowest, highest) in intervals.items():
            assert (lowest <= values[name]).all(), name
            assert (values[name] <= highest).all(), name


def test_interval_of_one_layer_is_attained() -> None:
    """At every position by the image that has its ends where the kernel's weights have their signs."""
    made = chain(conv("a", "x"), low=-2, high=5)
    low, high = bounds.prove(made)["a"]
    dense = expand_rows(made.weights["a"].rows, 2)
    for k, u, v in ((0, 0, 0), (1, 2, 1), (1, 3, 3), (0, 1, 2)):
        image = np.full((2, 6, 6), 0)
        image[:, u : u + 3, v : v + 3] = np.where(dense[k] > 0, 5, -2)
        assert interpret(made, image[:, 1:5, 1:5])["a"][k, u, v] == high[k, u, v]
        image[:, u : u + 3, v : v + 3] = np.where(dense[k] > 0, -2, 5)
        assert interpret(made, image[:, 1:5, 1:5])["a"][k, u, v] == low[k, u, v]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-3, 2, (0, 9)), (2, 5, (4, 25)), (-5, -2, (4, 25)), (0, 4, (0, 16)), (-4, 0, (0, 16))],
)
def test_square_has_its_exact_range(low: int, high: int, expected: tuple[int, int]) -> None:
    made = chain(Node("sq", Square(), ("x",), (2, 4, 4), 0), low=low, high=high)
    assert tuple(int(end.max()) for end in bounds.prove(made)["sq"]) == expected


@given(st.integers(0, 2**32 - 1))
def test_interval_of_a_product_is_attained(seed: int) -> None:
    """The least and the largest sum of products of ends, term by term; y[h B + j, i] over channels h k + e."""
    groups, k, a, b = 2, 3, 2, 4
    left, right = (groups * k, a, 1), (groups * k, b, 1)
    shapes = LinearShape.product(left, right, groups), LinearShape.product(right, left, groups)
    node = Node("y", MatMul(*(paper_layer(shape, 1, N) for shape in shapes)), ("l", "r"), (groups * b, a, 1), 0)
    random = np.random.default_rng(seed)
    ends = [np.sort(random.integers(-9, 10, (2, *shape)), axis=0) for shape in (left, right)]
    bias = random.integers(-9, 10, groups * b)
    low, high = bounds.Intervals().visit(node, [tuple(end) for end in ends], Weights(NO_ROWS, bias))
    for h, j, i in itertools.product(range(groups), range(b), range(a)):
        terms = [[x * y for x in ends[0][:, h * k + e, i, 0] for y in ends[1][:, h * k + e, j, 0]] for e in range(k)]
        assert low[h * b + j, i, 0] == sum(map(min, terms)) + bias[h * b + j]
        assert high[h * b + j, i, 0] == sum(map(max, terms)) + bias[h * b + j]


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(-5, 5, (-2, 2)), (-4, 4, (-1, 1)), (1, 3, (0, 1)), (0, 0, (0, 0))]
)
def test_truncation_has_both_its_results(low: int, high: int, expected: tuple[int, int]) -> None:
    made = chain(Node("xt", Truncate(2), ("x",), (2, 4, 4), 0), low=low, high=high)
    assert tuple(int(end.max()) for end in bounds.prove(made)["xt"]) == expected


def test_value_bits() -> None:
    def interval(low: int, high: int) -> bounds.Interval:
        return np.array([low]), np.array([high])

    assert [bounds.value_bits(interval(0, h)) for h in (0, 1, 3, 4)] == [0, 1, 2, 3]
    assert bounds.largest(interval(-9, 4)) == 9
    assert bounds.value_bits(interval(-8, 4)) == 4


SAME = (2, 4, 4)
GROWING = {
    "layer": (conv("y", "x"), 58),
    "add": (Node("y", Add(), ("x", "x"), SAME, 0), 58),
    "square": (Node("y", Square(), ("x",), SAME, 0), 30),
    "pool": (Node("y", SumPool(2), ("x",), (2, 2, 2), 0), 58),
    "scale": (Node("y", Scale(2), ("x",), SAME, -2), 58),
}


@pytest.mark.parametrize("case", GROWING)
def test_growth_over_64_bits_is_refused_before_it_happens(case: str) -> None:
    node, bits = GROWING[case]
    with pytest.raises(RuleError, match=r"under 2\^59, proved: got y may reach 2\^\d+"):
        bounds.prove(chain(node, high=1 << bits))


def test_growth_of_a_product_is_refused_before_it_happens() -> None:
    made = attention()
    nodes = [replace(n, operation=Input(0, 1 << 31)) if n.name == "x" else n for n in made.nodes]
    with pytest.raises(RuleError, match=r"under 2\^59, proved: got scores may reach 2\^\d+"):
        bounds.prove(Network(nodes, made.weights))


def test_no_value_of_any_operation_leaves_its_interval() -> None:
    made = attention()
    intervals = bounds.prove(made)
    for seed in range(10):
        values = interpret(made, random_image(made, seed))
        for name, (lowest, highest) in intervals.items():
            assert ((lowest <= values[name]) & (values[name] <= highest)).all(), name


def test_what_does_not_grow_is_not_refused() -> None:
    high = (1 << 58) + 4
    nodes = Node("xt", Truncate(2), ("x",), (2, 4, 4), 0), Node("flat", Flatten(), ("xt",), (32, 1, 1), 0)
    assert bounds.largest(bounds.prove(chain(*nodes, high=high))["flat"]) == (1 << 56) + 1


def test_values_must_stay_under_half_t() -> None:
    t = PARAMETERS.plain_modulus
    for high, fits in ((t // 2, True), (t // 2 + 1, False)):
        made = chain(Node("flat", Flatten(), ("x",), (32, 1, 1), 0), low=0, high=high)
        intervals = bounds.prove(made)
        if fits:
            bounds.check_modulus(made, intervals)
        else:
            with pytest.raises(RuleError, match=r"under t / 2: got x reaches 2\^40.0, t has 41 bits"):
                bounds.check_modulus(made, intervals)


def test_measured_values_out_of_reach_say_what_helps() -> None:
    huge = np.full((2, 4, 4), 2.0**60)
    made = chain(conv("a", "x"))
    seen = {node.name: bounds.ObservedRange(-huge, huge, huge) for node in made.nodes}
    with pytest.raises(RuleError, match=r"under 2\^59, seen on images: got .*; .*train with recipe.outlier_penalty"):
        bounds.measured(made.nodes, seen, 0)


def truncated_twice() -> Program:
    same = (2, 4, 4)
    return chain(
        conv("a", "x"),
        Node("at", Truncate(2), ("a",), same, 0),
        conv("b", "at"),
        Node("bt", Truncate(3), ("b",), same, 0),
    )


def test_wrap_probability_is_the_sum_over_values() -> None:
    """A uniform mask r wraps y >= 0 for r in 0..y, that is y + 1 of t values, and y < 0 for |y| - 1."""
    made = truncated_twice()
    intervals = bounds.prove(made)
    largest = [np.maximum(np.abs(low), np.abs(high)) + 1 for low, high in (intervals["a"], intervals["b"])]
    expected = sum(int(v.sum()) for v in largest) / PARAMETERS.plain_modulus
    assert bounds.wrap_probability(made, bounds.largest_sizes(intervals)) == pytest.approx(expected, rel=1e-12)
    assert bounds.wrap_probability(chain(conv("a", "x")), bounds.largest_sizes(intervals)) == 0


def test_a_wrong_result_passes_only_if_its_other_bits_do() -> None:
    made = replace(truncated_twice(), output_bits=20)
    sizes = bounds.largest_sizes(bounds.prove(made))
    spare = {
        "unnoticed": (made, PARAMETERS.plain_bits - 21),
        "not known": (replace(made, output_bits=0), 0),
    }
    for program, bits in spare.values():
        facts = bounds.truncation_facts(program, sizes)
        assert facts["failure_per_image_log2"] - facts["unnoticed_per_image_log2"] == pytest.approx(bits)
