"""Products of two values on shares."""

import numpy as np
import pytest

from privcirnet.he.bfv.engines import ENGINES, engine_of
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.program.operations import MatMul
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.product import ProductExchange
from tests.he.insecure import insecure_parameters
from tests.he.networks import attention, random_image
from tests.he.parties import check, parties
from tests.he.protocol.uniformity import LIMIT, REPLIES, pairwise, worst_chi_square


def test_every_slot_of_a_product_is_uniform() -> None:
    """Of both terms' replies together: neither term nor slot tells anything."""
    left, right, n = (4, 3, 1), (4, 2, 1), 64
    shapes = LinearShape.product(left, right, 2), LinearShape.product(right, left, 2)
    factors = MatMul(*(SpectralLayer(shape, 1, n, (1, 1), (Piece(2, shape.height, 4, 2),)) for shape in shapes))
    parameters = insecure_parameters(n, None, 20)
    client, server = engine_of("cleartext").parties(parameters)
    t = parameters.plain_modulus
    steps = factors.left.column_steps | factors.right.column_steps
    keys = server.load_keys(client.public_keys(steps), steps)
    pair = np.arange(1, 13, dtype=np.uint64).reshape(left), np.arange(1, 9, dtype=np.uint64).reshape(right)
    exchange, held = ProductExchange(factors), PreparedNode(bias=np.arange(4))
    request, found = exchange.request(pair, client), []
    for _ in range(REPLIES):
        messages, _ = exchange.reply(held, pair, request, server, keys)
        found.append(np.concatenate([client.decrypt(m) for m in messages]))
    samples = np.stack(found)
    assert samples.shape[1] == 2 * n
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT


@pytest.mark.parametrize("engine", ENGINES)
def test_attention_is_right_and_does_what_was_planned(engine: str) -> None:
    program = attention()
    client, session = parties(program, engine)
    check(program, client, session, random_image(program))
    products = [node for node in program.nodes if isinstance(node.operation, MatMul)]
    assert len(products) == 2
    for node in products:
        assert isinstance(node.operation, MatMul)
        layers, done = (node.operation.left, node.operation.right), session.preparation.counts[node.name]
        assert done["rotate"] == sum(layer.rotations for layer in layers) > 0
        assert done["pmult"] == sum(layer.pmults for layer in layers)


def test_the_plan_is_that_of_both_layers() -> None:
    for node in attention().nodes:
        if isinstance(node.operation, MatMul):
            plan, both = ProductExchange(node.operation).plan, (node.operation.left, node.operation.right)
            assert (plan.kind, plan.encoding, plan.block_size) == ("product", "cirencode", 1)
            assert plan.ciphertexts_up == sum(layer.ciphertexts_in for layer in both)
            assert plan.ciphertexts_down == sum(layer.ciphertexts_out for layer in both)
            assert (plan.rotations, plan.pmults) == tuple(
                sum(getattr(layer, name) for layer in both) for name in ("rotations", "pmults")
            )
