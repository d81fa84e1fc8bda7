"""The schedule of a program: its exchanges, made once, and the messages, sizes and memory that follow from them.

Both parties know all of it from the public description alone. A length that a peer announces is compared with these
sizes before room is made for it. They bound every engine's messages; the exact lengths are checked where messages are
parsed.

A party has in memory what it keeps of the images that it prepares; what it works on at a time
(:meth:`protocol.rounds.exchange.Exchange.working_bytes`), with the pieces of one node, or later one image's as bytes;
and meanwhile an image, with what was kept of it and the messages of a trip. What a server computes one reply with is
the process's, and not a session's.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any
from weakref import finalize

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, key_bytes, message_bytes
from privcirnet.he.layers.layer import MOST_IMAGES
from privcirnet.he.mpc.local.packing import packed_size
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.store_files import MAX_HELD, SERIAL_BYTES
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.rounds.batches import OfflineBatch, OnlineTrip, offline_batches, online_trips
from privcirnet.he.protocol.rounds.exchange import Exchange
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.protocol.rounds.message_specs import Trip
from privcirnet.he.protocol.rounds.product import ProductExchange, SquareExchange
from privcirnet.he.protocol.rounds.transfers import refill_trips, setup_trips, stock_bytes
from privcirnet.he.protocol.wire import MessageSizes
from privcirnet.he.system.process import machine_bytes

_TOGETHER_BYTES, _CORRELATED_BYTES = 1 << 24, 1 << 27
"""Bytes of a message about several images, and of their prepared work while it is made."""
_AROUND = 3
"""Messages each way around what an image's preparation exchanges: AGREE, PREPARE, PREPARED."""
_WORD = 8
"""Bytes of a residue in the clear-text engine's messages and in a party's memory."""
_MAKING_KEYS = 6
"""Times their bytes that a client has in memory while it makes Galois keys."""
_ONLINE_BYTES = 160
"""Bytes for a value that an exact step takes with an image, and more than other nodes need."""
_PART = 2
"""A server's description may ask a client for this part of its memory: half of it."""
_SILENT_FROM = 160_000
"""Transfers of an image, one way, from which silent ones send fewer bytes, their setup included."""

Constructor = Callable[[Any, tuple[int, int, int], Program], Exchange]
"""Function (operation, shape of its result, program) -> exchange."""


def _floor(operation: Any, shape: tuple[int, int, int], program: Program) -> Exchange:
    from privcirnet.he.protocol.rounds.exact import FloorExchange  # it loads the kernels

    return FloorExchange(operation, shape, program.parameters.plain_modulus, source=program.transfers)


def _table(operation: Any, shape: tuple[int, int, int], program: Program) -> Exchange:
    from privcirnet.he.protocol.rounds.exact import TableExchange

    return TableExchange(operation, shape, program.parameters.plain_modulus, program.transfers)


EXCHANGES: dict[type, Constructor] = {
    op.Linear: lambda operation, shape, program: LinearExchange(operation.layer, operation.stack),
    op.Square: lambda operation, shape, program: SquareExchange(prod(shape), program.parameters.ring_degree),
    op.MatMul: lambda operation, shape, program: ProductExchange(operation),
    op.ExactTruncate: _floor,
    op.ExactReLU: _floor,
    op.ExactTable: _table,
}
"""Exchanges by operations that are not local."""


def exchange_of(node: Node, program: Program) -> Exchange | None:
    """Return the exchange of a node; None if its operation is local (:mod:`mpc.local.shares`)."""
    kind = type(node.operation)
    if node.operation.local:
        return None
    if kind not in EXCHANGES:
        rule, remedy = "an operation that is not local must have an exchange", f"give it a line in {__name__}.EXCHANGES"
        raise RuleError(rule, got=f"{kind.__name__} at node {node.name}", remedy=remedy)
    return EXCHANGES[kind](node.operation, node.shape, program)


class Schedule:
    """All that both parties know of a program's messages before the first is sent.

    Args:
        program: the public description; weights are not looked at.

    Attributes:
        exchanges: exchanges by the names of their nodes, in order.

    Raises:
        RuleError: an operation is not local, but has no exchange.
    """

    def __init__(self, program: Program) -> None:
        self.program = replace(program, weights={})
        pairs = ((node.name, exchange_of(node, program)) for node in program.nodes)
        self.exchanges: Mapping[str, Exchange] = {name: exchange for name, exchange in pairs if exchange is not None}
        self._offline = dict[int, list[OfflineBatch]]()

    def offline(self, count: int) -> list[OfflineBatch]:
        """Return the batches of nodes that share messages, in order, to prepare some images at once."""
        if count not in self._offline:
            self._offline[count] = offline_batches(self.program, self.exchanges, count)
        return self._offline[count]

    @cached_property
    def online(self) -> list[OnlineTrip]:
        """All trips of an image with prepared work, and all nodes in their order."""
        return online_trips(self.program, self.exchanges)

    @property
    def rounds(self) -> int:
        """The number of messages each way for the first image of a session, which is prepared first."""
        return self.rounds_ahead(1) + self.rounds_online

    def rounds_ahead(self, count: int) -> int:
        """Return the number of messages each way that prepare some images at once, the first ones of their session."""
        return _AROUND + len(self._setup) + sum(len(batch.trips) for batch in self.offline(count))

    @cached_property
    def rounds_online(self) -> int:
        """The number of messages each way for a prepared image: its first, and those that ask."""
        return 1 + len(self._asking)

    @cached_property
    def bytes_online(self) -> int:
        """The bytes that are sent for a prepared image both ways, without what frames them."""
        octets = sum(sum(turn.octets) for pair in self._asking for turn in pair)
        return self._first_bytes + answer.part_bytes(self.program) + octets

    @cached_property
    def takes_transfers(self) -> bool:
        """True if preparing an image takes oblivious transfers."""
        return any(sum(exchange.plan.transfers) for exchange in self.exchanges.values())

    @property
    def best_source(self) -> str:
        """The source of oblivious transfers that sends the fewest bytes."""
        counts = [exchange.plan.transfers for exchange in self.exchanges.values()]
        return "silent" if max(map(sum, zip(*counts, strict=True)), default=0) >= _SILENT_FROM else "softspoken"

    def transfers_bytes(self, count: int = 1) -> int:
        """Return the most bytes that oblivious transfers take at either party beside those that a node works on.

        Args:
            count: number of images that are prepared at once.
        """
        if not self.takes_transfers:
            return 0
        needed = max(sum(piece.transfers) for batch in self.offline(count) for piece in batch.pieces)
        return stock_bytes(self.program.transfers, needed)

    @cached_property
    def max_batch(self) -> int:
        """The most images that can be prepared at once: what either party has of them in memory is limited."""
        values = sum(map(sum, (exchange.online.server_keeps.values() for exchange in self.exchanges.values())))
        limit = min(MOST_IMAGES, _CORRELATED_BYTES // (_WORD * max(values, 1)))
        return next((count for count in range(limit, 1, -1) if max(self._ahead(count)) <= _TOGETHER_BYTES), 1)

    @cached_property
    def sizes(self) -> MessageSizes:
        """The sizes of the longest messages.

        Seeded ciphertexts, replies and keys may be shorter than the words of the clear-text engine, which count too.
        """
        ahead = [self._ahead(count) for count in range(1, self.max_batch + 1)]  # more images may take fewer ciphertexts
        parameters, program = self.program.parameters, self.program
        keys = len(program.column_steps) * max(key_bytes(parameters, SEAL_SEED_BYTES), _WORD)
        requests = [wire.framed_bytes([SERIAL_BYTES, self._first_bytes])]
        requests += [wire.framed_bytes(turn.sizes(0)) for _, turn in self._asking]
        replies = [*(wire.framed_bytes(turn.sizes(0)) for turn, _ in self._asking)]
        replies += [wire.framed_bytes([answer.part_bytes(program)])]
        numbers = wire.framed_bytes([SERIAL_BYTES * MAX_HELD])
        return MessageSizes(
            keys=message_bytes(parameters, SEAL_SEED_BYTES)[0] + keys,
            request=max(numbers, *requests, *(up for up, _ in ahead)),
            reply=max(numbers, *replies, *(down for _, down in ahead)),
        )

    @property
    def keys_in_memory(self) -> int:
        """The bytes of one client's Galois keys at the server: both polynomials of every digit, in words."""
        parameters = self.program.parameters
        primes, n = len(parameters.coefficient_bits), parameters.ring_degree
        return len(self.program.column_steps) * (primes - 1) * 2 * primes * n * _WORD

    @cached_property
    def server_bytes(self) -> int:
        """The most bytes that one client's session takes at the server: its keys, and what images take."""
        value_counts = {name: sum(exchange.online.server_keeps.values()) for name, exchange in self.exchanges.items()}
        return self.keys_in_memory + self._bytes_of_images(value_counts)

    @cached_property
    def client_bytes(self) -> int:
        """The most bytes that a session takes at the client, beside its process."""
        value_counts = {name: sum(exchange.online.client_keeps.values()) for name, exchange in self.exchanges.items()}
        keys = len(self.program.column_steps) * key_bytes(self.program.parameters)
        return max(_MAKING_KEYS * keys, self._bytes_of_images(value_counts))

    @property
    def _first_bytes(self) -> int:
        """The bytes of the server's share of an image."""
        return packed_size(prod(self.program.nodes[0].shape), self.program.parameters.plain_modulus)

    @cached_property
    def _asking(self) -> list[Trip]:
        """The server's questions about a prepared image and the client's answers."""
        return [trip.whole for trip in self.online if trip.shared]

    @cached_property
    def _setup(self) -> list[Trip]:
        """The messages with which oblivious transfers begin, if there are any, and all kinds that make a stock."""
        if not self.takes_transfers:
            return []
        source = self.program.transfers
        return setup_trips(source) + (refill_trips(2, 2) if source == "silent" else [])

    def _ahead(self, count: int) -> tuple[int, int]:
        """Return the bytes of the longest request and reply that prepare ``count`` images at once."""
        batches = offline_batches(self.program, self.exchanges, count)  # of many counts, of which few are used
        pairs = [*(pair for batch in batches for pair in batch.trips), *self._setup]
        clear = _WORD * self.program.parameters.ring_degree
        sizes = [max(size, clear) for size in message_bytes(self.program.parameters, SEAL_SEED_BYTES)]
        framed = [[wire.framed_bytes(turn.sizes(size)) for turn, size in zip(p, sizes, strict=True)] for p in pairs]
        request, reply = (max(way, default=0) for way in zip(*framed, strict=True)) if framed else (0, 0)
        return request, reply

    def _bytes_of_images(self, value_counts: Mapping[str, int]) -> int:
        """Return the bytes that images take at a party, and what they are prepared with.

        Args:
            value_counts: values that the party keeps of an image, by node.
        """
        count, image, nodes = self.max_batch, _WORD * sum(value_counts.values()), self.program.nodes
        shares = _WORD * sum(prod(node.shape) for node in nodes)
        working = _most(batch.working_bytes(self.program.parameters) for batch in self.offline(count))
        written, in_pieces = image, _WORD * _most(value_counts.values())
        preparing = count * (image + shares) + max(written, in_pieces + working)
        answering = _most(self._answering(trip) for trip in self.online)
        return self.transfers_bytes(count) + preparing + image + shares + answering

    def _answering(self, trip: OnlineTrip) -> int:
        """Return the bytes that a party works on in a trip with an image, its messages included."""
        values = sum(prod(self.program.nodes[number].shape) for number in trip.shared)
        return _ONLINE_BYTES * values + 2 * sum(sum(turn.octets) for pair in trip.shared.values() for turn in pair)


_schedules = dict[int, Schedule]()
"""Schedules by the identity of their programs."""


def schedule_of(program: Program) -> Schedule:
    """Return the schedule of a program. It is made once, and lives as long as the program.

    Raises:
        RuleError: an operation is not local, but has no exchange.
    """
    key = id(program)
    if key not in _schedules:
        _schedules[key] = Schedule(program)
        finalize(program, _schedules.pop, key, None).atexit = False
    return _schedules[key]


def check_description(program: Program) -> None:
    """Raise unless a client has the memory that another party's description asks it for.

    Raises:
        RuleError: it is more than half of what this process may take.
    """
    needed, limit = schedule_of(program).client_bytes, machine_bytes() // _PART
    if needed > limit:
        rule = "a server's program must leave its client half of the memory"
        remedy = "do not use this server, or use a machine or a container with more memory"
        raise RuleError(rule, got=f"{needed / 1e9:.1f} GB where {limit / 1e9:.1f} GB are half", remedy=remedy)


def _most(sizes: Iterable[int]) -> int:
    return max(sizes, default=0)
