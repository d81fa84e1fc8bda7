"""How long messages may be."""

import dataclasses

import pytest

from privcirnet.he.program.operations import Square
from privcirnet.he.protocol.framing import message_sizes, wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from tests.he.networks import bottleneck, network, random_image
from tests.he.parties import parties


@pytest.mark.parametrize("engine", ["cleartext", "kernel", "tenseal"])
@pytest.mark.parametrize("program", [network(), bottleneck()], ids=["network", "bottleneck"])
def test_no_message_is_longer_than_what_both_agree_on(program, engine):
    server, most = Server(program, engine), message_sizes.largest(program)
    client = Client(server.greeting(), engine)
    keys = client.keys()
    session = server.session(keys)
    _, traffic = run(client, session, random_image(program))
    assert len(traffic) == message_sizes.rounds(program)
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
    assert sum(key.nbytes for key in loaded.switches.values()) == message_sizes.keys_in_memory(program)


def test_there_is_room_for_shares_in_clear() -> None:
    """Of the result, also where no ciphertext is as long."""
    program = network()
    most = message_sizes.largest(program)
    client, session = parties(program, "cleartext")
    _, traffic = run(client, session, random_image(program))
    assert max(t.down for t in traffic) <= most.reply
    many = dataclasses.replace(program.nodes[-1], shape=(1 << 20, 1, 1))
    longer = dataclasses.replace(program, nodes=(*program.nodes[:-1], many))
    assert message_sizes.largest(longer).reply == wire.framed_bytes([8 << 20]) > most.reply
