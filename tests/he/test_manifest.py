import copy
import json
import time
from typing import Any

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he import manifest
from privcirnet.he.cost import paper_layer
from privcirnet.he.shape import LinearShape
from privcirnet.he.linear import LinearLayer
from privcirnet.he.params import choose
from privcirnet.he.program import Add, Flatten, Input, Linear, Node, Program, Square, SumPool, Truncate, Weights

N = 8192
HUGE = 10**12


def valid() -> Program:
    """Every operation once."""
    conv = paper_layer(LinearShape(8, 8, 4, 8, 3, 2, 1), 2, N)
    head = paper_layer(LinearShape.gemm(1, 32, 10), 2, N)
    nodes = (
        Node("x", Input(0, 255), (), (4, 8, 8), -8),
        Node("conv", Linear(conv), ("x",), (8, 4, 4), -16, "features.0"),
        Node("convt", Truncate(8), ("conv",), (8, 4, 4), -8),
        Node("twice", Add(), ("convt", "convt"), (8, 4, 4), -8),
        Node("sq", Square(), ("twice",), (8, 4, 4), -16),
        Node("pool", SumPool(2), ("sq",), (8, 2, 2), -18),
        Node("flat", Flatten(), ("pool",), (32, 1, 1), -18),
        Node("head", Linear(head), ("flat",), (10, 1, 1), -26),
    )
    parameters = choose({2, 5}, 50)
    return Program(nodes, parameters, {"conv": Weights(np.ones((4, 4, 3, 3), dtype=np.int64), np.zeros(8))}, "bounded")


VALID = manifest.to_dict(valid())


def index(name: str) -> int:
    return [node["name"] for node in VALID["nodes"]].index(name)


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(VALID)
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


def test_round_trip_without_weights() -> None:
    text = json.dumps(VALID)
    found = manifest.from_dict(json.loads(text))
    assert found == Program(valid().nodes, valid().parameters, {}, "bounded")
    assert manifest.to_dict(found) == VALID
    assert "weights" not in text


def paths(data: Any, before: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a description, leaves and branches."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = [((*before, key), value) for key, value in items]
    return [path for path, _ in found] + [deeper for path, value in found for deeper in paths(value, path)]


@pytest.mark.parametrize("value", [None, [], {}, 1.5, -1.0, [[]]], ids=repr)
def test_wrong_types_anywhere(value: Any) -> None:
    for path in paths(VALID):
        if path[-1] in ("inputs", "nodes", "shape", "coefficient_bits") and value in ([], {}):
            continue
        with pytest.raises(RuleError):
            manifest.from_dict(changed(path, value))


def test_booleans_are_no_integers_and_the_other_way_round() -> None:
    for path in paths(VALID):
        place: Any = VALID
        for key in path:
            place = place[key]
        swapped = {int: True, bool: 1, str: 7}.get(type(place))
        if swapped is not None:
            with pytest.raises(RuleError):
                manifest.from_dict(changed(path, swapped))


def test_everything_is_needed() -> None:
    for path in paths(VALID):
        data = copy.deepcopy(VALID)
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        if isinstance(place, dict):
            del place[path[-1]]
            with pytest.raises(RuleError, match="must be complete"):
                manifest.from_dict(data)


@pytest.mark.parametrize("data", [None, 1, "x", [], {}, [VALID], {"nodes": []}], ids=lambda d: repr(d)[:20])
def test_not_a_description(data: Any) -> None:
    with pytest.raises(RuleError, match="must be complete"):
        manifest.from_dict(data)


NODES = {
    "unknown operation": (("conv", "operation"), "convolution", "operation must be a known one: got 'convolution'"),
    "name taken": (("sq", "name"), "conv", "node conv: its name is taken"),
    "dangling input": (("sq", "inputs"), ["nowhere"], "node sq: inputs"),
    "later input": (("convt", "inputs"), ["sq"], "node convt: inputs"),
    "own input": (("sq", "inputs"), ["sq"], "node sq: inputs"),
    "two inputs": (("sq", "inputs"), ["twice", "convt"], "node sq: inputs"),
    "one summand": (("twice", "inputs"), ["convt"], "node twice: inputs"),
    "no inputs": (("twice", "inputs"), [], "node twice: inputs"),
    "name in place of names": (("sq", "inputs"), "twice", "must have a list of at most 64 here: got 'twice'"),
    "wrong shape": (("flat", "shape"), [16, 2, 1], r"node flat: shape \(16, 2, 1\)"),
    "two sizes": (("flat", "shape"), [32, 1], "three sizes"),
    "negative size": (("x", "shape"), [-4, -8, 8], "node x: shape"),
    "summands of other shapes": (("twice", "inputs"), ["convt", "x"], "node twice: summands differ"),
    "summands of other steps": (("twice", "inputs"), ["convt", "conv"], "node twice: summands differ"),
    "truncation of a sum": (("convt", "inputs"), ["x"], "node convt: a truncation must follow"),
    "truncation by 0": (("convt", "bits"), 0, "node convt: a truncation by 0 bits"),
    "truncation by 60": (("convt", "bits"), 60, "node convt: a truncation by 60 bits"),
    "window of 0": (("pool", "kernel"), 0, "node pool: a window of 0"),
    "window of -1": (("pool", "kernel"), -1, "node pool: a window of -1"),
    "window over the map": (("pool", "kernel"), 5, "node pool: shape"),
    "pixels the wrong way round": (("x", "low"), 256, r"node x: pixels in \[256, 255\]"),
    "pixels over 32 bits": (("x", "high"), HUGE, "node x: pixels"),
    "another layer's input": (("conv", "inputs"), ["x", "x"], "node conv: inputs"),
    "step out of all proportion": (("x", "log_step"), HUGE, "node x: shape"),
}


@pytest.mark.parametrize("case", NODES)
def test_nodes_must_fit_together(case: str) -> None:
    (name, key), value, match = NODES[case]
    with pytest.raises(RuleError, match=match):
        manifest.from_dict(changed(("nodes", index(name), key), value))


LAYERS = {
    "block size": (("block_size",), 3, "block size must divide"),
    "ring degree": (("ring_degree",), 4096, "made for ring degree 4096"),
    "ring degree no power of two": (("ring_degree",), N + 1, "made for ring degree 8193"),
    "baby steps": (("baby_steps",), 3, "baby steps must divide"),
    "kernel": (("shape", "kernel"), 1, "node conv: shape|input"),
    "stride": (("shape", "stride"), 1, "node conv: shape"),
    "padding": (("shape", "padding"), -1, "padding must be smaller"),
    "height": (("shape", "height"), 9, "node conv: takes"),
}


@pytest.mark.parametrize("case", LAYERS)
def test_layers_must_fit(case: str) -> None:
    path, value, match = LAYERS[case]
    with pytest.raises(RuleError, match=match):
        manifest.from_dict(changed(("nodes", index("conv"), "layer", *path), value))


def with_nodes(*nodes: Node) -> Program:
    return Program((Node("x", Input(0, 9), (), (4, 8, 8), 0), *nodes), valid().parameters)


def test_operations_that_need_a_share_do_not_get_the_bare_input() -> None:
    """The server has no share of the image, nor of sums over it alone."""
    same = (4, 8, 8)
    bare = Node("twice", Add(), ("x", "x"), same, 0), Node("pool", SumPool(2), ("twice",), (4, 4, 4), 0)
    for before, source in (((), "x"), (bare[:1], "twice"), (bare, "pool")):
        shape = (4, 4, 4) if source == "pool" else same
        with pytest.raises(RuleError, match="node sq: a square of the input itself"):
            manifest.check(with_nodes(*before, Node("sq", Square(), (source,), shape, 0)))
    for nodes in ((), bare):
        with pytest.raises(RuleError, match="must have an input and a linear layer"):
            manifest.check(with_nodes(*nodes))


def test_one_input_first() -> None:
    for nodes in (
        (Node("sq", Square(), (), (1, 1, 1), 0),),
        (*valid().nodes, Node("z", Input(0, 1), (), (1, 1, 1), 0)),
    ):
        with pytest.raises(RuleError, match="one input, its first node"):
            manifest.check(Program(nodes, valid().parameters))
    with pytest.raises(RuleError, match="must have an input and a linear layer: got 0 nodes"):
        manifest.check(Program((), valid().parameters))


def test_modulus_must_carry_the_transforms() -> None:
    choices = (choose({1}, bits) for bits in range(40, 50))
    with pytest.raises(RuleError, match=r"node conv: transforms of lengths \[2, 5\] that t is not made for"):
        manifest.check(Program(valid().nodes, next(p for p in choices if p.plain_modulus % 5 != 1)))


def test_truncation_of_a_sum_is_refused() -> None:
    nodes = [*valid().nodes[:4], Node("late", Truncate(2), ("twice",), (8, 4, 4), -6)]
    with pytest.raises(RuleError, match="node late: a truncation must follow a linear layer or a square"):
        manifest.check(Program(tuple(nodes), valid().parameters))


@pytest.mark.parametrize("masks", ["none", "", "Uniform"])
def test_unknown_masks(masks: str) -> None:
    with pytest.raises(RuleError, match=r"masks must be a known kind: got .*; use uniform or bounded"):
        manifest.from_dict(changed(("masks",), masks))


@pytest.mark.parametrize("value", [HUGE, 10**4000, 1 << 63, -HUGE], ids=["10^12", "10^4000", "2^63", "-10^12"])
def test_huge_numbers_are_refused_at_once(value: int) -> None:
    start = time.perf_counter()
    for path in paths(VALID):
        place: Any = VALID
        for key in path:
            place = place[key]
        if type(place) is int:
            with pytest.raises(RuleError):
                manifest.from_dict(changed(path, value))
    assert time.perf_counter() - start < 2


def huge_layer(shape: LinearShape, b: int = 1) -> Program:
    """A whole program around one outsized layer, everything else consistent."""
    layer = LinearLayer(shape, b, N, 1)
    nodes = (
        Node("x", Input(0, 1), (), shape.input_shape, 0),
        Node("y", Linear(layer), ("x",), shape.output_shape, 0),
    )
    return Program(nodes, valid().parameters)


@pytest.mark.parametrize(
    "shape",
    [
        LinearShape.gemm(1, HUGE, 10),
        LinearShape.gemm(1, 10, HUGE),
        LinearShape.gemm(HUGE, 10, 10),
        LinearShape(HUGE, HUGE, 1, 1, 3, 1, 1),
        LinearShape(1, 1, 1, 1, HUGE, HUGE, HUGE - 1),
        LinearShape(1, 1, 1, 1, 4000, 4000, 3999),
        LinearShape(1, 1, 1, 1, 1, HUGE, 0),
        LinearShape.gemm(1, 1 << 23, 1 << 23),
    ],
    ids=str,
)
def test_consistent_but_huge_layers_are_refused_at_once(shape: LinearShape) -> None:
    start = time.perf_counter()
    with pytest.raises(RuleError):
        manifest.check(huge_layer(shape))
    assert time.perf_counter() - start < 1
