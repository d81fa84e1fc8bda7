"""The table of rounds: it is complete, a new operation is one line, an unknown one is an error everywhere."""

import json
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.mpc.local import shares
from privcirnet.he.program import manifest
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import KINDS, Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import schedule
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.he.protocol.rounds.exchange import (
    ClientShares,
    Exchange,
    OnlinePhase,
    PreparedNode,
    RoundPlan,
    ServerShares,
)
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine, trips
from privcirnet.he.protocol.rounds.product import SquareExchange
from privcirnet.he.protocol.schedule import EXCHANGES, exchange_of, schedule_of
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import RunOptions
from tests.he.networks import attention, network, random_image
from tests.he.parties import check, parties


@dataclass(frozen=True)
class Toy(op.Square):
    """A square for the program, with a round of its own."""

    kind: ClassVar[str] = "toy"


@dataclass(frozen=True)
class ToyExchange(Exchange):
    """A square that hides nothing, in two trips: of the first half of the values, and of the others."""

    values: int

    @property
    def plan(self) -> RoundPlan:
        sizes = 8 * (self.values // 2), 8 * (self.values - self.values // 2)
        turns = [(MessageSpec("client", octets=(size,)), MessageSpec("server", octets=(size,))) for size in sizes]
        return RoundPlan("toy", "in clear", (*turns[0], *turns[1]))

    @property
    def online(self) -> OnlinePhase:
        return SquareExchange(self.values, 8192).online

    def noise_bits(self, parameters: Parameters) -> int:
        return 0

    def client(self, shares: ClientShares, engine: ClientEngine, transfers: Any) -> PartyCoroutine[Residues]:
        found = list[bytes]()
        for half in self._halves(shares[0]):
            found += yield [half.tobytes()]
        return np.frombuffer(b"".join(found), dtype=np.uint64).reshape(shares[0].shape)

    def server(
        self, held: PreparedNode, shares: ServerShares, engine: ServerEngine, keys: EvaluationKeys, transfers: Any
    ) -> PartyCoroutine[Residues]:
        share, t = shares[0], engine.parameters.plain_modulus
        own = sampling.uniform((self.values,), t)
        (message,) = yield []
        for half, masks in zip(self._halves(share), self._halves(own), strict=True):
            x = modular.add(half, np.frombuffer(message, dtype=np.uint64), t)
            told = yield [modular.subtract(modular.multiply(x, x, t), masks, t).tobytes()]
            message = told[0] if told else b""
        return own.reshape(share.shape)

    def _halves(self, values: Residues) -> list[Residues]:
        return np.split(values.reshape(-1), [self.values // 2])


def with_toy() -> Program:
    """A network whose square is a toy."""
    program = network()
    nodes = [Node(n.name, Toy(), n.inputs, n.shape, n.log_step) if n.name == "square" else n for n in program.nodes]
    return Program(tuple(nodes), program.parameters, program.weights)


def test_every_operation_takes_a_round_or_is_local() -> None:
    assert {kind for kind in KINDS.values() if not kind.local} == set(EXCHANGES)


@pytest.mark.parametrize("program", [network(), attention()], ids=["network", "attention"])
def test_exchanges_are_those_of_the_nodes_that_are_not_local(program: Program) -> None:
    found = schedule_of(program).exchanges
    assert list(found) == [node.name for node in program.nodes if type(node.operation) in EXCHANGES]
    for node in program.nodes:
        assert exchange_of(node, program) == found.get(node.name)
        if node.name in found:
            ((request, reply),) = trips(found[node.name].plan.turns)
            assert (request.octets, reply.parts > 0) == ((), True)
            assert reply.octets in ((), (8 * prod(node.shape),))


def test_a_new_operation_with_a_round_is_one_line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client, server, sizes and reports learn of it from there; its name on the wire is the program's business."""
    program = with_toy()
    monkeypatch.setitem(schedule.EXCHANGES, Toy, lambda operation, shape, parameters: ToyExchange(prod(shape)))
    monkeypatch.setitem(KINDS, "toy", Toy)
    client, session = parties(program, "cleartext")
    traffic = check(program, client, session, random_image(program))
    prepare(client, session)
    assert len(check(program, client, session, random_image(program))) == schedule_of(program).rounds_online
    assert len(traffic) == schedule_of(program).rounds == schedule_of(network()).rounds + 1
    found = [t for t in traffic if t.position == 3]
    assert program.nodes[3].name == "square"
    assert len(found) == 3, "two ahead, one online"
    evaluation = evaluate(Interactive(program), random_image(program)[None], RunOptions("cleartext"))
    assert evaluation.wrong == [[]]
    assert "square" in evaluation.parties.client.meter.seconds


def test_an_operation_without_an_exchange_is_refused_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    program, rule = with_toy(), "operation that is not local must have an exchange: got Toy at node square"
    monkeypatch.setitem(KINDS, "toy", Toy)
    toy = next(node for node in program.nodes if node.name == "square")
    share = np.zeros(toy.shape, dtype=np.uint64)
    for unknown in (
        lambda: exchange_of(toy, program),
        lambda: schedule_of(program).rounds,
        lambda: schedule_of(program).sizes,
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
