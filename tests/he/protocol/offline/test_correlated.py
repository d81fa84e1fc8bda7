"""Prepared inference: every operation and encoding against the integer network, without a ciphertext in the end."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.layers.layer import MOST_IMAGES
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local.packing import unpack
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.planning.stacks import with_stacks
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input, Linear, Square, Truncate
from privcirnet.he.program.program import ImpossibleResultError, Program
from privcirnet.he.program.rearrangement import SliceChannels
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.correlated import CorrelatedRandomness, CorrelationFormat
from privcirnet.he.protocol.offline.store import MemoryStore
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.protocol.rounds.exchange import SHARE
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import modular, sampling
from privcirnet.he.rlwe.parameters import MAX_LOG_Q
from tests.he.layer_examples import paper_layer
from tests.he.networks import (
    N,
    attention,
    bottleneck,
    network,
    random_image,
    residual_of_the_image,
    with_weights,
)
from tests.he.parties import check, parties, rounds
from tests.he.protocol.uniformity import LIMIT, REPLIES, pairwise, worst_chi_square

TOY = 128
"""An INSECURE ring degree."""


def parts() -> Program:
    """Layers with a stride, depthwise, of a part of the channels."""
    maps, first = (12, 5, 4), LinearShape(9, 7, 4, 12, 3, 2, 1)
    depth, last = LinearShape(5, 4, 12, 12, 3, 1, 1, 12), LinearShape(5, 4, 6, 4)
    nodes = (
        Node("x", Input(-8, 15), (), (4, 9, 7), -4),
        Node("first", Linear(paper_layer(first, 2, N)), ("x",), maps, -8),
        Node("first_t", Truncate(4), ("first",), maps, -4),
        Node("square", Square(), ("first_t",), maps, -8),
        Node("square_t", Truncate(6), ("square",), maps, -2),
        Node("depth", Linear(paper_layer(depth, 1, N)), ("square_t",), maps, -6),
        Node("half", SliceChannels(3, 6), ("depth",), (6, 5, 4), -6),
        Node("half_t", Truncate(6), ("half",), (6, 5, 4), 0),
        Node("last", Linear(paper_layer(last, 2, N)), ("half_t",), (4, 5, 4), -4),
    )
    return with_weights(nodes, 46, 0)


def stacked() -> Program:
    """Layers that take three images together, some of them two."""
    found = with_stacks(bottleneck(), COUNTED, LINKS["local"], 3, 1 << 40)
    node, _, stack = found.stacks[0]
    two = with_stacks(bottleneck(), COUNTED, LINKS["local"], 2, 1 << 40).nodes
    assert stack.images == 3
    return replace(found, nodes=tuple(b if a.name == node.name else a for a, b in zip(found.nodes, two, strict=True)))


NETWORKS = [network, bottleneck, residual_of_the_image, attention, parts, stacked]


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize(("engine", "count"), [("cleartext", 1), ("cleartext", 3), ("kernel", 2)])
def test_every_operation_and_encoding(engine: str, count: int, make: Any) -> None:
    """Of one image and of several at once: every node is the integer network's, the messages as many as both know."""
    program, most = make(), schedule_of(make()).sizes
    client, session = parties(program, engine)
    ahead = prepare(client, session, count)
    assert client.together == MOST_IMAGES
    assert client.preparation.seconds.keys() == {
        n for n, e in schedule_of(program).exchanges.items() if e.plan.ciphertexts_up
    }
    assert not client.meter.seconds
    for seed in range(count):
        traffic = check(program, client, session, random_image(program, seed))
        assert (client.waited, client.dropped, session.dropped) == (False, [], [])
        assert len(traffic) == schedule_of(program).rounds_online
        assert max(t.up for t in traffic + ahead) <= most.request
        assert max(t.down for t in traffic + ahead) <= most.reply
    assert session.meter.seconds.keys() >= session._server.prepared.keys()
    assert not session.meter.counts
    check(program, client, session, random_image(program, 9), "waited")


class Forbidden:
    """An engine that must not be called."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of an engine was called")


@pytest.mark.parametrize("make", NETWORKS)
def test_with_the_image_no_engine_is_called(make: Any) -> None:
    program = make()
    client, session = parties(program, "cleartext")
    prepare(client, session)
    client._engine = session._server.engine = Forbidden()  # type: ignore[assignment]
    check(program, client, session, random_image(program), "prepared")
    with pytest.raises(AssertionError, match="of an engine was called"):
        run(client, session, random_image(program))


def test_a_client_whose_prepared_work_is_all_it_has_makes_no_keys() -> None:
    """As one that begins anew with the store of another; the server needs no keys of it either."""
    program, stores = network(), (MemoryStore(), MemoryStore())
    server = Server(program, "cleartext")
    first = Client(server.greeting(), "cleartext", store=stores[0])
    prepare(first, server.session(first.keys(), stores[1]))
    again, session = Client(server.greeting(), "kernel", store=stores[0]), server.session(None, stores[1])
    check(program, again, session, random_image(program), "prepared")
    assert again._engine is None
    with pytest.raises(RuleError, match="a client without keys must have prepared work"):
        run(again, session, random_image(program))
    with pytest.raises(RuleError, match="a client without keys must have prepared work"):
        prepare(again, session)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Program:
    """Linear, truncation, square, truncation, linear of four values, under INSECURE parameters."""
    monkeypatch.setitem(MAX_LOG_Q, TOY, MAX_LOG_Q[8192])
    maps, layer = (4, 1, 1), paper_layer(LinearShape.gemm(1, 4, 4), 2, TOY)
    nodes = (
        Node("x", Input(-8, 15), (), maps, 0),
        Node("first", Linear(layer), ("x",), maps, 0),
        Node("first_t", Truncate(3), ("first",), maps, 3),
        Node("square", Square(), ("first_t",), maps, 6),
        Node("square_t", Truncate(3), ("square",), maps, 9),
        Node("last", Linear(layer), ("square_t",), maps, 9),
    )
    program = with_weights(nodes, 46, 0)
    return replace(program, parameters=replace(program.parameters, ring_degree=TOY))


def test_two_hundred_in_a_row(toy: Program) -> None:
    """Prepared eight at a time: each is right, and nothing is left."""
    client, session = parties(toy, "cleartext")
    stores = client._prepared.store, session._prepared.store
    for first in range(0, 200, 8):
        prepare(client, session, 8)
        assert [len(store.serials()) for store in stores] == [8, 8]
        assert [store.size for store in stores] == [8 * p.form.length for p in (client._prepared, session._prepared)]
        for seed in range(first, first + 8):
            check(toy, client, session, random_image(toy, seed), "prepared")
    assert [store.size for store in stores] == [0, 0]


def messages(client: Client, session: Session, image: np.ndarray) -> list[np.ndarray]:
    """What the parties send for an image: m, d, e and o."""
    t = client.program.parameters.plain_modulus
    found = [message for pair in rounds(session, client.infer(image)) for message in pair]
    parts = [wire.unframe(message, wire.position_of(message))[-1] for message in found]
    return [*(unpack(part, (4,), t) for part in parts[:-1]), np.frombuffer(parts[-1], dtype="<u8")]


@pytest.mark.parametrize("count", [1, 3])
def test_every_message_is_uniform_and_independent_of_the_others(toy: Program, count: int) -> None:
    """For one image, or several that were prepared at once: one by one, and in differences of every two.

    The result is the image's, so of the last message and the client's share only one is free.
    """
    t = toy.parameters.plain_modulus
    client, session = parties(toy, "cleartext")
    image, found = random_image(toy), []
    for _ in range(REPLIES):
        prepare(client, session, count)
        found.append(np.concatenate([part for _ in range(count) for part in messages(client, session, image)]))
        assert not client.waited
    samples = np.stack(found)
    assert samples.shape == (REPLIES, count * 16)
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT
    assert worst_chi_square(modular.multiply(samples[:, 4:8], samples[:, 8:12], t), t) < LIMIT


@pytest.mark.parametrize("known", [("client",), ("server",), ("client", "server")], ids="-".join)
def test_messages_are_uniform_to_whoever_receives_them(
    toy: Program, known: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given all random numbers of one party, which are the same each time here, what the other sends is uniform.

    With those of both nothing is: the test can tell.
    """
    t, original, party, generators = toy.parameters.plain_modulus, sampling.uniform, ["client"], {}

    def uniform(shape: tuple[int, ...], t: int) -> np.ndarray:
        fixed = generators.get(party[0])
        return original(shape, t) if fixed is None else fixed.integers(0, t, shape, dtype=np.uint64)

    def handle(message: bytes) -> bytes:
        party[0] = "server"
        try:
            return Session.handle(session, message)
        finally:
            party[0] = "client"

    monkeypatch.setattr(sampling, "uniform", uniform)
    client, session = parties(toy, "cleartext")
    session.handle = handle  # type: ignore[method-assign]
    found = []
    for _ in range(REPLIES):
        generators = {name: np.random.default_rng(7) for name in known}
        prepare(client, session)
        found.append(np.concatenate(messages(client, session, random_image(toy))))
    m, d, e, o = (worst_chi_square(np.stack(found)[:, i : i + 4], t) < LIMIT for i in range(0, 16, 4))
    if len(known) == 2:
        assert not any((m, d, e, o))
    else:
        assert all((d, o) if known == ("client",) else (m, e))


def test_masks_of_prepared_work_are_zeroed_once_they_are_used() -> None:
    program, kept = network(), []
    client, session = parties(program, "cleartext")
    prepare(client, session)
    for party in (client._prepared, session._prepared):
        read = party.form

        def watched(serial: bytes, data: bytes, read: CorrelationFormat = read) -> CorrelatedRandomness:
            kept.append(CorrelationFormat.read(read, serial, data))
            return kept[-1]

        object.__setattr__(party.form, "read", watched)
    run(client, session, random_image(program))
    mine, theirs = (correlated.kept for correlated in kept)
    assert not any(values.any() for arrays in theirs.values() for values in arrays.values())
    assert all(values.any() == (name == SHARE) for arrays in mine.values() for name, values in arrays.items())
    client.close()
    assert not any(values.any() for arrays in mine.values() for values in arrays.values())


def test_a_wrong_answer_is_refused_after_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that shifts what it hands out of the last layer's input: the client learns it from the result's width."""
    program = network()
    client, session = parties(program, "cleartext")
    prepare(client, session)
    exchange = client.infer(random_image(program))
    reply = session.handle(next(exchange))
    changed = bytearray(reply)
    changed[-2] ^= 1
    reply = session.handle(exchange.send(bytes(changed)))
    with pytest.raises(ImpossibleResultError, match="must have at most"):
        exchange.send(reply)
