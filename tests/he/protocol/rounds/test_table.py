"""Exact tables between parties: every value the integer network's, in messages of the sizes that are planned."""

from dataclasses import replace

import pytest

from privcirnet.he.program import bounds
from privcirnet.he.program.exact import exact
from privcirnet.he.program.lookup_table import ExactTable, tabulated
from privcirnet.he.program.program import Network, Program
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.he.protocol.rounds.exact import TableExchange
from privcirnet.he.protocol.schedule import schedule_of
from tests.he.networks import network, random_image
from tests.he.parties import check, parties
from tests.he.protocol.rounds.test_floor import wrong

TABLES = {
    "gelu": tabulated("gelu", 4, -4, -4, -32, 31),
    "silu": tabulated("silu", 4, -4, -4, -512, 511),
    "sigmoid": tabulated("sigmoid", 4, -4, -4, -128, 127),
    "tanh": tabulated("tanh", 4, -4, -4, -16, 15),
    "exp": tabulated("exp", 4, -4, -4, -100, 50),
    "reciprocal": tabulated("reciprocal", 4, -4, -4, 1, 100),
    "rsqrt": tabulated("rsqrt", 4, -4, -4, 1, 40),
}


def with_table(program: Program, table: ExactTable) -> Program:
    nodes = [replace(node, operation=table) if node.name == "first_t" else node for node in program.nodes]
    return replace(program, nodes=exact(nodes, bounds.prove(Network(tuple(nodes), program.weights))))


def clipped(program: Program, clips: int) -> Program:
    """The program as if its values might be more numbers than a table has entries; with one ReLU none beyond them."""
    table = next(node.operation for node in program.nodes if isinstance(node.operation, ExactTable))
    high = table.high if clips == 2 else 100
    table, old = tabulated(table.function, 4, -4, -4, table.low, high), table
    bits = max(4, (table.high - table.low).bit_length())
    assert old.bound < 1 << 15
    again = replace(table, clips=clips, first=table.low, index_bits=bits, bound=1 << 16)
    nodes = [replace(node, operation=again) if node.operation == old else node for node in program.nodes]
    return replace(program, nodes=tuple(nodes))


@pytest.mark.parametrize("clips", [0, 1, 2])
@pytest.mark.parametrize("name", TABLES)
def test_every_value_is_the_integer_networks(name: str, clips: int) -> None:
    program = with_table(network(plain_bits=36, divisor=1 << 18), TABLES[name])
    program = clipped(program, clips) if clips else program
    client, session = parties(program, "cleartext")
    ahead, most = prepare(client, session), schedule_of(program).sizes
    image = random_image(program)
    traffic = check(program, client, session, image, "prepared")
    assert wrong(program, client, session, image) == []
    assert len(traffic) == schedule_of(program).rounds_online
    assert max(t.up for t in traffic + ahead) <= most.request
    assert max(t.down for t in traffic + ahead) <= most.reply


@pytest.mark.parametrize(
    ("ends", "index_bits", "clips", "transfers", "ahead", "online"),
    [
        ((-128, 127), 8, 0, 44, 134.0, 10.875),
        ((-256, 127), 9, 0, 53, 201.25, 11.125),
        ((-3900, 127), 8, 1, 69, 157.0, 15.25),
        ((-3900, 300), 8, 2, 72, 190.5, 16.5),
    ],
)
def test_bytes_of_a_value(
    ends: tuple[int, int], index_bits: int, clips: int, transfers: int, ahead: float, online: float
) -> None:
    """GELU from an accumulator of 11 bits more, to 8 bits in shares mod t of 28 bits."""
    table = tabulated("gelu", 11, -4, -4, -128, 127).bounded(*(end << 11 for end in ends))
    assert (table.index_bits, table.clips) == (index_bits, clips)
    exchange = TableExchange(table, (64,), 167772161)
    slots = sum(part.down[-1].stop for part in (exchange.floor, exchange.lookup))
    slots += exchange.floor.up[-1].stop + exchange.lookup.up
    octets = [turn.octets for turn in exchange.plan.turns]
    ours = sum(map(sum, octets)) - octets[0][0] - octets[0][2] - octets[1][0] - octets[1][2]
    found = slots, ours / 64, sum(sum(turn.octets) for turn in exchange.online.turns(exchange.t)) / 64
    assert found == (transfers, ahead, online)
