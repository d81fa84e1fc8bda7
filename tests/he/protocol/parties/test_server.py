"""Server and client: masks, weights, and what each refuses."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import ENGINES
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers import spectral_layer
from privcirnet.he.program.program import ImpossibleResultError, Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.protocol.rounds.product import SquareExchange
from privcirnet.he.ring import modular
from privcirnet.runs import interactive
from tests.he.networks import network, random_image, residual_of_the_image
from tests.he.parties import check, parties, rounds, strange


@pytest.mark.parametrize("engine", ENGINES)
def test_requests_that_are_not_due_start_the_image_over(engine: str) -> None:
    program = network()
    client, session = parties(program, engine)
    image = random_image(program)
    recorded = [message for message, _ in rounds(session, client.infer(image))]
    others = [m for m in recorded if wire.begins(m) not in (wire.AGREE, wire.PREPARE, wire.ONLINE)]  # those begin anew
    for position, message in enumerate(recorded):
        shapes = [m for kind, m in enumerate(strange(message)) if kind != 6 or wire.begins(message) != wire.AGREE]
        for foreign in (*shapes, *(m for m in others if m is not message)):
            exchange = client.infer(image)
            due = next(exchange)
            for _ in range(position):
                due = exchange.send(session.handle(due))
            with pytest.raises(RuleError, match="must"):
                session.handle(foreign)
            exchange.close()
            if engine != "cleartext":
                break
        check(program, client, session, image)


def test_a_bug_in_one_image_leaves_the_session_usable(
    cleartext: tuple[Program, Client, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, client, session = cleartext
    image = random_image(program)
    with monkeypatch.context() as patch:
        patch.setattr(SquareExchange, "reply", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(client, session, image)
    check(program, client, session, image)


def test_two_clients_at_once() -> None:
    """Their exchanges interleaved: sessions share the weights, nothing else."""
    program = network()
    server = Server(program, "cleartext")
    clients = [Client(server.greeting(), "cleartext") for _ in range(2)]
    sessions = [server.session(client.keys()) for client in clients]
    images = [random_image(program, seed) for seed in range(2)]
    pairs = [rounds(s, c.infer(x)) for c, s, x in zip(clients, sessions, images, strict=True)]
    list(zip(*pairs, strict=True))
    for client, session, image in zip(clients, sessions, images, strict=True):
        values = interactive.reconstruct(program, client.shares, session.shares)
        assert interactive.wrong_nodes(program, values) == []
        assert (values["x"] == image).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_of_another_program_are_refused(engine: str) -> None:
    mine, other = Server(network(), engine), Server(residual_of_the_image(), engine)
    keys = Client(other.greeting(), engine).keys()
    assert network().column_steps != residual_of_the_image().column_steps
    with pytest.raises(RuleError, match="keys must"):
        mine.session(keys)


def test_what_the_server_refuses() -> None:
    with pytest.raises(RuleError, match=r"under t / 2: got \w+ reaches"):
        Server(network(plain_bits=18), "cleartext")
    program = network()
    small = choose({2, 4, 5}, 46, 8192, (45, 45, 45))
    with pytest.raises(RuleError, match=r"noise budget: got .* in layer first with a 46-bit"):
        Server(Program(program.nodes, small, program.weights), "cleartext")


@pytest.mark.parametrize("engine", ENGINES)
def test_dead_layers_give_their_bias(engine: str) -> None:
    program = network()
    dead = program.weights["second"].rows * 0
    weights = {**program.weights, "second": type(program.weights["second"])(dead, program.weights["second"].bias)}
    program = Program(program.nodes, program.parameters, weights)
    server = Server(program, engine)
    client = Client(server.greeting(), engine)
    check(program, client, server.session(client.keys()), random_image(program))


def test_exported_spectra_are_used() -> None:
    program, seen = network(), []
    t = program.parameters.plain_modulus
    spectra = {
        node.name: spectral_layer.weight_spectrum(layer.layout, program.weights[node.name].rows, t)
        for node, layer in program.linear_nodes
    }
    server = Server(program, "cleartext", spectra, seen.append)
    assert seen == list(spectra)
    client = Client(server.greeting(), "cleartext")
    check(program, client, server.session(client.keys()), random_image(program))
    doubled = {**spectra, "second": modular.add(spectra["second"], spectra["second"], t)}
    server = Server(program, "cleartext", doubled)
    client = Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    with pytest.raises(ImpossibleResultError):
        run(client, session, random_image(program))


def test_replies_that_are_not_due_are_refused(cleartext: tuple[Program, Client, Session]) -> None:
    program, client, session = cleartext
    image = random_image(program)
    count = len(list(rounds(session, client.infer(image))))
    for position in range(count):
        for kind in range(8):
            exchange = client.infer(image)
            message = next(exchange)
            for _ in range(position):
                message = exchange.send(session.handle(message))
            reply = session.handle(message)
            if kind == 6 and (len(reply) <= 12 or wire.begins(message) in (wire.AGREE, wire.PREPARE)):
                exchange.close()  # any bytes are numbers
                continue
            with pytest.raises(RuleError, match="must"):
                exchange.send(strange(reply)[kind])
            with pytest.raises(RuleError, match="must"):
                session.handle(b"")
    check(program, client, session, image)


@pytest.mark.parametrize(
    ("image", "match"),
    [
        (np.zeros((4, 8, 7), dtype=np.int64), r"input shape: got \(4, 8, 7\) for \(4, 8, 8\)"),
        (np.zeros((256,), dtype=np.int64), "input shape"),
        (np.full((4, 8, 8), 16), r"integers in \[-8, 15\]: got int64 in \[16, 16\]"),
        (np.full((4, 8, 8), -9), "integers in"),
        (np.full((4, 8, 8), 0.5), "integers in .*: got float64"),
        (np.full((4, 8, 8), True), "integers in .*: got bool"),
    ],
)
def test_images_are_checked(cleartext: tuple[Program, Client, Session], image: np.ndarray, match: str) -> None:
    with pytest.raises(RuleError, match=match):
        next(cleartext[1].infer(image))


@pytest.mark.parametrize("greeting", [b"", b"\xff\xfe", b"{", b"[]", b"[" * 100000, b"9" * 10000])
def test_greetings_are_checked(greeting: bytes) -> None:
    with pytest.raises(RuleError, match="must be"):
        Client(greeting, "cleartext")


def test_an_insecure_greeting_is_refused() -> None:
    text = Server(network(), "cleartext").greeting().replace(b'"ring_degree": 8192', b'"ring_degree": 256')
    with pytest.raises(RuleError, match="128-bit table: got 256"):
        Client(text, "cleartext")
