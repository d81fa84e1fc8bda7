"""Functions that the client computes in clear."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.engines import ENGINES, engine_of
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import ClientAided
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.protocol.rounds.client_aided import ClientAidedExchange
from privcirnet.he.protocol.rounds.exchange import Held
from privcirnet.he.ring import modular, sampling
from privcirnet.runs import audit
from tests.he.insecure import insecure_parameters
from tests.he.networks import random_image, revealing
from tests.he.parties import parties

RELU = ClientAided("relu", -4, 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("function", ["relu", "gelu"])
def test_both_parties(engine: str, function: str) -> None:
    program = revealing(function)
    client, session = parties(program, engine)
    for seed in range(2):
        image = random_image(program, seed)
        logits, traffic = run(client, session, image)
        values = audit.reconstruct(program, client.shares, session.shares)
        assert audit.wrong_nodes(program, values) == []
        assert (interpret(program, image, lambda node, _, v=values: v[node.name])["head"] == logits).all()
        assert [t.down for t in traffic if t.position in (3, 7)] == [len(wire.frame(3, [bytes(8 * 128)]))] * 2
    assert session.shares["act"] is None, "the server has no share of what the client computed"


@pytest.mark.parametrize("wrong", [bytes(8), b"\xff" * (8 * 128)])
def test_a_share_that_is_none_is_refused(wrong: bytes) -> None:
    program = revealing()
    client, session = parties(program, "cleartext")
    exchange = client.infer(random_image(program))
    assert exchange.send(session.handle(next(exchange))) == wire.frame(3, [])
    with pytest.raises(RuleError, match=r"a share must"):
        exchange.send(wire.frame(3, [wrong]))


def test_the_server_sends_its_share_and_keeps_none() -> None:
    """No ciphertext either way: the reply is one part, a word a value."""
    parameters = insecure_parameters(64, None, 20)
    client, server = engine_of("cleartext").parties(parameters)
    t, x = parameters.plain_modulus, np.arange(-12, 12).reshape(2, 3, 4)
    theirs = sampling.uniform(x.shape, t)
    ours, exchange = modular.subtract(modular.residues(x, t), theirs, t), ClientAidedExchange(RELU, x.size)
    assert exchange.request([ours], client) == []
    replies, own = exchange.reply(Held(), [theirs], [], server, frozenset())
    assert own is None
    assert replies == [theirs.astype("<u8").tobytes()]
    assert (modular.centered(exchange.finish([ours], replies, client), t) == np.maximum(x, 0)).all()
    plan = exchange.plan
    assert (plan.kind, plan.encoding, plan.ciphertexts_up, plan.ciphertexts_down) == ("relu", "in clear", 0, 0)
    assert (plan.rotations, plan.pmults, plan.ahead) == (0, 0, False)
    assert [(turn.parts, turn.octets) for turn in plan.turns] == [(0, ()), (1, (8 * x.size,))]
