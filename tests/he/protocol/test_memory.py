"""How much memory sessions take: what is said of it against what is held, and descriptions that ask for too much."""

import json
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program import manifest
from privcirnet.he.program.exact import ExactReLU
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.program.rearrangement import AsStrided
from privcirnet.he.protocol import schedule
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.rounds import exact
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.runs.memory import check_sessions
from tests.he.held import Party
from tests.he.networks import network

SMALL = network(plain_bits=30)
GB = 10**9


def one_relu(values: int, source: str = "softspoken") -> Program:
    """A small convolution, one of its results so many times, and a ReLU of them."""
    image, first = SMALL.nodes[:2]
    shape = (values, 1, 1)
    wide = Node("wide", AsStrided(shape, 0, (values,), (0,)), (first.name,), shape, first.log_step)
    relu = Node("relu", ExactReLU(4, 1 << 12), ("wide",), shape, first.log_step + 4)
    weights = {first.name: SMALL.weights[first.name]}
    return replace(SMALL, nodes=(image, first, wide, relu), weights=weights, transfers=source, output_bits=20)


@pytest.mark.parametrize("source", ["softspoken", "silent"])
def test_a_description_may_ask_for_half_of_a_clients_memory(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    greeting = json.dumps(manifest.to_dict(one_relu(1 << 24, source))).encode()
    asked = schedule_of(one_relu(1 << 24, source)).client_bytes
    assert len(greeting) < 1200
    assert 6 * GB < asked < 12 * GB, "what is kept of 2^24 values"
    for machine in (2 * asked - 2, 2 * asked):
        monkeypatch.setattr(schedule, "machine_bytes", lambda known=machine: known)
        if machine == 2 * asked:
            assert Client(greeting, "cleartext").program.output.name == "relu"
        else:
            with pytest.raises(RuleError, match="a server's program must leave its client half of the memory"):
                Client(greeting, "cleartext")


def test_what_is_worked_on_does_not_grow_with_a_node() -> None:
    kept = [schedule_of(one_relu(1 << bits)).server_bytes / (1 << bits) for bits in (18, 20, 22)]
    assert kept[0] > kept[1] > kept[2]
    assert kept[2] < 600, "bytes a value, of 1800 that a value takes while it is prepared"
    most = schedule_of(one_relu(1 << 22)).sizes
    assert max(most.request, most.reply) < 9 << 22, "of the answer, 8 bytes a value; all others are of pieces"


@pytest.mark.parametrize("values", [1 << 13, 1 << 14])
def test_memory_of_a_preparation_is_what_is_said(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two images, in a few pieces; what is said has room for another image beside them."""
    program = one_relu(values)
    monkeypatch.setattr(exact, "AT_ONCE_BYTES", values * 1500)
    monkeypatch.setattr(schedule, "MOST_IMAGES", 2)
    server = Server(program, "cleartext")
    client = Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    ours, theirs, asking = Party(), Party(), client.prepare(client.together)
    tracemalloc.start()
    try:
        with suppress(StopIteration):
            message = ours.turn(next, asking)
            while True:
                reply = theirs.turn(session.handle, message)
                message = ours.turn(asking.send, reply)
    finally:
        tracemalloc.stop()
    assert client.prepared == client.together == 2
    assert ours.peak <= schedule_of(program).client_bytes <= 3 * ours.peak
    assert theirs.peak <= schedule_of(program).server_bytes <= 3 * theirs.peak


def test_all_sessions_of_a_server_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    program = one_relu(1 << 22)
    check_sessions([program, SMALL], 4.0, 1)
    monkeypatch.setattr("privcirnet.runs.memory.machine_bytes", lambda: 5 * GB)
    with pytest.raises(RuleError, match=r"all sessions of a server must fit its memory.*use sessions=\d"):
        check_sessions([program, SMALL], 4.0, 4)
