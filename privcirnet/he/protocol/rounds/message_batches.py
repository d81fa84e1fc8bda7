"""Batches of nodes that share messages, in a preparation and with an image: those independent of each other's results.

Offline, the client's share of a square or of a product is random and its own choice, so it is there from the beginning.
Its share of a linear layer's result is there after that layer's exchange. So they come in *waves*: first those whose
inputs follow from random numbers alone, then those that need the result of one layer, and so on. A network that squares
after every layer has two waves, however deep it is. One with linear bottlenecks has three.

The nodes of a wave share messages up to a size, and up to what a party then has in memory. A node that takes more than
that is prepared in pieces, one after the other: a few of its values each.

With an image nodes come in *stages*: a node's turns begin with those of all others that wait for no more results. So a
truncation on a shortcut shares the messages of the ReLU on the main branch, and queries, keys and values are truncated
together. Both parties know all of this from the public description.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privcirnet.he.bfv.parameters import Parameters, message_bytes
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.rounds.exchange import AT_ONCE_BYTES, Exchange
from privcirnet.he.protocol.rounds.merged import BatchedExchange
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, joined_trips, trips

MESSAGE_BYTES = 1 << 23
"""Bytes of a message that several nodes share: an image that comes waits for one, some 0.1 s."""


@dataclass(frozen=True)
class OfflineBatch:
    """The nodes of a message, or of several messages where a node takes more trips.

    Attributes:
        nodes: nodes in the program's order.
        positions: their positions in the program; the message is about the first one.
        pieces: pieces of their exchanges, in sequence; several nodes have one.
        ciphertext: most bytes of a ciphertext.
    """

    nodes: tuple[Node, ...]
    positions: tuple[int, ...]
    pieces: tuple[BatchedExchange, ...]
    ciphertext: int

    @property
    def trips(self) -> list[tuple[MessageSpec, MessageSpec]]:
        """All messages and their answers."""
        return [trip for piece in self.pieces for trip in piece.trips]

    @property
    def longest(self) -> int:
        """The most bytes of a message."""
        return max(sum(turn.sizes(self.ciphertext)) for trip in self.trips for turn in trip)

    def working_bytes(self, parameters: Parameters) -> int:
        """Return the most bytes that either party works on."""
        return max(piece.working_bytes(parameters) for piece in self.pieces)

    @property
    def position(self) -> int:
        """The position of the first node."""
        return self.positions[0]

    def part(self, position: int) -> tuple[float, float]:
        """Return a node's fractions of the requests and of the replies."""
        sizes = [self.pieces[0].bytes_of(member, self.ciphertext) for member in range(len(self.nodes))]
        (up, down), whole = sizes[self.positions.index(position)], [sum(way) or 1 for way in zip(*sizes, strict=True)]
        return up / whole[0], down / whole[1]


def offline_generations(program: Program, exchanges: Mapping[str, Exchange]) -> list[list[Node]]:
    """Return the nodes with an exchange, by wave."""
    waves, wave_of = list[list[Node]](), dict[str, int]()
    for node in program.nodes:
        wave = max((wave_of[name] for name in node.inputs), default=0)
        exchange = exchanges.get(node.name)
        if exchange is not None:
            waves += [[] for _ in range(wave + 1 - len(waves))]
            waves[wave].append(node)
            wave = 0 if exchange.online.chosen else wave + 1
        wave_of[node.name] = wave
    return [wave for wave in waves if wave]


def offline_batches(program: Program, exchanges: Mapping[str, Exchange], count: int) -> list[OfflineBatch]:
    """Return the batches of nodes that share messages, in order, to prepare some images."""
    positions = {node.name: position for position, node in enumerate(program.nodes)}
    batches, size = list[OfflineBatch](), max(message_bytes(program.parameters))

    def bundle(nodes: Sequence[Node]) -> OfflineBatch:
        node_pieces = [exchanges[node.name].pieces(count) for node in nodes]
        pieces = tuple(BatchedExchange(piece, count) for piece in zip(*node_pieces, strict=True))
        return OfflineBatch(tuple(nodes), tuple(positions[node.name] for node in nodes), pieces, size)

    def fits(nodes: Sequence[Node]) -> bool:
        """Return whether nodes share messages."""
        if any(len(exchanges[node.name].pieces(count)) > 1 for node in nodes):
            return False
        shared = bundle(nodes)
        return shared.longest <= MESSAGE_BYTES and shared.working_bytes(program.parameters) <= AT_ONCE_BYTES

    for wave in offline_generations(program, exchanges):
        now = wave[:1]
        for node in wave[1:]:
            if fits([*now, node]):
                now.append(node)
            else:
                batches.append(bundle(now))
                now = [node]
        batches.append(bundle(now))
    return batches


@dataclass(frozen=True)
class OnlineBatch:
    """The nodes whose turns with an image are taken together.

    Attributes:
        before: nodes without turns that come first, in the program's order.
        nodes: nodes with turns, in the program's order; in the last stage there may be none.
        positions: their positions in the program; the messages are about the first one.
        each: their turns, see :func:`protocol.rounds.message_specs.trips`.
    """

    before: tuple[Node, ...]
    nodes: tuple[Node, ...]
    positions: tuple[int, ...]
    each: tuple[list[tuple[MessageSpec, MessageSpec]], ...]

    @property
    def trips(self) -> list[tuple[MessageSpec, MessageSpec]]:
        """The messages and their answers."""
        return joined_trips(self.each)

    def part(self, position: int) -> float:
        """Return a node's fraction of the bytes."""
        sizes = [sum(sum(turn.octets) for pair in pairs for turn in pair) for pairs in self.each]
        return sizes[self.positions.index(position)] / sum(sizes)


def online_batches(program: Program, exchanges: Mapping[str, Exchange]) -> list[OnlineBatch]:
    """Return all nodes of a program in the order of an image with prepared work."""
    t, of = program.parameters.plain_modulus, dict[str, int]()
    silent, asking = defaultdict[int, list[Node]](list), defaultdict[int, list[tuple[Node, int, Any]]](list)
    for position, node in enumerate(program.nodes):
        stage = max((of[name] for name in node.inputs), default=0)
        turns = exchanges[node.name].online.turns(t) if node.name in exchanges else ()
        if turns:
            asking[stage].append((node, position, trips(turns, "server")))
        else:
            silent[stage].append(node)
        of[node.name] = stage + bool(turns)
    stages = [(tuple(silent[stage]), asking[stage]) for stage in range(max(of.values()) + 1)]
    return [
        OnlineBatch(before, *(zip(*members, strict=True) if members else ((), (), ()))) for before, members in stages
    ]
