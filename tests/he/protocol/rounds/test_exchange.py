"""The table of rounds: it is complete, a new operation is one line, an unknown one is an error everywhere."""

import json
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.mpc.local import shares
from privcirnet.he.program import manifest
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import KINDS, Node, Weights
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing import message_sizes
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.he.protocol.rounds import exchanges
from privcirnet.he.protocol.rounds.exchange import ClientShares, Held, RoundPlan, ServerShares
from privcirnet.he.protocol.rounds.exchanges import EXCHANGES, exchange_of, exchanges_of
from privcirnet.he.protocol.rounds.online_phase import Online
from privcirnet.he.protocol.rounds.square import SquareExchange
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.schemes.bfv.parameters import Parameters
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import How
from tests.he.networks import attention, network, random_image, revealing
from tests.he.parties import check, parties


@dataclass(frozen=True)
class Toy(op.Square):
    """A square for the program, with a round of its own."""


@dataclass(frozen=True)
class ToyExchange:
    """A square that hides nothing: the client sends its share in clear, the server a share of the result."""

    values: int

    @property
    def plan(self) -> RoundPlan:
        return RoundPlan("toy", "in clear", ciphertexts_up=1, shares_down=self.values)

    @property
    def online(self) -> Online:
        return SquareExchange(self.values, 8192).online

    def noise_bits(self, parameters: Parameters) -> int:
        return 0

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        mask_bound: int | None,
        engine: ServerEngine,
        name: str,
    ) -> Held:
        return Held(mask_bound=mask_bound)

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        return [shares[0].tobytes()]

    def reply(
        self, held: Held, shares: ServerShares, messages: list[bytes], engine: ServerEngine, keys: EvaluationKeys
    ) -> tuple[list[bytes], Residues]:
        (share,), t = shares, engine.parameters.plain_modulus
        x = modular.add(share, np.frombuffer(messages[0], dtype=np.uint64).reshape(share.shape), t)
        own = sampling.uniform(share.shape, t)
        return [modular.subtract(modular.multiply(x, x, t), own, t).tobytes()], own

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        return np.frombuffer(messages[0], dtype=np.uint64).reshape(shares[0].shape)


def with_toy() -> Program:
    """A network whose square is a toy."""
    program = network()
    nodes = [Node(n.name, Toy(), n.inputs, n.shape, n.log_step) if n.name == "square" else n for n in program.nodes]
    return Program(tuple(nodes), program.parameters, program.weights, program.masks)


def test_every_operation_takes_a_round_or_is_local() -> None:
    assert {kind for kind in KINDS.values() if not kind.local} == set(EXCHANGES)


@pytest.mark.parametrize("program", [network(), attention(), revealing()], ids=["network", "attention", "revealing"])
def test_exchanges_are_those_of_the_nodes_that_are_not_local(program: Program) -> None:
    found = exchanges_of(program)
    assert list(found) == [node.name for node in program.nodes if type(node.operation) in EXCHANGES]
    for node in program.nodes:
        assert exchange_of(node, program.parameters) == found.get(node.name)
        plan = found[node.name].plan if node.name in found else None
        assert plan is None or plan.parts_down == plan.ciphertexts_down + (plan.shares_down > 0) > 0
        assert plan is None or plan.shares_down in (0, prod(node.shape))


def test_a_new_operation_with_a_round_is_one_line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client, server, sizes and reports learn of it from there; its name on the wire is the program's business."""
    program = with_toy()
    monkeypatch.setitem(exchanges.EXCHANGES, Toy, lambda operation, shape, parameters: ToyExchange(prod(shape)))
    monkeypatch.setitem(KINDS, "toy", Toy)
    client, session = parties(program, "cleartext")
    traffic = check(program, client, session, random_image(program))
    prepare(client, session)
    assert len(check(program, client, session, random_image(program))) == message_sizes.rounds_online(program)
    assert len(traffic) == message_sizes.rounds(program) == message_sizes.rounds(network())
    found = next(t for t in traffic if program.nodes[t.position].name == "square")
    assert found.up == found.down == 8 + 4 + 8 * 8 * 4 * 4
    assert found.down <= message_sizes.largest(program).reply
    evaluation = evaluate(Interactive(program), random_image(program)[None], How("cleartext"))
    assert evaluation.wrong == [[]]
    assert "square" in evaluation.parties.client.meter.seconds


def test_an_operation_without_an_exchange_is_refused_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    program, rule = with_toy(), "operation that is not local must have an exchange: got Toy at node square"
    monkeypatch.setitem(KINDS, "toy", Toy)
    toy = next(node for node in program.nodes if node.name == "square")
    share = np.zeros(toy.shape, dtype=np.uint64)
    for unknown in (
        lambda: exchange_of(toy, program.parameters),
        lambda: message_sizes.rounds(program),
        lambda: message_sizes.largest(program),
        lambda: Server(program, "cleartext"),
        lambda: Client(json.dumps(manifest.to_dict(program)).encode(), "cleartext"),
    ):
        with pytest.raises(RuleError, match=rule):
            unknown()
    for party in (
        lambda: shares.local_client(program, toy, [share]),
        lambda: shares.local_server(program, toy, {toy.inputs[0]: share}),
    ):
        with pytest.raises(RuleError, match="a party's share cannot have squares here: got toy 'square'"):
            party()
