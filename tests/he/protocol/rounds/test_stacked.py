"""The round of a layer for several images together: each image's result, over every engine, and which rounds there are."""

from dataclasses import replace

import numpy as np
import pytest

from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.layer import Stack, stacked_shape
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.operations import Linear
from privcirnet.he.protocol.rounds.batches import BatchedExchange
from privcirnet.he.protocol.rounds.linear import LinearExchange, StackedExchange
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import modular, sampling
from tests.he.exchange import random_input, random_rows, slow_layer
from tests.he.layer_examples import paper_layer
from tests.he.networks import N, bottleneck

SHAPES = [
    (LinearShape(4, 4, 8, 16, 3, 1, 1), 4),
    (LinearShape(5, 5, 6, 6, 3, 2, 1, 6), 1),
    (LinearShape.gemm(5, 8, 12), 2),
]


def stacked(shape: LinearShape, b: int, images: int, least: int = 2) -> LinearExchange:
    return LinearExchange(
        paper_layer(shape, b, N), Stack(images, least, paper_layer(stacked_shape(shape, images), b, N))
    )


@pytest.mark.parametrize("engine", ["cleartext", "kernel", "tenseal"])
@pytest.mark.parametrize(("shape", "b"), SHAPES)
@pytest.mark.parametrize(("images", "maps"), [(3, False), (2, True)])
def test_each_images_result(engine: str, shape: LinearShape, b: int, images: int, maps: bool) -> None:
    """Of a stack that is full and of one that is not, with a bias for each channel and with one for each value."""
    whole = stacked(shape, b, 3).stack
    assert whole is not None
    exchange, steps = StackedExchange(shape, whole, images), whole.layer.column_steps
    parameters = choose(whole.layer.transform_lengths | {1}, 46)
    client, server, t = (
        engine_of(engine).client(parameters),
        engine_of(engine).server(parameters),
        parameters.plain_modulus,
    )
    keys = server.load_keys(client.public_keys(steps), steps)
    rows, bias = random_rows(shape, b), np.arange(shape.out_channels)
    given = np.broadcast_to(bias[:, None, None], shape.output_shape).copy() if maps else bias
    held = exchange.prepare(Weights(rows, given), None, server, "")
    x = np.stack([random_input(shape, seed) for seed in range(images)])
    theirs = sampling.uniform(x.shape, t)
    ours = modular.subtract(modular.residues(x, t), theirs, t)
    request = exchange.request([ours], client)
    assert len(request) == exchange.plan.ciphertexts_up
    replies, own = exchange.reply(held, [theirs], request, server, keys)
    found = modular.centered(modular.add(exchange.finish([ours], replies, client), own, t), t)
    assert np.array_equal(found, [slow_layer(shape, b, rows, bias, one) for one in x])


def test_no_message_is_longer_than_both_know_it_may_be() -> None:
    """Seven images one after the other take more room than a stack of eight."""

    def stacks(node: Node) -> Node:
        if not isinstance(node.operation, Linear):
            return node
        layer = node.operation.layer
        whole = paper_layer(stacked_shape(layer.shape, 8), layer.block_size, N)
        return replace(node, operation=Linear(layer, Stack(8, 8, whole)))

    program = replace(bottleneck(), nodes=tuple(map(stacks, bottleneck().nodes)))
    most = schedule_of(program).sizes
    assert schedule_of(program).max_batch == 8
    for count in range(1, 9):
        for bundle in schedule_of(program).offline(count):
            ((up, down),) = bundle.trips
            assert (N * 8 * up.parts <= most.request, N * 8 * down.parts <= most.reply) == (True, True)


@pytest.mark.parametrize(
    ("count", "least", "sizes"),
    [(1, 2, [1]), (2, 3, [1, 1]), (3, 3, [3]), (5, 2, [4, 1]), (6, 2, [4, 2]), (8, 4, [4, 4]), (7, 3, [4, 3])],
)
def test_stacks_are_taken_as_far_as_they_pay(count: int, least: int, sizes: list[int]) -> None:
    exchange = stacked(*SHAPES[0], 4, least)
    together = BatchedExchange((exchange,), count)
    assert [len(part.images) for part in together.parts] == sizes
    assert [image for part in together.parts for image in part.images] == list(range(count))
    assert together.bytes_of(0, 1) == tuple(turn.ciphertexts for turn in together.trips[0])
    given = np.arange(count * 128, dtype=np.uint64).reshape(count, 8, 4, 4)
    shares = [share for (share,) in together.shares([[given]]) if share is not None]
    assert [share.ndim for share in shares] == [4 if size > 1 else 3 for size in sizes]
    assert np.array_equal(together.results(shares)[0], given)
    alone = BatchedExchange((replace(exchange, stack=None),), count)
    assert [len(part.images) for part in alone.parts] == [1] * count
