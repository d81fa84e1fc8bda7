"""How long messages may be."""

import dataclasses
import gc
import weakref

import pytest

from privcirnet.he.program.operations import Square
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.protocol.schedule import schedule_of
from tests.he.networks import bottleneck, network, random_image
from tests.he.parties import parties


@pytest.mark.parametrize("engine", ["cleartext", "kernel", "tenseal"])
@pytest.mark.parametrize("program", [network(), bottleneck()], ids=["network", "bottleneck"])
def test_no_message_is_longer_than_what_both_agree_on(program, engine):
    server, most = Server(program, engine), schedule_of(program).sizes
    client = Client(server.greeting(), engine)
    keys = client.keys()
    session = server.session(keys)
    _, traffic = run(client, session, random_image(program))
    assert len(traffic) == schedule_of(program).rounds
    traffic += prepare(client, session, client.together)
    up, down = (max(getattr(exchange, way) for exchange in traffic) for way in ("up", "down"))
    for length, limit in ((up, most.request), (down, most.reply), (len(keys), most.keys)):
        assert length <= limit
        assert limit < 2 * length or engine == "cleartext", "no more room than is needed"
    assert any(isinstance(node.operation, Square) for node in program.nodes)


def test_memory_of_a_clients_keys():
    program = network()
    server = Server(program, "kernel")
    client = Client(server.greeting())
    loaded = server.engine.load_keys(client.keys(), program.column_steps)
    assert sum(key.nbytes for key in loaded.switches.values()) == schedule_of(program).keys_in_memory


def test_there_is_room_for_shares_in_clear() -> None:
    """Of the result, also where no ciphertext is as long."""
    program = network()
    most = schedule_of(program).sizes
    client, session = parties(program, "cleartext")
    _, traffic = run(client, session, random_image(program))
    assert max(t.down for t in traffic) <= most.reply
    many = dataclasses.replace(program.nodes[-1], shape=(1 << 20, 1, 1))
    longer = dataclasses.replace(program, nodes=(*program.nodes[:-1], many))
    assert schedule_of(longer).sizes.reply == wire.framed_bytes([8 << 20]) > most.reply


def test_a_schedule_is_made_once_and_goes_with_its_program() -> None:
    program = network()
    made = weakref.ref(schedule_of(program))
    assert schedule_of(program) is made()
    assert not schedule_of(program).program.weights
    del program
    gc.collect()
    assert made() is None
