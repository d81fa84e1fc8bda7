"""Descriptions that are right in every other way but ask for too much, each refused at once and by its own rule."""

import itertools
import time

import pytest

from privcirnet.errors import RuleError
from privcirnet.he import limits, manifest, modular
from privcirnet.he.engine import client_engine
from privcirnet.he.linear import LinearLayer
from privcirnet.he.params import DEFAULT_COEFFICIENT_BITS, Parameters, choose
from privcirnet.he.program import Add, Input, Linear, Node, Program
from privcirnet.he.shape import Axis, LinearShape

N = 8192
PLAIN = choose({5}, 46)


def program(layer: LinearLayer, parameters: Parameters = PLAIN) -> Program:
    shape = layer.shape
    nodes = (
        Node("x", Input(0, 1), (), shape.input_shape, 0),
        Node("y", Linear(layer), ("x",), shape.output_shape, 0),
    )
    return Program(nodes, parameters)


def chain(count: int, size: int) -> Program:
    """Sums of the image with itself, then a small layer, so that the program is whole."""
    start = Node("0", Input(0, 1), (), (1, size, size), 0)
    sums = tuple(Node(str(i), Add(), (str(i - 1),) * 2, (1, size, size), 0) for i in range(1, count))
    last = LinearLayer(LinearShape(size, size, 1, 1, size if size <= 64 else 1), 1, N, 1)
    return Program((start, *sums, Node("y", Linear(last), (str(count - 1),), last.shape.output_shape, 0)), PLAIN)


LONG = LinearLayer(LinearShape(1021, 1, 1, 1, 3, 1, 1), 1, N, 1)
LONG_MODULUS = Parameters(N, DEFAULT_COEFFICIENT_BITS, modular.largest_prime(50, 2 * N * 1022 * 2))
TOO_MUCH = {
    "transform": (program(LONG, LONG_MODULUS), "node y: a transform of length 1022"),
    "values": (program(LinearLayer(LinearShape.gemm(4097, 513, 1), 1, N, 1)), "node y: transforms of 4202496 values"),
    "slots": (
        program(LinearLayer(LinearShape.gemm(64, 128, 64 * 512), 1, N, 1, True)),
        "node y: messages of 268435456",
    ),
    "keys": (program(LinearLayer(LinearShape.gemm(1, 4096, 4096), 1, N, 2048)), "node y: Galois keys of 14.* bytes"),
    "products": (program(LinearLayer(LinearShape.gemm(64, 8192, 8192), 1, N, 64)), "node y: 524288 products"),
    "nodes": (
        chain(limits.MAX_NODES, 4),
        "at most 4096 nodes with 67108864 values in all: got 4097 nodes, 65537 values",
    ),
    "all values": (chain(70, 1024), "got 71 nodes, 744.* values"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_too_much_is_refused_at_once(case: str) -> None:
    asked, match = TOO_MUCH[case]
    start = time.process_time()
    with pytest.raises(RuleError, match=match):
        manifest.check(asked)
    assert time.process_time() - start < 0.5


def test_what_the_papers_need_is_within_the_bounds() -> None:
    """PrivCirNet's largest GEMM, ResNet's first map at 224 x 224, a classifier's 1000 outputs; at block size 1."""
    for shape, baby, n in (
        (LinearShape.gemm(512, 768, 3072), 4, 8192),
        (LinearShape.gemm(1, 2048, 1000), 64, 8192),
        (LinearShape.gemm(1, 2048, 1000), 1, 8192),
        (LinearShape(112, 112, 64, 64, 3, 1, 1), 1, 16384),
    ):
        layer = LinearLayer(shape, 1, n, baby, giants_on_shares=baby == 1)
        parameters = choose(layer.transform_lengths, 46, n)
        manifest.check(program(layer, parameters))


def test_lengths_at_the_bound() -> None:
    assert Axis(1021, 3, 1, 1).length == 1022 > limits.MAX_LENGTH
    inside = LinearLayer(LinearShape(511, 1, 1, 1, 3, 1, 1), 1, N, 1)
    assert max(inside.layout.transform_lengths) == limits.MAX_LENGTH
    manifest.check(program(inside, choose(inside.layout.transform_lengths, 50)))


def test_key_bytes_are_those_of_the_engine() -> None:
    engine = client_engine("tenseal", PLAIN)
    sizes = [len(engine.public_keys(steps)) for steps in ([], [1], [1, 2])]
    assert [after - before for before, after in itertools.pairwise(sizes)] == [limits.key_bytes(PLAIN)] * 2


@pytest.mark.parametrize("name", ["x" * (limits.MAX_NAME + 1), "\ud800", "a\x1b[2Jb", "a\n", 7, None, ["a"]], ids=ascii)
@pytest.mark.parametrize("field", ["name", "module", "inputs"])
def test_names_are_short_and_printable(name: object, field: str) -> None:
    data = manifest.to_dict(program(LinearLayer(LinearShape.gemm(4, 4, 4), 1, N, 1)))
    data["nodes"][1][field] = [name] if field == "inputs" else name
    with pytest.raises(RuleError, match="printable string of at most 256 characters: got") as caught:
        manifest.from_dict(data)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", [limits.MAX_INTEGER + 1, -limits.MAX_INTEGER - 1, 10**4299])
def test_numbers_have_62_bits(value: int) -> None:
    data = manifest.to_dict(program(LinearLayer(LinearShape.gemm(4, 4, 4), 1, N, 1)))
    data["nodes"][0]["low"] = value
    with pytest.raises(RuleError, match=r"must be a 62-bit integer: got one of \d+ bits;"):
        manifest.from_dict(data)


@pytest.mark.parametrize(("field", "count"), [("shape", 65), ("inputs", 65), ("nodes", 4097), ("bits", 10**5)])
def test_lists_are_short(field: str, count: int) -> None:
    data = manifest.to_dict(program(LinearLayer(LinearShape.gemm(4, 4, 4), 1, N, 1)))
    if field == "nodes":
        data["nodes"] = data["nodes"][:1] * count
    elif field == "bits":
        data["parameters"]["coefficient_bits"] = [20] * count
    else:
        data["nodes"][1][field] = [1] * count
    with pytest.raises(RuleError, match=f"must have a list of at most (64|4096) here: got {count} items;"):
        manifest.from_dict(data)
