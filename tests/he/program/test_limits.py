"""Descriptions that are right in every other way but ask for too much, each refused at once and by its own rule."""

import itertools
import json
import time

import pytest

from benchmarks.bench.networks import NETWORKS, network_shapes
from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, Parameters, choose, key_bytes
from privcirnet.he.layers import spectral_pieces
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import Axis, LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import CyclicTiles
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.program import limits, manifest
from privcirnet.he.program.exact import ExactReLU
from privcirnet.he.program.lookup_table import ExactTable
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Add, Input, Linear
from privcirnet.he.program.program import Program
from privcirnet.he.ring import modular
from tests.he.layer_examples import paper_layer

N = 8192
PLAIN = choose({5}, 46)
ALONE = Piece(1, 1, 1, 1)


def program(layer: Layer, parameters: Parameters = PLAIN) -> Program:
    shape = layer.shape
    nodes = (
        Node("x", Input(0, 1), (), shape.input_shape, 0),
        Node("y", Linear(layer), ("x",), shape.output_shape, 0),
    )
    return Program(nodes, parameters)


def gemm(tokens: int, inputs: int, outputs: int, piece: Piece) -> SpectralLayer:
    """A GEMM in one piece, a token a tile."""
    return SpectralLayer(LinearShape.gemm(tokens, inputs, outputs), 1, N, (1, 1), (piece,))


def column(height: int, tile: int, pieces: int = 1) -> SpectralLayer:
    """A 3 x 3 kernel over a map of one column, a tile in each piece."""
    return SpectralLayer(LinearShape(height, 1, 1, 1, 3, 1, 1), 1, N, (tile, 1), (ALONE,) * pieces)


def small() -> SpectralLayer:
    return paper_layer(LinearShape.gemm(4, 4, 4), 1, N)


def chain(count: int, size: int) -> Program:
    """Sums of the image with itself, then a small layer, so that the program is whole."""
    start = Node("0", Input(0, 1), (), (1, size, size), 0)
    sums = tuple(Node(str(i), Add(), (str(i - 1),) * 2, (1, size, size), 0) for i in range(1, count))
    last = SpectralLayer(LinearShape(size, size, 1, 1, size if size <= 64 else 1), 1, N, (1, 1), (ALONE,))
    return Program((start, *sums, Node("y", Linear(last), (str(count - 1),), last.shape.output_shape, 0)), PLAIN)


def rectified(count: int) -> Program:
    """Rectifiers in a row, each with a bound of its own."""
    steps = (Node(str(i), ExactReLU(0, bound=i), (str(i - 1),), (1, 4, 4), 0) for i in range(1, count + 1))
    return Program((Node("0", Input(0, 1), (), (1, 4, 4), 0), *steps), PLAIN)


def stepped(log_step: int) -> Program:
    """A look-up whose results have a step that no number of double precision has."""
    table = ExactTable(0, function="exp", log_step_in=0, log_step_out=log_step, low=-15, high=0, digest=0)
    before = program(small())
    return Program((*before.nodes, Node("z", table, ("y",), before.output.shape, log_step)), PLAIN)


LONG_MODULUS = Parameters(N, DEFAULT_COEFFICIENT_BITS, modular.largest_prime(50, 2 * N * 1022 * 2))
TOO_MUCH = {
    "transform": (program(column(1021, 1021), LONG_MODULUS), "node y: a transform of length 1022"),
    "values": (program(gemm(4097, 1025, 1, Piece(1, 4097, 1, 1))), "node y: transforms of 4199425 values"),
    "slots": (
        program(gemm(64, 128, 64 * 512, Piece(1, 64, 128, 1, giants_on_shares=True))),
        "node y: messages of 268435456 slots",
    ),
    "keys": (program(gemm(1, 4096, 4096, Piece(1, 1, 4096, 2048))), "node y: Galois keys of 13.* bytes"),
    "products": (program(gemm(64, 8192, 8192, Piece(1, 64, 128, 64))), "node y: 524288 products"),
    "tiles": (program(column(spectral_pieces.MAX_TILES + 1, 1)), "node y: 1025 x 1 tiles"),
    "pieces": (program(column(4, 1, spectral_pieces.MAX_PIECES + 1)), "node y: 4097 pieces"),
    "nodes": (
        chain(limits.MAX_NODES, 4),
        "at most 4096 nodes with 67108864 values in all: got 4097 nodes, 65537 values",
    ),
    "exact steps": (rectified(limits.MAX_STEPS + 1), "at most 1024 exact steps that differ: got 1025"),
    "a step": (stepped(-2000), r"node z: step 2\^-2000"),
    "all values": (chain(70, 1024), "got 71 nodes, 744.* values"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_too_much_is_refused_at_once(case: str) -> None:
    asked, match = TOO_MUCH[case]
    start = time.process_time()
    with pytest.raises(RuleError, match=match):
        manifest.check(asked)
    assert time.process_time() - start < 0.5


PAPERS = (
    gemm(512, 768, 3072, Piece(1, 512, 16, 4)),
    gemm(1, 2048, 1000, Piece(1, 1, 2048, 64)),
    gemm(1, 2048, 1000, Piece(1, 1, 2048, 1, giants_on_shares=True)),
    SpectralLayer(LinearShape(112, 112, 64, 64, 3, 1, 1), 1, 16384, (112, 112), (ALONE,)),
    SpectralLayer(
        LinearShape(112, 112, 64, 64, 3, 1, 1), 1, N, (7, 7), (*[Piece(1, 25, 4, 1)] * 10, Piece(1, 6, 16, 2))
    ),
)
"""PrivCirNet's largest GEMM, a classifier's 1000 outputs, ResNet's first map at 224 x 224 whole and in tiles; b = 1."""


@pytest.mark.parametrize("layer", PAPERS, ids=lambda layer: f"{layer.shape.kind} {layer.ciphertexts_out}")
def test_what_the_papers_need_is_within_the_bounds(layer: SpectralLayer) -> None:
    manifest.check(program(layer, choose(layer.transform_lengths, 46, layer.ring_degree)))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_papers_networks_are_within_the_bounds(name: str) -> None:
    for shape in set(network_shapes(name).values()):
        layer = paper_layer(shape, 1, N)
        manifest.check(program(layer, choose(layer.transform_lengths, 46)))


def test_lengths_at_the_bound() -> None:
    assert CyclicTiles(Axis(1021, 3, 1, 1), 1021).length == 1022 > limits.MAX_LENGTH
    inside = column(511, 511)
    assert max(inside.layout.transform_lengths) == limits.MAX_LENGTH
    manifest.check(program(inside, choose(inside.layout.transform_lengths, 50)))


def test_key_bytes_are_those_of_the_engine() -> None:
    engine = engine_of("kernel").client(PLAIN)
    sizes = [len(engine.public_keys(steps)) for steps in ([], [1], [1, 2])]
    assert [after - before for before, after in itertools.pairwise(sizes)] == [key_bytes(PLAIN)] * 2


@pytest.mark.parametrize("name", ["x" * (limits.MAX_NAME + 1), "\ud800", "a\x1b[2Jb", "a\n", 7, None, ["a"]], ids=ascii)
@pytest.mark.parametrize("field", ["name", "module", "inputs"])
def test_names_are_short_and_printable(name: object, field: str) -> None:
    data = manifest.to_dict(program(small()))
    data["nodes"][1][field] = [name] if field == "inputs" else name
    with pytest.raises(RuleError, match="printable string of at most 256 characters: got") as caught:
        manifest.from_dict(data)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", [limits.MAX_INTEGER + 1, -limits.MAX_INTEGER - 1, 10**4299])
def test_numbers_have_62_bits(value: int) -> None:
    for path in (("low",), ("layer", "block_size")):
        data = manifest.to_dict(program(small()))
        place = data["nodes"][len(path) - 1]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(RuleError, match=r"must be a 62-bit integer: got one of \d+ bits"):
            manifest.from_dict(data)


@pytest.mark.parametrize(
    ("path", "count"),
    [
        (("nodes",), 4097),
        (("nodes", 1, "shape"), 65),
        (("nodes", 1, "inputs"), 65),
        (("nodes", 1, "layer", "tile"), 65),
        (("nodes", 1, "layer", "pieces"), 4097),
        (("parameters", "coefficient_bits"), 10**5),
    ],
)
def test_lists_are_short(path: tuple[str | int, ...], count: int) -> None:
    data = json.loads(json.dumps(manifest.to_dict(program(small()))))
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = place[path[-1]][:1] * count
    with pytest.raises(RuleError, match=rf"a list of at most (64|4096) here: got {count} items"):
        manifest.from_dict(data)


def test_limits_are_inclusive() -> None:
    assert column(spectral_pieces.MAX_TILES, 1).size_excess == ""
    assert column(4, 1, spectral_pieces.MAX_PIECES).size_excess == ""


def test_products_are_at_most_counted() -> None:
    """The count is without what a corner saves, and never too small."""
    padded = gemm(4, 5, 3, Piece(1, 4, 8, 2))
    assert padded.pmults <= padded.most_products == 4
    whole = paper_layer(LinearShape.gemm(65, 24, 12), 2, N)
    assert whole.most_products == whole.pmults
