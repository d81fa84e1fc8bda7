"""Small integer networks that use every operation."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import candidate_layers, plan_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.operation import NO_ROWS, Node, Weights
from privcirnet.he.program.operations import (
    Add,
    Input,
    Linear,
    MatMul,
    Square,
    SumPool,
    Truncate,
)
from privcirnet.he.program.program import Program
from privcirnet.he.program.rearrangement import AsStrided, Flatten, SliceChannels, Take, Tokens, Transpose
from tests.he.exchange import random_rows
from tests.he.layer_examples import paper_layer

N = 8192
SECOND = (Piece(1, 3, 8, 2, folds_on_shares=False), Piece(1, 1, 16, 1, copies=2, giants_on_shares=True))
"""Four tiles in two unlike pieces: baby and giant steps under encryption, copies, sums on shares."""
DEPTH = (*(Piece(4, 2, 1, 1),) * 2, Piece(4, 1, 4, 1), Piece(4, 1, 8, 1))
"""Twelve channels one by one, two tiles of each: both tiles of twice four together, those of four others apart."""


def network(plain_bits: int = 46, seed: int = 0, divisor: int = 1) -> Program:
    """Strided convolution, square, tiled convolution with a residual sum, pooling, flattening, linear layer."""
    first = paper_layer(LinearShape(8, 8, 4, 8, 3, 2, 1), 2, N)
    second = SpectralLayer(LinearShape(4, 4, 8, 8, 3, 1, 1), 2, N, (2, 3), SECOND)
    head = paper_layer(LinearShape.gemm(1, 32, 10), 2, N)
    maps = (8, 4, 4)
    nodes = (
        Node("x", Input(-8, 15), (), (4, 8, 8), -4),
        Node("first", Linear(first), ("x",), maps, -8),
        Node("first_t", Truncate(4), ("first",), maps, -4),
        Node("square", Square(), ("first_t",), maps, -8),
        Node("square_t", Truncate(6), ("square",), maps, -2),
        Node("second", Linear(second), ("square_t",), maps, -6),
        Node("second_t", Truncate(4), ("second",), maps, -2),
        Node("sum", Add(), ("second_t", "square_t"), maps, -2),
        Node("pool", SumPool(2), ("sum",), (8, 2, 2), -4),
        Node("flat", Flatten(), ("pool",), (32, 1, 1), -4),
        Node("head", Linear(head), ("flat",), (10, 1, 1), -8),
    )
    return with_weights(nodes, plain_bits, seed, divisor)


def bottleneck(seed: int = 0) -> Program:
    """MobileNetV2's: expand, square, depthwise with a stride on a map of odd size, project, residual, expand again."""
    expand, again = (paper_layer(LinearShape(size, size, 6, 12), 3, N) for size in (7, 4))
    depth = SpectralLayer(LinearShape(7, 7, 12, 12, 3, 2, 1, groups=12), 1, N, (3, 4), DEPTH)
    project, side = (paper_layer(LinearShape(*size), 3, N) for size in ((4, 4, 12, 6), (7, 7, 6, 6, 1, 2)))
    nodes = (
        Node("x", Input(-8, 15), (), (6, 7, 7), -4),
        Node("side", Linear(side), ("x",), (6, 4, 4), -8),
        Node("side_t", Truncate(6), ("side",), (6, 4, 4), -2),
        Node("expand", Linear(expand), ("x",), (12, 7, 7), -8),
        Node("expand_t", Truncate(4), ("expand",), (12, 7, 7), -4),
        Node("square", Square(), ("expand_t",), (12, 7, 7), -8),
        Node("square_t", Truncate(6), ("square",), (12, 7, 7), -2),
        Node("depth", Linear(depth), ("square_t",), (12, 4, 4), -6),
        Node("depth_t", Truncate(6), ("depth",), (12, 4, 4), 0),
        Node("project", Linear(project), ("depth_t",), (6, 4, 4), -4),
        Node("project_t", Truncate(2), ("project",), (6, 4, 4), -2),
        Node("sum", Add(), ("project_t", "side_t"), (6, 4, 4), -2),
        Node("again", Linear(again), ("sum",), (12, 4, 4), -6),
    )
    return with_weights(nodes, 46, seed)


def residual_of_the_image() -> Program:
    """The image itself is a summand: a value of which the server has no share."""
    shape = LinearShape(4, 4, 4, 4, 3, 1, 1)
    same = (4, 4, 4)
    nodes = (
        Node("x", Input(-8, 15), (), same, 0),
        Node("twice", Add(), ("x", "x"), same, 0),
        Node("conv", Linear(paper_layer(shape, 2, N)), ("twice",), same, 0),
        Node("sum", Add(), ("conv", "x"), same, 0),
        Node("square", Square(), ("sum",), same, 0),
    )
    return with_weights(nodes, 46, 0)


def attention(seed: int = 0) -> Program:
    """A transformer's: patches, tokens, queries, keys and values of two heads, a product, a square, a product, a token."""
    patches = paper_layer(LinearShape(4, 4, 2, 8, 2, 2), 2, N)
    qkv, head = (paper_layer(LinearShape.gemm(*size), 2, N) for size in ((5, 8, 24), (1, 8, 4)))
    tokens, square, turned = (8, 5, 1), (10, 5, 1), (10, 4, 1)
    last, places = (8, 1, 1), (8, 2, 2)
    nodes = (
        Node("x", Input(-3, 4), (), (2, 4, 4), -2),
        Node("patches", Linear(patches), ("x",), places, -6),
        Node("patches_t", Truncate(5), ("patches",), places, -1),
        Node("tokens", Tokens(), ("patches_t",), tokens, -1),
        Node("all", Linear(qkv), ("tokens",), (24, 5, 1), -5),
        *(Node(name, SliceChannels(8 * i, 8), ("all",), tokens, -5) for i, name in enumerate("qkv")),
        *(Node(f"{name}_t", Truncate(7 + i), (name,), tokens, 2 + i) for i, name in enumerate("qkv")),
        Node("scores", product(tokens, tokens, 2), ("q_t", "k_t"), square, 5),
        Node("scores_t", Truncate(5), ("scores",), square, 10),
        Node("square", Square(), ("scores_t",), square, 20),
        Node("square_t", Truncate(4), ("square",), square, 24),
        Node("turned", Transpose(2), ("v_t",), turned, 4),
        Node("gathered", product(square, turned, 2), ("square_t", "turned"), tokens, 28),
        Node("gathered_t", Truncate(6), ("gathered",), tokens, 34),
        Node("token", Take(1), ("gathered_t",), last, 34),
        Node("reversed", AsStrided(last, 7, (8,), (-1,)), ("token",), last, 34),
        Node("head", Linear(head), ("reversed",), (4, 1, 1), 30),
    )
    return with_weights(nodes, 46, seed)


def product(left: tuple[int, int, int], right: tuple[int, int, int], groups: int) -> MatMul:
    """The first layer with the plan that rotates most, the second with sums on shares."""
    shapes = LinearShape.product(left, right, groups), LinearShape.product(right, left, groups)
    restless = max(candidate_layers(shapes[0], 1, N), key=lambda layer: layer.rotations)
    calm = plan_layer(shapes[1], 1, Objective(replace(COUNTED, ring_degree=N), LINKS["local"], "shares")).layer
    assert isinstance(calm, SpectralLayer)
    return MatMul(restless, calm)


def random_image(program: Program, seed: int = 0) -> Values:
    node = program.nodes[0]
    assert isinstance(node.operation, Input)
    return np.random.default_rng(seed).integers(node.operation.low, node.operation.high + 1, node.shape)


def with_weights(nodes: Iterable[Node], plain_bits: int, seed: int, divisor: int = 1) -> Program:
    """Random ones, and the smallest parameters that do; t - 1 is a multiple of the divisor."""
    nodes, weights, lengths = tuple(nodes), {}, {divisor}
    random = np.random.default_rng(seed)
    for node in nodes:
        if isinstance(node.operation, Linear):
            layer = node.operation.layer
            rows = random_rows(layer.shape, layer.block_size, int(random.integers(1000)), 15)
            weights[node.name] = Weights(rows, random.integers(-50, 50, layer.shape.out_channels))
        elif shapes := node.operation.tensors(node.shape):
            weights[node.name] = Weights(NO_ROWS, random.integers(-9, 10, shapes["bias"]))
        for layer in node.operation.layers:
            lengths |= layer.transform_lengths
    return Program(nodes, choose(lengths, plain_bits), weights)
