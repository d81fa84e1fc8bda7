"""An operation of two trips ahead and two online: it adds a public constant, in two parts that the server sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np
import pytest

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.packing import pack, unpack
from privcirnet.he.mpc.local.shares import from_bytes, to_bytes
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import KINDS, C_co, CostModel, Domain, Node, Shape, V, Weights
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.rounds.exchange import (
    SHARE,
    ClientShares,
    Correlation,
    Exchange,
    PreparedNode,
    RoundPlan,
    ServerShares,
    question,
)
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine
from privcirnet.he.protocol.schedule import EXCHANGES
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from tests.he.networks import network


@dataclass(frozen=True)
class Offset(op.Operation):
    """x + constant, by messages."""

    kind: ClassVar[str] = "offset"

    local = False
    masks = True
    needs_share = True

    constant: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.plus(arguments[0], np.array(self.constant))

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        return prices.messages(*(8 * prod(shape),) * 4)


@dataclass(frozen=True)
class OffsetOnline:
    """Each part of the constant comes under a mask of the server's, and goes back under one of the client's."""

    constant: int
    values: int

    @property
    def client_keeps(self) -> Mapping[str, int]:
        return {SHARE: self.values, "own": 2 * self.values, "theirs": 2 * self.values}

    @property
    def server_keeps(self) -> Mapping[str, int]:
        return {"own": 2 * self.values, "theirs": 2 * self.values}

    @property
    def chosen(self) -> bool:
        return True

    def turns(self, t: int) -> tuple[MessageSpec, ...]:
        return question(self.values, self.values, t) * 2

    def offline_shares(self, t: int) -> list[Residues | None]:
        return [None]

    def keep_client(self, share: Residues, result: Residues, t: int) -> Correlation:
        return {SHARE: share, **self.keep_server([], result, t)}

    def keep_server(self, offline_shares: Sequence[Residues | None], own: Residues, t: int) -> Correlation:
        mine, theirs = np.split(own, 2)
        return {"own": mine, "theirs": theirs}

    def client(self, kept: Correlation, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        (own, last), (theirs, others) = (np.split(kept[name], 2) for name in ("own", "theirs"))
        (asked,) = yield []
        first = modular.subtract(unpack(asked, own.shape, t), theirs, t)
        (asked,) = yield [pack(modular.add(first, own, t), t)]
        second = modular.subtract(unpack(asked, own.shape, t), others, t)
        terms = modular.subtract(shares[0].reshape(-1), kept[SHARE], t)
        yield [pack(modular.add(modular.add(second, last, t), terms, t), t)]

    def server(
        self, layer: ClearLinear | None, kept: Correlation, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        total, half = shares[0].reshape(-1), self.constant // 2
        masks = (np.split(kept[name], 2) for name in ("own", "theirs"))
        for part, own, theirs in zip((half, self.constant - half), *masks, strict=True):
            sent = modular.add(modular.residues(np.full(own.shape, part), t), own, t)
            (answer,) = yield [pack(sent, t)]
            total = modular.add(total, modular.subtract(unpack(answer, own.shape, t), theirs, t), t)
        return total.reshape(shares[0].shape)


@dataclass(frozen=True)
class OffsetExchange(Exchange):
    """Ahead each party sends the other two masks, one a trip."""

    constant: int
    values: int

    @property
    def plan(self) -> RoundPlan:
        size = (8 * self.values,)
        return RoundPlan("offset", "masks", (MessageSpec("client", 0, size), MessageSpec("server", 0, size)) * 2)

    @property
    def online(self) -> OffsetOnline:
        return OffsetOnline(self.constant, self.values)

    def noise_bits(self, parameters: Parameters) -> int:
        return 0

    def client(self, shares: ClientShares, engine: ClientEngine, transfers: Any) -> PartyCoroutine[Residues]:
        t, theirs = engine.parameters.plain_modulus, list[Residues]()
        own = sampling.uniform((2, self.values), t)
        for mask in own:
            (part,) = yield [to_bytes(mask)]
            theirs.append(from_bytes(part, mask.shape, t))
        return np.concatenate([*own, *theirs])

    def server(
        self, held: PreparedNode, shares: ServerShares, engine: ServerEngine, keys: EvaluationKeys, transfers: Any
    ) -> PartyCoroutine[Residues]:
        t, theirs, told = engine.parameters.plain_modulus, list[Residues](), (yield [])
        own = sampling.uniform((2, self.values), t)
        for mask in own:
            theirs.append(from_bytes(told[0], mask.shape, t))
            told = yield [to_bytes(mask)]
        return np.concatenate([*own, *theirs])


def with_offsets() -> Program:
    """A network with two of them, one after the other."""
    program = network()
    nodes = {node.name: node for node in program.nodes}
    before = nodes["square_t"]
    first = Node("offset", Offset(-7), (before.name,), before.shape, before.log_step)
    toys = first, replace(first, name="again", operation=Offset(4), inputs=("offset",))
    index = program.nodes.index(nodes["second"])
    second = replace(nodes["second"], inputs=("again",))
    return replace(program, nodes=(*program.nodes[:index], *toys, second, *program.nodes[index + 1 :]))


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> Program:
    """A network with them, where they are known."""

    def made(operation: Any, shape: Shape, parameters: Parameters) -> OffsetExchange:
        return OffsetExchange(operation.constant, prod(shape))

    monkeypatch.setitem(KINDS, "offset", Offset)
    monkeypatch.setitem(EXCHANGES, Offset, made)
    return with_offsets()
