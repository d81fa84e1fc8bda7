import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape, Window
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.program import manifest
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.operations import Add, Input, Linear, Square, SumPool, Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.program.rearrangement import Flatten
from tests.he.layer_examples import paper_layer
from tests.he.networks import attention

N = 8192
HUGE = 10**12
DEEP = (Piece(1, 2, 64, 1, 2), Piece(1, 1, 64, 2, giants_on_shares=True), Piece(1, 1, 32, 1, folds_on_shares=False))


def valid() -> Program:
    """Every operation once, and pieces of more than one kind."""
    conv = SpectralLayer(LinearShape(8, 8, 4, 8, 3, 2, 1), 2, N, (4, 4), (Piece(1, 1, 32, 2, copies=2),))
    deep = SpectralLayer(LinearShape(4, 4, 8, 8, 3, 1, 1, groups=2), 2, N, (2, 4), DEEP)
    head = paper_layer(LinearShape.gemm(1, 32, 10), 2, N)
    nodes = (
        Node("x", Input(0, 255), (), (4, 8, 8), -8),
        Node("conv", Linear(conv), ("x",), (8, 4, 4), -16, "features.0"),
        Node("convt", Truncate(8), ("conv",), (8, 4, 4), -8),
        Node("twice", Add(), ("convt", "convt"), (8, 4, 4), -8),
        Node("sq", Square(), ("twice",), (8, 4, 4), -16),
        Node("pool", SumPool(2), ("sq",), (8, 2, 2), -18),
        Node("flat", Flatten(), ("pool",), (32, 1, 1), -18),
        Node("deep", Linear(deep), ("twice",), (8, 4, 4), -16),
        Node("head", Linear(head), ("flat",), (10, 1, 1), -26),
    )
    nodes = (*nodes[:4], nodes[7], *nodes[4:7], nodes[8])
    parameters = choose({2, 4, 5}, 50)
    return Program(nodes, parameters, {"conv": Weights(np.ones((4, 4, 3, 3), dtype=np.int64), np.zeros(8))})


VALID = json.loads(json.dumps(manifest.to_dict(valid())))
"""As it is read back from a file."""
ATTENTION = json.loads(json.dumps(manifest.to_dict(attention())))


def keys(path: str) -> tuple[str | int, ...]:
    return tuple(int(key) if key.isdigit() else key for key in path.split("."))


def changed(path: tuple[str | int, ...], value: Any, of: dict[str, Any] = VALID) -> dict[str, Any]:
    """A description with another value at a place; of a node by its name, if the path begins with one."""
    data = copy.deepcopy(of)
    place: Any = data
    if path[0] not in data:
        place = next(node for node in data["nodes"] if node["name"] == path[0])
        path = path[1:]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


def at(path: tuple[str | int, ...]) -> Any:
    place: Any = VALID
    for key in path:
        place = place[key]
    return place


def with_windows(*windows: Window) -> dict[str, Any]:
    """The description of a program of one convolution, with windows along its rows and its columns."""
    shape = LinearShape.convolution((4, 8, 9), 8, (windows[0], windows[-1]))
    layer = SpectralLayer(shape, 2, N, shape.output_shape[1:], (Piece(1, 1, 32, 2),))
    nodes = Node("x", Input(0, 255), (), (4, 8, 9), -8), Node("conv", Linear(layer), ("x",), shape.output_shape, -16)
    program = Program(nodes, choose(layer.transform_lengths, 50), {})
    return json.loads(json.dumps(manifest.to_dict(program)))


def test_windows_by_axis_are_read_back_and_square_ones_are_written_as_before() -> None:
    sizes = {"height", "width", "in_channels", "out_channels", "kernel", "stride", "padding", "groups"}
    square, unlike = with_windows(Window(3, 2, 1, 1)), with_windows(Window(), Window(4, 3, 2, 0))
    assert square["nodes"][1]["layer"]["shape"].keys() == sizes
    assert unlike["nodes"][1]["layer"]["shape"].keys() == sizes | {"across"}
    assert json.loads(json.dumps(manifest.to_dict(manifest.from_dict(unlike)))) == unlike
    layer = manifest.from_dict(unlike).nodes[1].operation.layers[0]
    assert (layer.shape.kernels, layer.shape.strides, layer.shape.output_shape) == ((1, 4), (1, 3), (8, 8, 3))


@pytest.mark.parametrize(
    ("across", "message"),
    [
        ({"kernel": 513}, "a kernel of 1 x 513|fit the padded input"),
        ({"kernel": 4, "stride": 5000}, "a kernel of 1 x 4 with stride 1 x 5000"),
        ({"kernel": 4, "padding": 4}, "padding must be smaller than the kernel"),
        ({"kernel": 4, "behind": -1}, "padding must be smaller than the kernel"),
        ({"kernel": 0}, "dimensions must be positive"),
        ({"kernel": 3, "stride": 3, "padding": 0}, "nodes must fit together"),
        ([4, 3], "description must be complete"),
        (4, "description must be complete"),
    ],
    ids=str,
)
def test_windows_that_do_not_fit_are_refused(across: Any, message: str) -> None:
    whole = with_windows(Window(), Window(4, 2, 2, 0))
    if isinstance(across, dict):
        across = whole["nodes"][1]["layer"]["shape"]["across"] | across
    with pytest.raises(RuleError, match=message):
        manifest.from_dict(changed(("conv", "layer", "shape", "across"), across, whole))


def test_round_trip_without_weights() -> None:
    text = json.dumps(VALID)
    found = manifest.from_dict(json.loads(text))
    assert found == Program(valid().nodes, valid().parameters)
    assert json.dumps(manifest.to_dict(found)) == text
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


@pytest.mark.parametrize(
    "swapped",
    [{int: True, bool: 1, str: 7}, *({int: value} for value in (HUGE, 10**4000, 1 << 63, -HUGE))],
    ids=["booleans and integers", "10^12", "10^4000", "2^63", "-10^12"],
)
def test_values_of_a_like_type_anywhere(swapped: dict[type, Any]) -> None:
    """A boolean is no integer, nor the other way round; numbers are refused however huge they are."""
    for path in paths(VALID):
        if (value := swapped.get(type(at(path)))) is not None:
            with pytest.raises(RuleError):
                manifest.from_dict(changed(path, value))


def test_everything_is_needed() -> None:
    for path in paths(VALID):
        if isinstance(at(path[:-1]), dict):
            data = copy.deepcopy(VALID)
            place: Any = data
            for key in path[:-1]:
                place = place[key]
            del place[path[-1]]
            with pytest.raises(RuleError, match="must be complete"):
                manifest.from_dict(data)


@pytest.mark.parametrize("data", [None, 1, "x", [], {}, [VALID], {"nodes": []}], ids=lambda d: repr(d)[:20])
def test_not_a_description(data: Any) -> None:
    with pytest.raises(RuleError, match="must be complete"):
        manifest.from_dict(data)


UNFIT: dict[str, tuple[str, Any, str]] = {
    "unknown operation": ("conv.operation", "convolution", "operation must be a known one: got 'convolution'"),
    "name taken": ("sq.name", "conv", "node conv: its name is taken"),
    "dangling input": ("sq.inputs", ["nowhere"], "node sq: inputs"),
    "later input": ("convt.inputs", ["sq"], "node convt: inputs"),
    "one summand": ("twice.inputs", ["convt"], "node twice: inputs"),
    "name in place of names": ("sq.inputs", "twice", "must have a list of at most 64 here: got 'twice'"),
    "wrong shape": ("flat.shape", [16, 2, 1], r"node flat: shape \(16, 2, 1\)"),
    "two sizes": ("flat.shape", [32, 1], "three sizes"),
    "summands of other shapes": ("twice.inputs", ["convt", "x"], "node twice: summands differ"),
    "summands of other steps": ("twice.inputs", ["convt", "conv"], "node twice: summands differ"),
    "truncation of a sum": ("convt.inputs", ["x"], "node convt: a truncation must follow"),
    "truncation by 0": ("convt.bits", 0, "node convt: a truncation by 0 bits"),
    "truncation by 60": ("convt.bits", 60, "node convt: a truncation by 60 bits"),
    "window of 0": ("pool.kernel", 0, "node pool: a window of 0"),
    "window over the map": ("pool.kernel", 5, "node pool: shape"),
    "window of no columns": ("pool.columns", 0, "node pool: a window of 0"),
    "rectangular window": ("pool.columns", 4, "node pool: shape"),
    "pixels the wrong way round": ("x.low", 256, r"node x: pixels in \[256, 255\]"),
    "block size": ("conv.layer.block_size", 300, r"block size must be .*: got 300"),
    "ring degree": ("conv.layer.ring_degree", 4096, "made for ring degree 4096"),
    "baby steps": ("conv.layer.pieces.0.baby_steps", 3, "baby steps must divide"),
    "lanes no power of two": ("conv.layer.pieces.0.lanes", 24, "lanes must be a power of two: got 24"),
    "too many lanes": ("conv.layer.pieces.0.lanes", 256, "share of a ciphertext: got 50 values, 256 lanes"),
    "copies that do not fit": ("conv.layer.pieces.0.copies", 8, r"copies must be .*: got 8"),
    "no pieces": ("conv.layer.pieces", [], "pieces must cover every channel group and tile"),
    "tiles that no piece covers": ("conv.layer.tile", [2, 4], "pieces must cover every channel group and tile"),
    "a tile larger than the output": (
        "conv.layer.tile",
        [4, 5],
        r"a tile must have .* at most all: got \(4, 5\) of \(4, 4\)",
    ),
    "a tile with one size": ("conv.layer.tile", [4], "a tile must have two sizes|must be complete"),
    "groups": ("conv.layer.shape.groups", 3, "groups must divide both channel counts"),
    "groups that b does not divide": (
        "conv.layer.shape.groups",
        4,
        r"block size must divide both .*: got 2 for \(2, 1\)",
    ),
    "kernel": ("conv.layer.shape.kernel", 1, "node conv: shape|input"),
    "padding": ("conv.layer.shape.padding", -1, "padding must be smaller"),
    "height": ("conv.layer.shape.height", 9, "node conv: takes"),
    "encoding that was taken away": (
        "conv.layer.encoding",
        "cheetah",
        "known one: got 'cheetah'; export the program again",
    ),
}
"""A description with one change: where, to what, and what is said."""


@pytest.mark.parametrize("case", UNFIT)
def test_nodes_and_layers_must_fit_together(case: str) -> None:
    path, value, match = UNFIT[case]
    with pytest.raises(RuleError, match=match):
        manifest.from_dict(changed(keys(path), value))


def around(layer: Layer) -> Program:
    shape = layer.shape
    nodes = (
        Node("x", Input(0, 1), (), shape.input_shape, 0),
        Node("y", Linear(layer), ("x",), shape.output_shape, 0),
    )
    return Program(nodes, valid().parameters)


def test_attention_goes_round_without_constants() -> None:
    program = attention()
    assert manifest.from_dict(ATTENTION) == Program(program.nodes, program.parameters)
    moved = {name: Weights(w.rows, w.bias + 1) for name, w in program.weights.items()}
    assert manifest.to_dict(replace(program, weights=moved)) == manifest.to_dict(program)


LEFT = next(node for node in ATTENTION["nodes"] if node["name"] == "scores")["left"]
UNPLANNED = {"encoding": "unplanned"} | {k: LEFT[k] for k in ("shape", "block_size")}
UNFIT_TOKENS: dict[str, tuple[str, Any, str]] = {
    "first channel": ("k.first", -1, "node k: channels -1 to 7 of 24"),
    "token": ("token.place", 5, "node token: token 5 of 5"),
    "groups": ("turned.groups", 3, "node turned: 3 groups of 8 channels"),
    "no groups": ("turned.groups", 0, "node turned: 0 groups"),
    "grid above": ("reversed.offset", 8, r"node reversed: a grid of .* over places 1 to 8 of 8"),
    "grid too small": ("reversed.sizes", [7], "node reversed: a grid"),
    "grid of many axes": ("reversed.sizes", [1] * 9, "node reversed: a grid of sizes"),
    "grid of large steps": ("reversed.strides", [1 << 61], "node reversed: a grid"),
    "shape": ("turned.shape", [8, 5, 1], "node turned: shape"),
    "tokens of tokens": ("tokens.shape", [8, 4, 1], "node tokens: shape"),
    "one factor": ("scores.inputs", ["q_t"], "node scores: inputs"),
    "other factors": ("gathered.inputs", ["square_t", "v_t"], r"a product of \(10, 5, 1\) and \(8, 5, 1\) in 2"),
    "a map": ("scores.inputs", ["patches_t", "patches_t"], "node scores: a product of"),
    "the image": ("scores.inputs", ["x", "x"], "node scores: product of the image itself"),
    "tokens of the image": ("tokens.inputs", ["x"], "node tokens: tokens of the image itself"),
    "groups of a product": ("scores.left.shape.groups", 4, "must fit|divide"),
    "channels of a product": ("scores.left.shape.out_channels", 20, "layers that do not multiply"),
    "the other layer": ("scores.right.shape.height", 6, "layers that do not multiply|cover"),
    "blocks": ("scores.right.block_size", 2, "divide|do not multiply|lane"),
    "ring": ("scores.right.ring_degree", 16384, "made for ring degree 16384"),
    "truncation of tokens": ("gathered_t.inputs", ["turned"], "node gathered_t: a truncation must follow"),
    "layer that is not planned": ("scores.left", UNPLANNED, "must have planned layers: got 'unplanned'"),
}


@pytest.mark.parametrize("case", UNFIT_TOKENS)
def test_attention_must_fit_together(case: str) -> None:
    path, value, match = UNFIT_TOKENS[case]
    with pytest.raises(RuleError, match=match):
        manifest.from_dict(changed(keys(path), value, ATTENTION))
