"""A CKKS program in the service: keys once, one request and one answer, and what is refused."""

import hashlib
import json

import numpy as np
import pytest

from privcirnet.cli.serve import check_room, in_words
from privcirnet.errors import RuleError
from privcirnet.he.ckks.server import ANSWER_BITS
from privcirnet.he.program.program import ImpossibleResultError
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.one_message import ckks
from privcirnet.he.protocol.one_message.session import KEYS, REQUEST, OneMessageClient, OneMessageServer
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.runs.compiled import infer
from privcirnet.service.client import ServiceClient
from privcirnet.service.programs import ProgramVersion
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.store import KeyStore, StoreLimits
from tests.he import ckks_served
from tests.he.networks import network
from tests.service.running import catalogue, serving

IMAGES = ckks_served.images()


@pytest.fixture(scope="module", autouse=True)
def insecure():
    with ckks_served.insecure():
        yield


@pytest.fixture(scope="module")
def server():
    return OneMessageServer(ckks_served.program())


@pytest.fixture(scope="module")
def client(server):
    return OneMessageClient(server.greeting())


@pytest.fixture(scope="module")
def keys(client) -> bytes:
    return client.keys()


@pytest.fixture(scope="module")
def clear() -> np.ndarray:
    known = ckks_served.program()
    return known.sums(known.real(IMAGES))


def test_both_parties_in_this_process(server, client, keys, clear):
    """Lengths are those that the description fixes; an answer is as right as its noise leaves it."""
    session = server.session(keys)
    logits, (traffic,) = run(client, session, IMAGES[0])
    assert (len(keys), traffic.up, traffic.down) == tuple(vars(server.sizes).values())
    error = np.abs(logits - clear[0]) / ckks_served.program().sums.answer
    assert 0 < error.max() < 2.0**-ANSWER_BITS
    assert session.meter.counts["network"]["rotate"] > 0
    assert session.seen() == {}
    session.close()
    assert session.keys is None


def test_over_grpc(server, clear, tmp_path):
    """Beside another program; keys are kept in files and counted by their bytes, images by quotas; nothing is prepared."""
    interactive = Server(network(), "cleartext", watched=False)
    store = KeyStore(folder=tmp_path / "keys")
    books = {"quotas": Quotas(Quota(images=2)), "store": store}
    with serving(catalogue(ckks=server, other=interactive), books=books) as service:
        with ServiceClient(service.address, program="ckks", party=OneMessageClient) as remote:
            assert store.size == remote.bytes_keys == server.sizes.keys
            found = infer(remote, IMAGES)
            assert (found.logits.argmax(axis=1) == clear.argmax(axis=1)).all()
            summary = found.summary(None, np.array([0, 1]))
            assert (summary.images, summary.cost.rounds, summary.phases, summary.layers) == (2, 1, None, [])
            with pytest.raises(RuleError, match="a client may begin 2 images in all"):
                infer(remote, IMAGES)
        with pytest.raises(RuleError, match="must be ckks: got mode=interactive"):
            ServiceClient(service.address, program="other", party=OneMessageClient)
        with pytest.raises(RuleError, match="must be interactive"):
            ServiceClient(service.address, program="ckks")
    with pytest.raises(RuleError, match="only interactive programs have an offline phase"):
        server.prepared_bytes(bytes(32))


def test_in_clear():
    """The twin of both parties: the same messages without keys, which hide nothing."""
    server = OneMessageServer(ckks_served.program(), "cleartext")
    client = OneMessageClient(server.greeting(), "cleartext")
    logits, _ = run(client, server.session(client.keys()), IMAGES[0])
    known = ckks_served.program()
    np.testing.assert_allclose(logits, known.sums(known.real(IMAGES[:1]))[0], atol=1e-6)
    for party in (OneMessageServer, OneMessageClient):
        given = ckks_served.program() if party is OneMessageServer else server.greeting()
        with pytest.raises(RuleError, match="runs with engine=kernel or cleartext: got tenseal"):
            party(given, "tenseal")


def test_foreign_keys_give_no_result(server, keys):
    stranger = OneMessageClient(server.greeting())
    with pytest.raises(ImpossibleResultError, match="as wide as right ones are"):
        run(stranger, server.session(keys), IMAGES[0])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda parts: parts[:-1], r"keys must be for every step"),
        (lambda parts: [], "must have the length that the parameters fix"),
        (lambda parts: [*parts, parts[-1]], "must have the length that the parameters and rotations fix"),
        (lambda parts: [parts[0], *parts[:0:-1]], "must have the length|residue must be under"),
        (lambda parts: [parts[0][:-1], *parts[1:]], "must have the length that the parameters fix"),
        (lambda parts: [parts[0], bytes([255]) * len(parts[1]), *parts[2:]], "residue must be under its prime"),
    ],
)
def test_keys_that_are_none(server, keys, change, match):
    with pytest.raises(RuleError, match=match):
        server.session(wire.frame(KEYS, change(wire.unframe(keys, KEYS))))


def test_a_session_needs_keys(server):
    with pytest.raises(RuleError, match="a session of one message needs keys"):
        server.session(None)


def test_requests_and_answers_that_are_none(server, client, keys):
    session, message = server.session(keys), next(client.infer(IMAGES[0]))
    part = wire.unframe(message, REQUEST)[0]
    for wrong in ([], [part, part], [part[:-1]], [part + b"\0"], [b"\xff" * len(part)]):
        with pytest.raises(RuleError, match=r"must have 1 ciphertexts|must have the length|must be under"):
            session.handle(wire.frame(REQUEST, wrong))
    with pytest.raises(RuleError, match="a message must be"):
        session.handle(message + b"\0")
    asking = client.infer(IMAGES[0])
    next(asking)
    with pytest.raises(RuleError, match="must have the length"):
        asking.send(wire.frame(wire.OUTPUT, [part]))
    with pytest.raises(RuleError, match=r"must have the program's shape \(3, 8, 8\)"):
        next(client.infer(IMAGES[0][:, :4]))


def test_messages_that_are_too_long_are_refused_as_they_come(server, client, keys):
    with serving(catalogue(only=server)) as service:
        with ServiceClient(service.address, party=OneMessageClient) as remote:
            with pytest.raises(RuleError, match=rf"at most {server.sizes.request} bytes"):
                remote.handle(bytes(server.sizes.request + 1))
        with ServiceClient(service.address, party=OneMessageClient) as remote:
            remote._keys = keys + bytes(1)
            remote._id = hashlib.sha256(remote._keys).digest()
            with pytest.raises(RuleError, match=rf"at most {server.sizes.keys} bytes"):
                remote.reopen()


def test_keys_have_room_by_their_bytes(server, monkeypatch):
    offer = ProgramVersion.of("only", server)
    words = in_words(offer)
    assert "CKKS, 5 bootstrappings" in words
    assert "show results to nobody" in words
    with pytest.raises(RuleError, match=r"must have room for a client's: got 0.03 GB of only for 0.02 GB"):
        check_room(catalogue(only=server), StoreLimits(gigabytes=0.02))
    check_room(catalogue(only=server), StoreLimits())
    books = {"store": KeyStore(StoreLimits(gigabytes=0.05))}
    with serving(catalogue(only=server), books=books) as service:
        with (
            ServiceClient(service.address, party=OneMessageClient),
            pytest.raises(RuleError, match="must have room for keys"),
        ):
            ServiceClient(service.address, party=OneMessageClient)
    monkeypatch.setattr(ckks, "machine_bytes", lambda: 10_000_000)
    with pytest.raises(RuleError, match="must fit the memory"):
        OneMessageServer(ckks_served.program())


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"version": 2}, "must have format privcirnet-ckks and version 1"),
        ({"keys": None}, "must have a list"),
        ({"keys": [[1, 3], [1, 3]]}, "must have its keys in order"),
        ({"keys": [[1, 99]]}, "must have an integer in"),
        ({"keys": [[1 << 22, 1]]}, "must have an integer in"),
        ({"keys": [[6, 1]]}, "must have keys of Galois elements"),
        ({"keys": [[(1 << 17) + 1, 1]]}, "must have keys of Galois elements"),
        ({"image": [3, 8, 4]}, "must have a square image"),
        ({"image": [3, 7, 7]}, "must be a power of two"),
        ({"image": [3, 1 << 30, 1 << 30]}, "must have an integer in"),
        ({"last": [16]}, "must have logits in one ciphertext"),
        ({"last": [64, 8]}, "must have logits in one ciphertext"),
        ({"image": [512, 32, 32]}, "must have an integer in|a map must fit"),
        ({"classes": 99}, "must have an integer in"),
        ({"bound": float("nan")}, "must have a positive number"),
        ({"answer": 0.0}, "must have a positive number"),
        ({"level": -1}, "must have an integer in"),
        ({"log_step": 1 << 40}, "must have an integer in"),
    ],
)
def test_descriptions_that_are_none(server, changes, match):
    greeting = json.dumps({**json.loads(server.greeting()), **changes}).encode()
    with pytest.raises(RuleError, match=match):
        OneMessageClient(greeting)


def test_descriptions_that_are_not_secure(server):
    """Nothing is searched for before the ring and the number of levels are known to be of use."""
    known = json.loads(server.greeting())["parameters"]
    for changes, match in (
        ({}, "must be at most|secure"),
        ({"ring_degree": 65536, "levels": 1 << 16}, "at most 64 levels"),
        ({"ring_degree": 3}, "must have a secure ring"),
        ({"levels": "20"}, "must have an integer in"),
    ):
        with pytest.raises(RuleError, match=match):
            ckks_served.honest_parameters({**known, **changes})
