"""Batches of nodes that share messages, in a preparation and with an image: those independent of each other's results.

Offline, the client's share of a square or of a product is random and its own choice, so it is there from the beginning.
Its share of a linear layer's result is there after that layer's exchange. So they come in *waves*: first those whose
inputs follow from random numbers alone, then those that need the result of one layer, and so on. A network that squares
after every layer has two waves, however deep it is. One with linear bottlenecks has three.

The nodes of a wave share messages up to a size, and up to what a party then has in memory. A node that takes more than
that is prepared in pieces, one after the other: a few of its values each. Values of several images stand on a new first
axis. The values of all squares fill ciphertexts one after the other, whichever node and image they belong to. Linear
layers take images together where their stack says so. All other exchanges stand side by side.

With an image a node's turns begin as soon as its inputs are there, and all turns that are due share a message. So a
truncation on a shortcut shares the messages of the ReLU on the main branch, queries, keys and values are truncated
together, and what softmax gathers is truncated while its divisor is looked up: there are as many trips as on the
longest way through the program. Both parties know all of this from the public description.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters, message_bytes
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.rounds.exchange import (
    AT_ONCE_BYTES,
    SHARE,
    ClientShares,
    Correlation,
    Exchange,
    PreparedNode,
    ServerShares,
)
from privcirnet.he.protocol.rounds.linear import LinearExchange, StackedExchange
from privcirnet.he.protocol.rounds.message_specs import (
    PartyCoroutine,
    SharedTrip,
    Trip,
    answering_together,
    asking_together,
    in_step,
    joined_trip,
    trips,
)
from privcirnet.he.protocol.rounds.product import SquareExchange
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.system import threads

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.mpc.ot.session import OtSession

T = TypeVar("T")
R = TypeVar("R")


class Part(NamedTuple):
    """One exchange of a message.

    Attributes:
        exchange: exchange on shares of one image, of a stack of them, or of all squares.
        members: numbers of the message's exchanges that it is for: one, or all squares.
    """

    exchange: Exchange
    members: tuple[int, ...]
    images: range


@dataclass(frozen=True)
class BatchedExchange:
    """The rounds of some nodes for several images.

    Attributes:
        exchanges: exchanges of one image; none of these nodes needs another's result.
    """

    exchanges: tuple[Exchange, ...]
    count: int = 1

    @cached_property
    def parts(self) -> list[Part]:
        """The parts of the message, in order: the rounds of every other exchange, then the squares."""
        squares = [(i, e) for i, e in enumerate(self.exchanges) if isinstance(e, SquareExchange)]
        parts = [
            Part(whole, (number,), images)
            for number, exchange in enumerate(self.exchanges)
            if not isinstance(exchange, SquareExchange)
            for whole, images in _rounds(exchange, self.count)
        ]
        if squares:
            values = self.count * sum(square.values for _, square in squares)
            whole = SquareExchange(values, squares[0][1].ring_degree)
            parts.append(Part(whole, tuple(number for number, _ in squares), range(self.count)))
        return parts

    @cached_property
    def transfers(self) -> tuple[int, int]:
        """The oblivious transfers of all parts, see :class:`protocol.rounds.exchange.RoundPlan`."""
        counts = [part.exchange.plan.transfers for part in self.parts]
        return sum(down for down, _ in counts), sum(up for _, up in counts)

    def working_bytes(self, parameters: Parameters) -> int:
        """Return the most bytes that either party has in memory during its turns in all parts."""
        return sum(part.exchange.working_bytes(parameters) for part in self.parts)

    @cached_property
    def trips(self) -> list[Trip]:
        """The messages and their answers."""
        return [*map(joined_trip, in_step(self._trips))]

    @cached_property
    def _trips(self) -> list[list[Trip]]:
        """The messages and answers of each part."""
        return [trips(part.exchange.plan.turns) for part in self.parts]

    def bytes_of(self, member: int, ciphertext: int) -> tuple[float, float]:
        """Return the bytes (up, down) of one exchange; those of squares are shared by values.

        Args:
            ciphertext: bytes of a ciphertext.
        """
        up = down = 0.0
        for (exchange, members, _), pairs in zip(self.parts, self._trips, strict=True):
            if member in members:
                squares = isinstance(exchange, SquareExchange)
                share = self.count * _values(self.exchanges[member]) / _values(exchange) if squares else 1.0
                up += share * sum(sum(asking.sizes(ciphertext)) for asking, _ in pairs)
                down += share * sum(sum(answering.sizes(ciphertext)) for _, answering in pairs)
        return up, down

    def client(
        self, shares: Sequence[ClientShares], engine: ClientEngine, transfers: "OtSession | None"
    ) -> PartyCoroutine[list[Residues]]:
        """Take the client's turns in all parts.

        Args:
            shares: shares of each part, see :meth:`shares`.

        Returns:
            the result of each part.
        """
        apply = threads.each if engine.concurrent else _one_by_one
        sides = [
            part.exchange.client(inputs, engine, transfers) for part, inputs in zip(self.parts, shares, strict=True)
        ]
        return asking_together(sides, self._trips, lambda function, which: self._each(function, which, apply))

    def server(
        self,
        prepared: Sequence[PreparedNode],
        shares: Sequence[ServerShares],
        engine: ServerEngine,
        keys: EvaluationKeys,
        measured: Callable[[Part], AbstractContextManager[None]],
        transfers: "OtSession | None",
    ) -> PartyCoroutine[list[Residues]]:
        """Take the server's turns in all parts.

        Args:
            prepared: prepared node of each part.
            shares: shares of each part, see :meth:`shares`.
            measured: function that returns a context for the work of a part.

        Returns:
            the result of each part.
        """
        arguments = zip(self.parts, prepared, shares, strict=True)
        sides = [part.exchange.server(node, inputs, engine, keys, transfers) for part, node, inputs in arguments]
        return (yield from answering_together(sides, self._trips, lambda index: measured(self.parts[index])))

    def _each(
        self,
        function: Callable[[int], Any],
        parts: Sequence[int],
        apply: Callable[[Callable[[int], Any], Sequence[int]], list[Any]],
    ) -> list[Any]:
        """Apply a function to each part: in order where they take oblivious transfers, the others side by side."""
        ordered = [index for index in parts if sum(self.parts[index].exchange.plan.transfers)]
        independent = [index for index in parts if index not in ordered]
        results = dict(zip(independent, apply(function, independent), strict=True)) | {i: function(i) for i in ordered}
        return [results[index] for index in parts]

    def shares(self, inputs: Sequence[ServerShares]) -> list[list[Residues | None]]:
        """Return either party's shares of the inputs of each part.

        Args:
            inputs: shares of each input of each exchange, (count, ...); None for zeros.
        """
        part_shares = list[list[Residues | None]]()
        for exchange, members, images in self.parts:
            if isinstance(exchange, SquareExchange):
                flat = [share.reshape(-1) for number in members for share in inputs[number] if share is not None]
                part_shares.append([np.concatenate(flat)])
            else:
                which = slice(images.start, images.stop) if isinstance(exchange, StackedExchange) else images.start
                part_shares.append([None if share is None else share[which] for share in inputs[members[0]]])
        return part_shares

    def results(self, parts: Sequence[Residues]) -> list[Residues]:
        """Return a party's shares of the results by exchange, (count, ...); those of squares are flat."""
        results: list[list[Residues]] = [[] for _ in self.exchanges]
        for (exchange, members, _), result in zip(self.parts, parts, strict=True):
            if isinstance(exchange, SquareExchange):
                flat, start = result.reshape(-1), 0
                for number in members:
                    size = self.count * _values(self.exchanges[number])
                    results[number] = [*flat[start : start + size].reshape(self.count, -1)]
                    start += size
            elif isinstance(exchange, StackedExchange):
                results[members[0]] += [*result]
            else:
                results[members[0]].append(result)
        return [np.stack(images) for images in results]


def keep(
    images: Sequence[dict[str, Correlation]],
    exchanges: Mapping[str, Exchange],
    pieces: Sequence[list[list[Correlation]]],
) -> None:
    """Keep the correlations of nodes for each image.

    Args:
        images: correlations of each image, by node; filled here.
        exchanges: exchanges by node.
        pieces: correlations of each piece, by exchange and image; several pieces are zeroed.
    """
    for number, (name, exchange) in enumerate(exchanges.items()):
        for image, arrays in enumerate(images):
            correlations = [piece[number][image] for piece in pieces]
            arrays[name] = exchange.joined(correlations)
            if len(correlations) > 1:
                wipe(array for correlation in correlations for key, array in correlation.items() if key != SHARE)


def arrays_of(pieces: Sequence[list[list[Correlation]]]) -> Iterator[Residues]:
    """Yield all arrays of the correlations of pieces."""
    return (array for piece in pieces for images in piece for correlation in images for array in correlation.values())


def _rounds(exchange: Exchange, count: int) -> Iterator[tuple[Exchange, range]]:
    """Yield the rounds of an exchange for some images, and the images of each."""
    first = 0
    if isinstance(exchange, LinearExchange) and exchange.stack:
        stack = exchange.stack
        while count - first >= stack.least:
            images = range(first, min(count, first + stack.images))
            yield StackedExchange(exchange.layer.shape, stack, len(images)), images
            first = images.stop
    for image in range(first, count):
        yield exchange, range(image, image + 1)


def _values(exchange: Exchange) -> int:
    assert isinstance(exchange, SquareExchange)
    return exchange.values


def _one_by_one(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply a function as :func:`system.threads.each` does, for an engine that one thread at a time may use."""
    return [function(item) for item in items]


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

    @cached_property
    def trips(self) -> list[Trip]:
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
class OnlineTrip:
    """A question of the server's about an image and the client's answer, which nodes share.

    Attributes:
        before: nodes without turns that come first, in the program's order.
        shared: turns of nodes by their positions, in the program's order; behind the last answer there are none.
        begins: positions of those whose first turns these are.
        ends: positions of those whose last turns these are.
    """

    before: tuple[Node, ...]
    shared: SharedTrip
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def position(self) -> int:
        """The position of the first node, which the messages are about."""
        return next(iter(self.shared))

    @cached_property
    def whole(self) -> Trip:
        """The message and its answer."""
        return joined_trip(self.shared)

    def part(self, position: int) -> float:
        """Return a node's fraction of the bytes."""
        sizes = {number: sum(sum(turn.octets) for turn in pair) for number, pair in self.shared.items()}
        return sizes[position] / sum(sizes.values())


def online_trips(program: Program, exchanges: Mapping[str, Exchange]) -> list[OnlineTrip]:
    """Return all trips with prepared work, and all nodes of a program in their order.

    A node's turns begin when the last turns of its inputs have ended, whatever the turns of other nodes.
    """
    t, after = program.parameters.plain_modulus, dict[str, int]()
    before, shared = defaultdict[int, list[Node]](list), defaultdict[int, dict[int, Trip]](dict)
    begins, ends = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for position, node in enumerate(program.nodes):
        first = max((after[name] for name in node.inputs), default=0)
        pairs = trips(exchanges[node.name].online.turns(t), "server") if node.name in exchanges else []
        after[node.name] = first + len(pairs)
        for trip, pair in enumerate(pairs, first):
            shared[trip][position] = pair
        if pairs:
            begins[first].append(position)
            ends[after[node.name] - 1].append(position)
        else:
            before[first].append(node)
    numbers = range(max(after.values()) + 1)
    return [OnlineTrip(tuple(before[i]), shared[i], tuple(begins[i]), tuple(ends[i])) for i in numbers]
