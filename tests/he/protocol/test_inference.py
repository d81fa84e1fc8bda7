"""The whole protocol, both parties: results, counts, and what happens to messages that are not due."""

from collections.abc import Callable, Generator

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.encodings import spectral, subring
from privcirnet.he.encodings.integer import Values
from privcirnet.he.engines.interface import ENGINES
from privcirnet.he.params.parameters import choose
from privcirnet.he.params.sizes import SEED_BYTES, message_bytes
from privcirnet.he.program import bounds
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Linear, Product, Square
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server, Session
from privcirnet.he.protocol.session import Traffic, run
from privcirnet.he.protocol.square import SquareExchange
from privcirnet.he.ring import modular, sampling
from privcirnet.pipeline import audit
from tests.he.networks import attention, bottleneck, network, random_image, residual_of_the_image
from tests.he.parties import parties


@pytest.fixture(scope="module")
def cleartext() -> tuple[Program, Client, Session]:
    return network(), *parties(network(), "cleartext")


def check(program: Program, client: Client, session: Session, image: Values) -> list[Traffic]:
    """One inference, every node of it right."""
    logits, traffic = run(client, session, image)
    values = audit.reconstruct(program, client.shares, session.shares)
    assert audit.wrong_nodes(program, values) == []
    assert (values[program.nodes[0].name] == image).all()
    assert (logits == values[program.output.name]).all()
    exact = interpret(program, image, lambda node, _: values[node.name])
    assert all((exact[name] == values[name]).all() for name in exact)
    return traffic


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_node_is_right(engine: str, masks: str) -> None:
    program = network(masks)
    client, session = parties(program, engine)
    for seed in range(2):
        check(program, client, session, random_image(program, seed))


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_depthwise_layer_is_one_product_for_each_ciphertext_and_no_rotation(engine: str, masks: str) -> None:
    program = bottleneck(masks)
    client, session = parties(program, engine)
    check(program, client, session, random_image(program))
    layer = dict((node.name, layer) for node, layer in program.linear_nodes)["depth"]
    done = session.meter.counts["depth"]
    assert (done["rotate"], done["pmult"]) == (layer.rotations, layer.pmults) == (0, layer.ciphertexts_in)
    assert (layer.ciphertexts_in, layer.ciphertexts_out) == (4 + 4 + 1 + 1, 4), (
        "four phase images, apart and in four lanes"
    )


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
@pytest.mark.parametrize("engine", ENGINES)
def test_attention_is_right_and_does_what_was_planned(engine: str, masks: str) -> None:
    program = attention(masks)
    client, session = parties(program, engine)
    traffic = check(program, client, session, random_image(program))
    position = {node.name: index for index, node in enumerate(program.nodes)}
    products = [node for node in program.nodes if isinstance(node.operation, Product)]
    assert len(products) == 2
    for node in products:
        assert isinstance(node.operation, Product)
        layers, done = (node.operation.left, node.operation.right), session.meter.counts[node.name]
        assert done["rotate"] == sum(layer.rotations for layer in layers) > 0
        assert done["pmult"] == sum(layer.pmults for layer in layers)
        assert [t.position for t in traffic].count(position[node.name]) == 1, "one round"


def test_masks_of_attention_are_bounded_where_values_are_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels carry the mask of the layer that they were taken from, by the bound of all of it."""
    program, seen = attention("bounded"), []
    original = sampling.bounded

    def watched(shape: tuple[int, ...], bound: int, t: int) -> modular.Residues:
        seen.append((shape, bound))
        return original(shape, bound, t)

    monkeypatch.setattr(sampling, "bounded", watched)
    run(*parties(program, "cleartext"), random_image(program))
    intervals, nodes = bounds.prove(program), {node.name: node for node in program.nodes}
    truncated = ("patches", "all", "scores", "square", "gathered")
    assert seen == [(nodes[name].shape, bounds.largest(intervals[name])) for name in truncated]


@pytest.mark.parametrize("end", [-8, 15])
@pytest.mark.parametrize("masks", ["uniform", "bounded"])
def test_images_at_the_ends_of_the_range(masks: str, end: int) -> None:
    program = network(masks)
    check(program, *parties(program, "cleartext"), np.full((4, 8, 8), end))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sum_with_the_image_itself(engine: str) -> None:
    program = residual_of_the_image()
    client, session = parties(program, engine)
    check(program, client, session, random_image(program))
    assert session.shares["twice"] is None


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
def test_masks_are_bounded_where_values_are_truncated(masks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the proved bounds of exactly those values, in the order of the program."""
    program, seen = network(masks), []
    original = sampling.bounded

    def watched(shape: tuple[int, ...], bound: int, t: int) -> modular.Residues:
        seen.append((shape, bound))
        return original(shape, bound, t)

    monkeypatch.setattr(sampling, "bounded", watched)
    run(*parties(program, "cleartext"), random_image(program))
    intervals = bounds.prove(program)
    truncated = [("first", (8, 4, 4)), ("square", (8, 4, 4)), ("second", (8, 4, 4))]
    expected = [(shape, bounds.largest(intervals[name])) for name, shape in truncated]
    assert seen == (expected if masks == "bounded" else [])


def seeded(seed: int) -> object:
    """A stand-in for the system's generator that both runs share."""
    random = np.random.default_rng(seed)
    return lambda shape, t: random.integers(0, t, shape, dtype=np.uint64)


@pytest.mark.parametrize("made", [network, attention])
@pytest.mark.parametrize("masks", ["uniform", "bounded"])
def test_encrypted_equals_clear_text_bit_for_bit(
    made: Callable[[str], Program], masks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same masks all engines give both parties the same shares, node by node."""
    program, results = made(masks), []
    for engine in ENGINES:
        client, session = parties(program, engine)
        monkeypatch.setattr(sampling, "uniform", seeded(7))
        logits, traffic = run(client, session, random_image(program))
        results.append((logits, client.shares, session.shares, [t.position for t in traffic]))
    *encrypted, clear = results
    assert len(encrypted) == 2
    for found in encrypted:
        assert (found[0] == clear[0]).all()
        assert found[3] == clear[3]
        for mine, other in zip(found[1:3], clear[1:3], strict=True):
            assert mine.keys() == other.keys()
            assert all(np.array_equal(mine[name], other[name]) for name in mine if mine[name] is not None)


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_and_bytes_of_every_exchange(engine: str) -> None:
    program = network()
    client, session = parties(program, engine)
    traffic = check(program, client, session, random_image(program))
    up, down = (8 * 8192, 8 * 8192) if engine == "cleartext" else message_bytes(program.parameters)
    expected = []
    for position, node in enumerate(program.nodes):
        counts = session.meter.counts[node.name]
        match node.operation:
            case Linear(layer):
                sent, back = layer.ciphertexts_in * (up + 4), layer.ciphertexts_out * (down + 4)
                assert (counts["rotate"], counts["pmult"]) == (layer.rotations, layer.pmults)
            case Square():
                assert (counts["rotate"], counts["pmult"]) == (0, 1)
                (size,) = subring.sizes(int(np.prod(node.shape)), 8192)
                assert size < 8192
                seed, second = (0, 0) if engine == "cleartext" else (SEED_BYTES, down // 2)
                sent = size * (up - seed) // 8192 + seed + 4
                back = size * (down - second) // 8192 + second + 4
            case _:
                assert not counts
                continue
        expected.append(Traffic(position, 8 + sent, 8 + back))
        assert client.meter.seconds[node.name] > 0
        assert session.meter.seconds[node.name] > 0
    assert traffic == [*expected, Traffic(wire.OUTPUT, 8, 8 + 4 + 8 * 10)]


def requests(client: Client, session: Session, image: Values) -> Generator[tuple[bytes, bytes], None, None]:
    """Each (request, reply) of one inference, as it goes."""
    exchange = client.infer(image)
    message = next(exchange)
    while True:
        reply = session.handle(message)
        yield message, reply
        try:
            message = exchange.send(reply)
        except StopIteration:
            return


def strange(message: bytes) -> list[bytes]:
    """Cut, lengthened, about another step, with another number of parts, with residues over t, foreign."""
    return [
        b"",
        message[:7],
        message[:-1],
        message + b"\0",
        message[:4] + b"\xee\x00" + message[6:],
        message[:6] + b"\x63\x00" + message[8:],
        message[:12] + bytes([255]) * (len(message) - 12),
        b"GET / HTTP/1.1\r\n\r\n",
        wire.frame(wire.OUTPUT, []),
        wire.frame(wire.OUTPUT, [b"x"]),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_requests_that_are_not_due_start_the_image_over(engine: str) -> None:
    program = network()
    client, session = parties(program, engine)
    image = random_image(program)
    recorded = [message for message, _ in requests(client, session, image)]
    for position, message in enumerate(recorded[:-1]):
        for foreign in (*strange(message), *(m for m in recorded if m is not message)):
            for due in recorded[:position]:
                session.handle(due)
            with pytest.raises(RuleError, match="must"):
                session.handle(foreign)
            if engine == "tenseal":
                break
        check(program, client, session, image)


def test_replies_that_are_not_due_are_refused(cleartext: tuple[Program, Client, Session]) -> None:
    program, client, session = cleartext
    image = random_image(program)
    count = len(list(requests(client, session, image)))
    for position in range(count):
        for kind in range(8):
            exchange = client.infer(image)
            message = next(exchange)
            for _ in range(position):
                message = exchange.send(session.handle(message))
            reply = session.handle(message)
            with pytest.raises(RuleError, match="must"):
                exchange.send(strange(reply)[kind])
            with pytest.raises(RuleError, match="must"):
                session.handle(b"")
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
    pairs = [requests(*case) for case in zip(clients, sessions, images, strict=True)]
    list(zip(*pairs, strict=True))
    for client, session, image in zip(clients, sessions, images, strict=True):
        values = audit.reconstruct(program, client.shares, session.shares)
        assert audit.wrong_nodes(program, values) == []
        assert (values["x"] == image).all()


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


def test_dead_layers_are_named() -> None:
    program = network()
    dead = program.weights["second"].rows * 0
    weights = {**program.weights, "second": type(program.weights["second"])(dead, program.weights["second"].bias)}
    with pytest.raises(RuleError, match="needs a weight that is not zero: got layer second"):
        Server(Program(program.nodes, program.parameters, weights), "cleartext")


def test_exported_spectra_are_used() -> None:
    program, seen = network(), []
    t = program.parameters.plain_modulus
    spectra = {
        node.name: spectral.weight_spectrum(layer.layout, program.weights[node.name].rows, t)
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
    run(client, session, random_image(program))
    assert audit.wrong_nodes(program, audit.reconstruct(program, client.shares, session.shares)) == ["second"]
