"""Exact truncations and ReLUs between parties: every value the integer network's, through sessions, services and broken ones."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.ot import silent
from privcirnet.he.mpc.ot.softspoken import EXTENSION_BYTES
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.exact import ExactReLU, ExactStep, ExactTruncate, exact, exact_steps
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.lookup_table import ExactTable, tabulated
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input, MulConstant, Truncate
from privcirnet.he.program.program import Network, Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.protocol.rounds import exact as exchanges
from privcirnet.he.protocol.rounds.exact import FloorExchange, TableExchange
from privcirnet.he.protocol.rounds.message_specs import trips
from privcirnet.he.protocol.rounds.transfers import setup_trips
from privcirnet.he.protocol.schedule import Schedule, schedule_of
from privcirnet.runs import interactive
from privcirnet.service.client import ServiceClient
from tests.he.broken import ends_at_any_turn, refuses_what_is_not_due
from tests.he.held import peaks
from tests.he.networks import bottleneck, network, random_image
from tests.he.parties import check, parties
from tests.service.running import serving

SETUP = len(setup_trips("softspoken"))
"""Trips in which oblivious transfers begin."""


def exactly(program: Program, most: int = 0) -> Program:
    """The program with exact truncations, the first of them with a ReLU or a clip, and another with GELU."""
    other = {"first_t": ExactReLU(4, most=most), "second_t": tabulated("gelu", 4, -2, -2, -40, 50)}
    nodes = [replace(node, operation=other.get(node.name, node.operation)) for node in program.nodes]
    return replace(program, nodes=exact(nodes, bounds.prove(Network(tuple(nodes), program.weights))))


PROGRAM = exactly(network(plain_bits=30), 12)
PROGRAMS, NAMES = [PROGRAM, exactly(bottleneck())], ["network", "side by side"]
"""In the second two truncations share messages."""


def positions(program: Program) -> list[int]:
    """Of the exact steps."""
    return [i for i, node in enumerate(program.nodes) if isinstance(node.operation, ExactStep)]


def wrong(program: Program, client: Client, session: Session, image: np.ndarray) -> list[str]:
    """Nodes with a value that is not the integer network's."""
    values, truth = interactive.reconstruct(program, client.shares, session.shares), interpret(program, image)
    return [name for name in truth if (values[name] != truth[name]).any()]


@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_every_value_is_the_integer_networks(program: Program, engine: str) -> None:
    client, session = parties(program, engine)
    ahead, most = prepare(client, session, 3), schedule_of(program).sizes
    for seed in range(3):
        image = random_image(program, seed)
        traffic = check(program, client, session, image, "prepared")
        assert wrong(program, client, session, image) == []
        assert len(traffic) == schedule_of(program).rounds_online
        assert max(t.up for t in traffic + ahead) <= most.request
        assert max(t.down for t in traffic + ahead) <= most.reply
    exact = [e for e in schedule_of(program).exchanges.values() if sum(e.plan.transfers)]
    online = sum(len(trips(e.online.turns(3), "server")) for e in exact)
    assert online == sum(1 + step.rectifies + isinstance(step, ExactTable) for step in exact_steps(program.nodes))
    rounds = 2 + online
    assert schedule_of(program).rounds_online == rounds - (program is not PROGRAM), "two truncations side by side"


def test_an_image_without_prepared_work_has_some_made() -> None:
    client, session = parties(PROGRAM, "cleartext")
    trips_of = [len(check(PROGRAM, client, session, random_image(PROGRAM, seed), "waited")) for seed in range(2)]
    assert trips_of == [schedule_of(PROGRAM).rounds, schedule_of(PROGRAM).rounds - SETUP]


def test_transfers_begin_once_for_a_session() -> None:
    client, session = parties(PROGRAM, "cleartext")
    begun = [sum(t.position == wire.TRANSFERS for t in prepare(client, session, 2)) for _ in range(2)]
    assert begun == [SETUP, 0]


def test_silent_transfers_are_made_where_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a code of 1472 transfers an iteration, which hides nothing: refilled within a preparation, and between two."""
    monkeypatch.setattr(silent, "CODE", silent.LpnParameters(trees=64, depth=5, seed=128))
    program = replace(PROGRAM, transfers="silent")
    client, session = parties(program, "cleartext")
    ahead = [prepare(client, session, count) for count in (2, 1)]
    begun, more = ([sum(t.position == at for t in one) for one in ahead] for at in (wire.TRANSFERS, wire.REFILL))
    assert begun == [SETUP, 0]
    assert min(more) > 2
    most = schedule_of(program).sizes
    assert max(max(t.up, t.down) for one in ahead for t in one) <= max(most.request, most.reply)
    for seed in range(3):
        image = random_image(program, seed)
        check(program, client, session, image, "prepared")
        assert wrong(program, client, session, image) == []
    client._prepared._transfers = None  # as after an error that the server did not see
    check(program, client, session, random_image(program), "waited")


def test_a_session_has_room_for_a_stock_of_silent_transfers() -> None:
    """Both directions', what a piece of a preparation takes, and what they are made with."""
    quiet, without, stock = (
        replace(PROGRAM, transfers="silent"),
        replace(network(), transfers="silent"),
        32 * 1792 << 10,
    )
    assert schedule_of(without).server_bytes == schedule_of(network()).server_bytes
    assert schedule_of(PROGRAM).transfers_bytes() == EXTENSION_BYTES
    taken = 16 * max(sum(piece.transfers) for one in schedule_of(quiet).offline(8) for piece in one.pieces)
    assert schedule_of(quiet).transfers_bytes(8) == stock + taken + (1 << 24)
    more = schedule_of(quiet).client_bytes - schedule_of(PROGRAM).client_bytes
    assert stock < more < stock + taken + (1 << 24)


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_large_steps_are_prepared_in_pieces(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 values each here: every value is right, and the bytes are the same but for what ends an extension."""
    client, session = parties(program, "cleartext")
    whole = prepare(client, session, 2)
    monkeypatch.setattr(exchanges, "AT_ONCE_BYTES", 1 << 16)
    client, session = parties(program, "cleartext")
    ahead, most = prepare(client, session, 2), schedule_of(program).sizes
    largest = max(prod(program.nodes[position].shape) for position in positions(program))
    assert max(len(bundle.pieces) for bundle in schedule_of(program).offline(2)) == -(-largest // 64) > 1
    trips_due = sum(len(bundle.trips) for bundle in schedule_of(program).offline(2))
    assert len(ahead) == trips_due + SETUP + 3, "and AGREE, PREPARE, PREPARED"
    assert len(ahead) > len(whole)
    assert max(t.up for t in ahead) <= min(most.request, max(t.up for t in whole))
    for seed in range(2):
        image = random_image(program, seed)
        check(program, client, session, image, "prepared")
        assert wrong(program, client, session, image) == []


STEPS = {
    "truncation": ExactTruncate(9, 1 << 20),
    "ReLU": ExactReLU(4, 1 << 12),
    "clip": ExactReLU(4, 1 << 12, most=12),
    "table": tabulated("gelu", 4, -4, -4, -40, 50).bounded(-(1 << 10), 1 << 10),
}


@pytest.mark.parametrize(("values", "source"), [(1 << 12, "silent"), (1 << 13, "softspoken"), (1 << 15, "softspoken")])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_memory_is_what_an_exchange_says(
    step: ExactStep, values: int, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its peak either party has at least half of it, and never more, messages included."""
    monkeypatch.setattr(silent, "CODE", silent.LpnParameters(trees=1 << 9, depth=9, seed=1 << 10))
    kind = TableExchange if isinstance(step, ExactTable) else FloorExchange
    exchange = kind(step, (values, 1, 1), PROGRAM.parameters.plain_modulus, source)
    for peak in peaks(exchange, source):
        assert peak <= exchange.working_bytes(PROGRAM.parameters) + EXTENSION_BYTES <= 2 * peak + EXTENSION_BYTES


def test_large_images_have_silent_transfers() -> None:
    wide = Schedule(PROGRAM)
    assert wide.best_source == "softspoken"
    wide.exchanges = {f"{i} {name}": exchange for i in range(99) for name, exchange in wide.exchanges.items()}
    assert wide.best_source == "silent"
    with pytest.raises(RuleError, match="oblivious transfers must be of a known source"):
        manifest.check(replace(PROGRAM, transfers="loud"))


def test_through_a_service() -> None:
    image = random_image(PROGRAM)
    with serving(Server(PROGRAM, "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        logits, _ = run(remote.client, remote, image)
    assert (logits.ravel() == interpret(PROGRAM, image)["head"].ravel()).all()


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_preparation_that_ends_at_any_turn(lost: str) -> None:
    """What was begun is kept by neither party, and the next preparation of the session begins transfers anew."""
    server = Server(PROGRAM, "cleartext")
    whole = len(prepare(*parties(PROGRAM, "cleartext")))
    for step in range(1, whole - 1):
        client = Client(server.greeting(), "cleartext")
        session = server.session(client.keys())
        work = client.prepare(1)
        message = next(work)
        for _ in range(step):
            message = work.send(session.handle(message))
        if lost == "reply":
            session.handle(message)
        work.close()
        assert client._prepared.store.serials() == session._prepared.store.serials() == []
        again = prepare(client, session)
        assert sum(t.position == wire.TRANSFERS for t in again) == SETUP
        check(PROGRAM, client, session, random_image(PROGRAM), "prepared")


@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_an_image_that_ends_at_any_turn(program: Program, lost: str) -> None:
    ends_at_any_turn(program, lost, positions(program))


def test_messages_that_are_not_due_end_the_image() -> None:
    refuses_what_is_not_due(PROGRAM, positions(PROGRAM)[0], (0, 1, 2, 3, 4, 5, 7))  # any bits are planes


def test_a_preparation_needs_transfers() -> None:
    client, session = parties(PROGRAM, "cleartext")
    prepare(client, session)
    session._prepared._transfers = None  # as after an error that the client did not see
    with pytest.raises(RuleError, match="oblivious transfers must be begun"):
        prepare(client, session)
    check(PROGRAM, client, session, random_image(PROGRAM), "prepared")


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        (ExactTruncate(20, 1 << 20), "an exact truncation by 20 bits"),
        (ExactTruncate(4, 1 << 28), "a plain modulus of"),
        (ExactTruncate(4, 24), "an exact truncation by 4 bits"),
        (ExactTruncate(0, 24), "an exact truncation by 0 bits"),
        (ExactReLU(20, 24), "an exact ReLU by 20 bits"),
        (ExactReLU(4), "an exact ReLU of values without a bound"),
        (ExactReLU(4, 1 << 29), "a plain modulus of"),
        (ExactReLU(4, 24), "an exact ReLU by 4 bits of values under 24"),
        (ExactReLU(4, 16), "an exact ReLU by 4 bits of values under 16"),
        (ExactReLU(0, 1 << 13, 12), "an exact ReLU to 12 of values up to 8192"),
        (ExactReLU(4, 1 << 12, 20 * 16 + 1), "an exact ReLU to 321 of values up to 256"),
        (ExactReLU(4, 1 << 12, 204), "an exact ReLU to 204 of values up to 256"),
        (ExactReLU(4, most=-1), "an exact ReLU clipped at -1"),
        (ExactReLU(4, 32, 3), "an exact ReLU to 3 of values up to 2"),
    ],
)
def test_descriptions_that_would_not_be_exact_are_refused(operation: ExactTruncate, problem: str) -> None:
    nodes = [replace(n, operation=operation) if n.name == "first_t" else n for n in PROGRAM.nodes]
    with pytest.raises(RuleError, match=problem):
        manifest.check(replace(PROGRAM, nodes=tuple(nodes)))


def test_a_truncation_that_leaves_nothing_takes_no_messages() -> None:
    """As behind a layer whose weights are tiny; one that leaves a 1 is a truncation."""
    nodes = Node("x", Input(-16, 15), (), (1, 2, 2), 0), Node("y", Truncate(5), ("x",), (1, 2, 2), 5)
    ends = np.full((1, 2, 2), -16), np.full((1, 2, 2), 15)
    assert exact(nodes, {"x": ends})[1].operation == MulConstant(0)
    assert exact(nodes, {"x": (ends[0], ends[1] + 1)})[1].operation == ExactTruncate(5, 32)


def test_a_clip_that_no_value_reaches_is_a_relu() -> None:
    nodes = Node("x", Input(-16, 23), (), (1, 2, 2), 0), Node("y", ExactReLU(4, most=1), ("x",), (1, 2, 2), 4)
    ends = np.full((1, 2, 2), -16), np.full((1, 2, 2), 23)
    assert exact(nodes, {"x": ends})[1].operation == ExactReLU(4, 32)
    assert exact(nodes, {"x": (ends[0], ends[1] + 1)})[1].operation == ExactReLU(4, 64, 1)


def test_a_description_says_what_is_exact() -> None:
    again = manifest.from_dict(manifest.to_dict(PROGRAM))
    assert again.nodes == PROGRAM.nodes
    assert sorted(step.title for step in exact_steps(PROGRAM.nodes)) == [
        "exact ReLU",
        "exact table",
        "exact truncation",
    ]


def test_a_modulus_has_a_factor_of_two_for_each_bit_that_is_read() -> None:
    """Those that go and one more, and for a clip k of the rounded value."""
    for step in (ExactReLU(7, 1 << 11), ExactReLU(7, 1 << 10, 3)):
        assert step.unfit(12289) == ""
    assert ExactReLU(7, 1 << 11, 3).unfit(12289) == "a plain modulus that is not 1 mod 2^13"
    assert ExactReLU(12, 1 << 13).unfit(12289) == "a plain modulus that is not 1 mod 2^13"
