"""Squares on shares."""

import numpy as np
import pytest

from privcirnet.he.bfv import batching
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.layers import subring
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.product import SquareExchange
from privcirnet.he.ring import modular, sampling
from tests.he.insecure import insecure_parameters
from tests.he.protocol.uniformity import LIMIT, REPLIES, pairwise, worst_chi_square

N = 64


def test_every_slot_of_a_square_is_uniform() -> None:
    parameters = insecure_parameters(N, None, 20)
    client, server = engine_of("cleartext").parties(parameters)
    t, share = parameters.plain_modulus, np.arange(1, N + 6, dtype=np.uint64)
    exchange = SquareExchange(N + 5, N)
    request, kept, found = exchange.request([share], client), subring.kept(N + 5, N), []
    for _ in range(REPLIES):
        messages, _ = exchange.reply(PreparedNode(), [share], request, server, frozenset())
        slots = [client.decrypt(m, places) for m, places in zip(messages, kept, strict=True)]
        sent = [batching.slots_to_coefficients(row, t)[places] for row, places in zip(slots, kept, strict=True)]
        found.append(np.concatenate(sent))
    samples = np.stack(found)
    assert samples.shape[1] == N + 8
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT


@pytest.mark.parametrize("shape", [(1,), (3, 4, 5), (N,), (2, N, 1), (N + 5,)])
def test_values_are_squared(shape: tuple[int, ...]) -> None:
    """In as many ciphertexts as planned, one product each."""
    parameters = insecure_parameters(N, None, 20)
    client, server = engine_of("cleartext").parties(parameters)
    t, x = parameters.plain_modulus, np.arange(np.prod(shape)).reshape(shape) - 2
    theirs = sampling.uniform(shape, t)
    ours, exchange = modular.subtract(modular.residues(x, t), theirs, t), SquareExchange(x.size, N)
    request = exchange.request([ours], client)
    replies, own = exchange.reply(PreparedNode(), [theirs], request, server, frozenset())
    found = modular.add(exchange.finish([ours], replies, client), own, t)
    assert (modular.centered(found, t) == x * x).all()
    counts = exchange.plan.ciphertexts_up, exchange.plan.ciphertexts_down, exchange.plan.pmults
    assert counts == (len(request), len(replies), server.counts["pmult"])
    assert exchange.plan.rotations == server.counts["rotate"] == 0
