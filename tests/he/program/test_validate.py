"""What a program's nodes must fit together by, asked of programs that were never described."""

import time
import tracemalloc

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.layer import Stack, stacked_shape
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.program import manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Add, Input, Linear, Square, SumPool
from privcirnet.he.program.program import Program
from tests.he.layer_examples import paper_layer
from tests.he.networks import network
from tests.he.program.test_manifest import HUGE, N, around, valid


def with_nodes(*nodes: Node) -> Program:
    return Program((Node("x", Input(0, 9), (), (4, 8, 8), 0), *nodes), valid().parameters)


def test_operations_that_need_a_share_do_not_get_the_bare_input() -> None:
    """The server has no share of the image, nor of sums over it alone."""
    same = (4, 8, 8)
    bare = Node("twice", Add(), ("x", "x"), same, 0), Node("pool", SumPool(2), ("twice",), (4, 4, 4), 0)
    for before, source in (((), "x"), (bare[:1], "twice"), (bare, "pool")):
        shape = (4, 4, 4) if source == "pool" else same
        with pytest.raises(RuleError, match="node sq: square of the image itself"):
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


MANY = 1 << 22
"""As many tiles or channels as one node may have values, with a few of each to spare."""
ONE, COLUMN = (Piece(1, 1, 1, 1),), LinearShape(MANY, 1, 1, 1, 3, 1, 1)
OUTSIZED = {
    "a tile for every position": (COLUMN, 1, (1, 1), ONE),
    "tiles of one in both directions": (LinearShape(2048, 2048, 1, 1, 3, 1, 1), 1, (1, 1), ONE),
    "more pieces than any layer needs": (LinearShape.gemm(1 << 20, 1, 1), 1, (1, 1), ONE * (1 << 20)),
    "all tiles in one lane": (LinearShape.gemm(MANY, 1, 1), 1, (1, 1), (Piece(1, MANY, 1, 1),)),
    "one block as large as the layer": (LinearShape.gemm(1, MANY, MANY), MANY, (1, 1), ONE),
    "a matrix of all blocks": (LinearShape.gemm(1, MANY, MANY), 1, (1, 1), (Piece(1, 1, 4096, 1),)),
    "a kernel over the whole map": (LinearShape(2048, 2048, 1, 1, 2047, 1, 1023), 1, (2048, 2048), ONE),
    "inputs": (LinearShape.gemm(1, HUGE, 10), 1, (1, 1), ONE),
    "outputs": (LinearShape.gemm(1, 10, HUGE), 1, (1, 1), ONE),
    "tokens": (LinearShape.gemm(HUGE, 10, 10), 1, (HUGE, 1), ONE),
    "maps": (LinearShape(HUGE, HUGE, 1, 1, 3, 1, 1), 1, (HUGE, HUGE), ONE),
    "kernel": (LinearShape(1, 1, 1, 1, HUGE, HUGE, HUGE - 1), 1, (1, 1), ONE),
    "a long kernel": (LinearShape(1, 1, 1, 1, 4000, 4000, 3999), 1, (1, 1), ONE),
    "stride": (LinearShape(1, 1, 1, 1, 1, HUGE, 0), 1, (1, 1), ONE),
    "products": (LinearShape.gemm(1, 1 << 23, 1 << 23), 1, (1, 1), ONE),
}
"""(shape, block size, tile, pieces) that go together, and are too much."""


@pytest.mark.parametrize("case", OUTSIZED)
def test_outsized_layers_are_refused_at_once(case: str) -> None:
    """And without much memory."""
    shape, b, tile, pieces = OUTSIZED[case]
    program = around(SpectralLayer(shape, b, N, tile, pieces))
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(RuleError, match=r"node y|must"):
            manifest.check(program)
        assert time.perf_counter() - start < 1
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_of_what_the_client_knows_alone_there_is_no_share() -> None:
    image, parameters = network().nodes[0], network().parameters
    twice = Node("twice", Add(), (image.name, image.name), image.shape, image.log_step)
    squares = Node("squares", Square(), ("twice",), image.shape, 2 * image.log_step)
    with pytest.raises(
        RuleError, match="node squares: square of the image itself, which has no shares: begin with a layer"
    ):
        manifest.check(Program((image, twice, squares), parameters))
    with pytest.raises(RuleError, match="must have an input and a linear layer"):
        manifest.check(Program((image, twice), parameters))


SINGLE = paper_layer(LinearShape(4, 4, 8, 8, 3, 1, 1), 2, N)
THREE = paper_layer(stacked_shape(SINGLE.shape, 3), 2, N)
ROTATING = SpectralLayer(THREE.shape, 2, N, (4, 4), (Piece(1, 4, 16, 4),))


def with_stack(stack: Stack) -> Program:
    nodes = (
        Node("x", Input(0, 1), (), SINGLE.shape.input_shape, 0),
        Node("y", Linear(SINGLE, stack), ("x",), SINGLE.shape.output_shape, 0),
    )
    return Program(nodes, choose(SINGLE.transform_lengths | THREE.transform_lengths | ROTATING.transform_lengths, 50))


def test_stacks_are_described() -> None:
    program = with_stack(Stack(3, 2, THREE))
    manifest.check(program)
    assert manifest.from_dict(manifest.to_dict(program)) == program


@pytest.mark.parametrize(
    ("stack", "problem"),
    [
        (Stack(1, 1, SINGLE), "a stack of 1 images, from 1 on"),
        (Stack(3, 1, THREE), "a stack of 3 images, from 1 on"),
        (Stack(3, 4, THREE), "a stack of 3 images, from 4 on"),
        (Stack(9, 2, paper_layer(stacked_shape(SINGLE.shape, 9), 2, N)), "a stack of 9 images"),
        (Stack(1 << 60, 2, THREE), "a stack of 1152921504606846976 images"),
        (Stack(4, 2, THREE), "a stack of another layer"),
        (Stack(3, 2, paper_layer(THREE.shape, 1, N)), "a stack of another layer"),
        (Stack(3, 2, paper_layer(THREE.shape, 2, 2 * N)), "a stack made for ring degree 16384"),
        (Stack(3, 2, ROTATING), r"node y: \[\d+.*\]"),
    ],
)
def test_stacks_that_do_not_fit_are_refused(stack: Stack, problem: str) -> None:
    program = with_stack(stack)
    for check in (manifest.check, lambda each: manifest.from_dict(manifest.to_dict(each))):
        with pytest.raises(RuleError, match=problem):
            check(program)
