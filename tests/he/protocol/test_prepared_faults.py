"""Whatever goes wrong with prepared work: nothing is used twice, and the next inference works."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.layer import MOST_IMAGES
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.offline.correlated import CorrelationFormat
from privcirnet.he.protocol.offline.store import Binding, MemoryStore, PreparedStore, PreparedWork
from privcirnet.he.protocol.offline.store_files import MAX_HELD, SERIAL_BYTES, UnusablePreparationError
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from tests.he.networks import network, random_image, residual_of_the_image
from tests.he.parties import check, parties, requests_of, strange
from tests.he.turns_toy import offsets

__all__ = ["offsets"]
PROGRAM = network()
OWNER = bytes(range(32))
HEADER = 4 + 4 + SERIAL_BYTES + 32 + 32


@pytest.fixture
def pair() -> tuple[Client, Session]:
    return parties(PROGRAM, "cleartext")


def stores(client: Client, session: Session) -> tuple[PreparedStore, PreparedStore]:
    return client._prepared.store, session._prepared.store


def requests(client: Client, session: Session, image: Values) -> list[bytes]:
    """Of one inference with prepared work."""
    sent = requests_of(client, session, image)
    assert not client.waited
    return sent


def bare(program: Program) -> Program:
    return dataclasses.replace(program, weights={})


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
def test_prepared_work_of_another_program_weights_owner_party_or_number_is_refused(
    side: int, pair: tuple[Client, Session]
) -> None:
    prepare(*pair)
    form, store = (pair[0]._prepared.form, pair[1]._prepared.form)[side], stores(*pair)[side]
    (serial,) = store.serials()
    data = store.take(serial)
    assert len(data) == form.length
    assert form.read(serial, data).serial == serial
    first = form.program.weights.get("first")
    others = [
        CorrelationFormat(form.side, residual_of_the_image() if side else bare(residual_of_the_image()), form.owner),
        CorrelationFormat(form.side, form.program, OWNER),
        CorrelationFormat("client" if side else "server", form.program, form.owner),
    ]
    if first is not None:
        weights = {**form.program.weights, "first": dataclasses.replace(first, bias=first.bias + 1)}
        others.append(CorrelationFormat(form.side, dataclasses.replace(form.program, weights=weights), form.owner))
    for other in others:
        with pytest.raises(
            UnusablePreparationError, match=r"prepared work must (be of this program|have the program's length)"
        ):
            other.read(serial, data)
    with pytest.raises(
        UnusablePreparationError, match="prepared work must be of this program, client, party and number"
    ):
        form.read(bytes(SERIAL_BYTES), data)


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


EDITS = {
    **{f"byte {place}": (flipped(place), "be of this program") for place in (0, 4, 7, 8 + SERIAL_BYTES, HEADER - 1)},
    "cut": (lambda data: data[:-1], "have the program's length"),
    "a tail": (lambda data: data + b"\0", "have the program's length"),
    "a header alone": (lambda data: data[:HEADER], "have the program's length"),
    "nothing": (lambda data: b"", "have the program's length"),
    "t itself": (
        lambda data: data[:HEADER] + PROGRAM.parameters.plain_modulus.to_bytes(8, "little") + data[HEADER + 8 :],
        "hold residues",
    ),
    "no residues": (lambda data: data[:HEADER] + b"\xff" * (len(data) - HEADER), "hold residues"),
}


@pytest.mark.parametrize("case", EDITS)
def test_edited_prepared_work_is_refused(case: str, pair: tuple[Client, Session]) -> None:
    edit, rule = EDITS[case]
    prepare(*pair)
    for store, form in zip(stores(*pair), (pair[0]._prepared.form, pair[1]._prepared.form), strict=True):
        (serial,) = store.serials()
        with pytest.raises(UnusablePreparationError, match=f"prepared work must {rule}"):
            form.read(serial, edit(store.take(serial)))


@pytest.mark.parametrize("side", [0, 1], ids=["client", "server"])
def test_damaged_prepared_work_is_dropped_and_said(side: int, pair: tuple[Client, Session]) -> None:
    """The image goes on with the next, or with today's protocol."""
    client, session = pair
    prepare(client, session, 2)
    store = stores(client, session)[side]
    kept = {serial: store.take(serial) for serial in store.serials()}
    for number, (serial, data) in enumerate(kept.items()):
        store.put(serial, data if number else data[:-1])
    check(PROGRAM, client, session, random_image(PROGRAM), "prepared")
    assert "have the program's length" in (client, session)[side].dropped[0]
    assert side == 0 or "the server has no prepared work of number" in client.dropped[0]
    check(PROGRAM, client, session, random_image(PROGRAM, 1), "waited")


def test_a_server_that_lost_its_halves(pair: tuple[Client, Session]) -> None:
    """Its messages are refused without harm: what they were masked by is used no more."""
    client, session = pair
    prepare(client, session, 2)
    mine, theirs = stores(client, session)
    for serial in theirs.serials():
        theirs.drop(serial)
    check(PROGRAM, client, session, random_image(PROGRAM), "waited")
    assert [line.startswith("the server has no prepared work") for line in client.dropped] == [True, True]
    assert mine.serials() == []


def test_a_client_that_lost_its_halves(pair: tuple[Client, Session]) -> None:
    client, session = pair
    prepare(client, session, 3)
    mine, theirs = stores(client, session)
    kept = mine.serials()[1]
    for serial in mine.serials():
        if serial != kept:
            mine.drop(serial)
    prepare(client, session)
    assert mine.serials() == theirs.serials()
    assert mine.serials()[0] == kept
    assert [line.startswith("the client has no prepared work") for line in session.dropped] == [True, True]
    for seed in range(2):
        check(PROGRAM, client, session, random_image(PROGRAM, seed), "prepared")


def test_a_store_from_a_backup_is_not_used_again() -> None:
    """A client that was set back has prepared work whose masks the server has seen: it sends nothing under them."""
    server, ours, theirs = Server(PROGRAM, "cleartext"), MemoryStore(), MemoryStore()
    client = Client(server.greeting(), "cleartext", store=ours)
    session = server.session(client.keys(), theirs)
    prepare(client, session, 2)
    backup = {serial: ours.take(serial) for serial in ours.serials()}
    for serial, data in backup.items():
        ours.put(serial, data)
    check(PROGRAM, client, session, random_image(PROGRAM))
    restored = MemoryStore()
    for serial, data in backup.items():
        restored.put(serial, data)
    again = Client(server.greeting(), "cleartext", store=restored)
    session = server.session(again.keys(), theirs)
    used = next(iter(backup))
    sent = requests(again, session, random_image(PROGRAM, 1))
    assert wire.begins(sent[0]) == wire.AGREE
    assert [wire.unframe(m, wire.ONLINE)[0] for m in sent if wire.begins(m) == wire.ONLINE] == [[*backup][1]]
    assert used.hex() in again.dropped[0]


@pytest.mark.parametrize("step", range(2))
def test_requests_that_are_not_due_end_the_image_and_its_prepared_work(step: int, pair: tuple[Client, Session]) -> None:
    client, session = pair
    prepare(client, session)
    honest = requests(client, session, random_image(PROGRAM))
    assert len(honest) == 2
    for foreign in strange(honest[step]):
        prepare(client, session)
        exchange, (_, theirs) = client.infer(random_image(PROGRAM)), stores(client, session)
        message = next(exchange)
        if step:
            session.handle(message)
        if len(foreign) > 7 and step == 0 and wire.begins(foreign) == wire.ONLINE and foreign[:6] == honest[0][:6]:
            foreign = foreign[:12] + message[12 : 12 + SERIAL_BYTES] + foreign[12 + SERIAL_BYTES :]  # noqa: PLW2901
        with pytest.raises(RuleError, match="must"):
            session.handle(foreign)
        with pytest.raises(RuleError, match="must"):
            session.handle(honest[1])
        if step:
            assert theirs.serials() == []
        check(PROGRAM, client, session, random_image(PROGRAM, 1))


def test_requests_that_are_sent_again_are_refused(pair: tuple[Client, Session]) -> None:
    client, session = pair
    prepare(client, session, 2)
    first = requests(client, session, random_image(PROGRAM))
    assert wire.unframe(session.handle(first[0]), wire.ONLINE, 0) == []
    assert session.dropped
    with pytest.raises(RuleError, match="must be about step"):
        session.handle(first[1])
    second = client.infer(random_image(PROGRAM))
    session.handle(next(second))
    with pytest.raises(RuleError, match="must be about step"):
        session.handle(first[0])
    check(PROGRAM, client, session, random_image(PROGRAM), "waited")


@pytest.mark.parametrize("step", range(2))
def test_replies_that_are_not_due_are_refused(step: int) -> None:
    for number in range(len(strange(b"")) - 2):
        client, session = parties(PROGRAM, "cleartext")
        prepare(client, session)
        exchange = client.infer(random_image(PROGRAM))
        reply = session.handle(next(exchange))
        if step:
            reply = session.handle(exchange.send(reply))
        with pytest.raises(RuleError, match="must"):
            exchange.send(strange(reply)[number])
        assert stores(client, session)[0].serials() == []


@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.parametrize(("trips", "length"), [("one", 5), ("two", 6)])
def test_preparation_that_ends_anywhere(trips: str, length: int, lost: str, offsets: Program) -> None:
    """Both processes end after any number of messages, the last of them lost: what is left agrees, and is used once."""
    program = offsets if trips == "two" else PROGRAM
    server = Server(program, "cleartext")
    step, done = 0, False
    while not done:
        ours, theirs = MemoryStore(), MemoryStore()
        client = Client(server.greeting(), "cleartext", store=ours)
        session = server.session(client.keys(), theirs)
        exchange = client.prepare(1)
        message, done = next(exchange), True
        for _ in range(step):
            message = exchange.send(session.handle(message))
        if lost == "reply":
            session.handle(message)
        done = wire.position_of(message) == wire.PREPARED
        copy = {serial: theirs.serials().count(serial) for serial in ours.serials()}
        again = Client(server.greeting(), "cleartext", store=kept(ours))
        session = server.session(again.keys(), theirs)
        prepare(again, session)
        mine, other = stores(again, session)
        assert mine.serials() == other.serials()
        assert len(mine.serials()) == 1 + sum(copy.values())
        for _ in range(len(mine.serials())):
            check(program, again, session, random_image(program), "prepared")
        step += 1
    assert step == length


def kept(store: PreparedStore) -> MemoryStore:
    """What is in a store when its process is killed: nothing that its generator does at its end changes it."""
    found = MemoryStore()
    for serial in store.serials():
        data = store.take(serial)
        found.put(serial, data)
    return found


def test_what_a_client_refuses_of_a_preparation(pair: tuple[Client, Session]) -> None:
    client, session = pair
    prepare(client, session)
    (known,) = stores(client, session)[0].serials()
    for count, serials in ((1, known), (1, b"short"), (1, b""), (2, 2 * bytes(range(SERIAL_BYTES)))):
        exchange = client.prepare(count)
        exchange.send(session.handle(next(exchange)))
        with pytest.raises(RuleError, match=r"prepared work must have a number of its own|serial numbers must have"):
            exchange.send(wire.frame(wire.PREPARE, [serials]))
    check(PROGRAM, client, session, random_image(PROGRAM), "prepared")


@pytest.mark.parametrize("full", [0, 1], ids=["client", "server"])
def test_images_that_are_prepared_at_once_are_kept_all_or_none(full: int) -> None:
    """The store that is full takes one of three."""
    server = Server(PROGRAM, "cleartext")
    sizes = (CorrelationFormat(side, PROGRAM, bytes(32)).length for side in ("client", "server"))
    room = [PreparedWork(limit=int(1.5 * size) if side == full else None) for side, size in enumerate(sizes)]
    ours, theirs = (prepared_work.of(Binding()) for prepared_work in room)
    client = Client(server.greeting(), "cleartext", store=ours)
    session = server.session(client.keys(), theirs)
    with pytest.raises(RuleError, match="prepared work must fit into"):
        prepare(client, session, 3)
    assert (ours.serials(), theirs.serials()) == ([], [])
    prepare(client, session)
    check(PROGRAM, client, session, random_image(PROGRAM), "prepared")


def test_an_image_may_come_between_any_two_rounds_of_a_preparation() -> None:
    """The preparation goes on, and neither knows of the other."""
    client, session = parties(PROGRAM, "cleartext")
    prepare(client, session)
    step = 0
    for step in range(100):
        exchange, rounds = client.prepare(1), 0
        message = next(exchange)
        try:
            while True:
                if rounds == step:
                    check(PROGRAM, client, session, random_image(PROGRAM, step))
                    assert not client.waited
                message, rounds = exchange.send(session.handle(message)), rounds + 1
        except StopIteration:
            pass
        assert client.dropped == session.dropped == []
        if rounds <= step:
            break
        assert client.prepared == 1
    assert step == 4


def test_a_preparation_that_was_given_up_is_begun_anew(pair: tuple[Client, Session]) -> None:
    client, session = pair
    for step in range(1, 5):
        exchange = client.prepare(2)
        message = next(exchange)
        for _ in range(step):
            message = exchange.send(session.handle(message))
        exchange.close()
    prepare(client, session)
    assert [len(store.serials()) for store in stores(client, session)] == [1, 1]
    check(PROGRAM, client, session, random_image(PROGRAM), "prepared")


@pytest.mark.parametrize("about", ["the image", "the preparation"])
def test_a_request_that_is_refused_ends_the_image_and_only_its_own_preparation(
    about: str, pair: tuple[Client, Session]
) -> None:
    client, session = pair
    prepare(client, session)
    ahead, image = client.prepare(1), client.infer(random_image(PROGRAM))
    due_ahead = ahead.send(session.handle(ahead.send(session.handle(next(ahead)))))
    due_image = image.send(session.handle(next(image)))
    with pytest.raises(RuleError, match="a message must be"):
        session.handle(wire.frame(wire.OUTPUT if about == "the image" else wire.PREPARED, []))
    with pytest.raises(RuleError, match="a message must be about step"):
        session.handle(due_image)
    if about == "the image":
        ahead.send(session.handle(due_ahead))
    else:
        with pytest.raises(RuleError, match="a message must be about step"):
            session.handle(due_ahead)


@pytest.mark.parametrize(
    "message",
    [
        wire.frame(wire.AGREE, [bytes(SERIAL_BYTES - 1)]),
        wire.frame(wire.AGREE, [bytes(SERIAL_BYTES * (MAX_HELD + 1))]),
        wire.frame(wire.AGREE, []),
        wire.frame(wire.PREPARE, []),
        wire.frame(wire.PREPARE, [b"x"]),
        wire.frame(wire.PREPARE, [correlated.write_count(0)]),
        wire.frame(wire.PREPARE, [correlated.write_count(MOST_IMAGES + 1)]),
        wire.frame(wire.PREPARED, [bytes(SERIAL_BYTES)]),
        wire.frame(wire.OFFLINE + 1, [b"x"]),
        wire.frame(wire.ONLINE, [b"x"]),
        wire.frame(wire.ONLINE, [b"x", b"y"]),
    ],
)
def test_what_a_server_refuses_at_the_start(message: bytes, pair: tuple[Client, Session]) -> None:
    client, session = pair
    with pytest.raises(RuleError, match="must"):
        session.handle(message)
    check(PROGRAM, client, session, random_image(PROGRAM))


def test_another_clients_prepared_work_is_of_no_use() -> None:
    """Each session has a store of its own."""
    server = Server(PROGRAM, "cleartext")
    clients = [Client(server.greeting(), "cleartext") for _ in range(2)]
    sessions = [server.session(client.keys()) for client in clients]
    for pair in zip(clients, sessions, strict=True):
        prepare(*pair)
    opening = next(clients[0].infer(random_image(PROGRAM)))
    assert wire.unframe(sessions[1].handle(opening), wire.ONLINE, 0) == []
    check(PROGRAM, clients[1], sessions[1], random_image(PROGRAM), "prepared")


def test_an_image_that_does_not_fit_takes_no_prepared_work(pair: tuple[Client, Session]) -> None:
    prepare(*pair)
    with pytest.raises(RuleError, match="an image must have"):
        run(*pair, np.zeros((1, 2, 3), dtype=np.int64))
    assert len(stores(*pair)[0].serials()) == 1
