"""The server: it has the weights, and never sees a key that decrypts, an image, or a value that is not masked.

It prepares inferences with a client, and answers images with its half of what was prepared. Shares of which nothing
follows are zeroed while a cache still has them: all shares of an image together are many times a cache.
"""

import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.interface import EvaluationKeys
from privcirnet.he.bfv.noise import check_noise
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.mpc.local import shares
from privcirnet.he.mpc.local.linear import ClearLinear, clear_linear
from privcirnet.he.mpc.local.packing import unpack
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import Meter
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.offline.correlated import CorrelatedRandomness, CorrelationFormat
from privcirnet.he.protocol.offline.store import MemoryStore, PreparedStore, put_all
from privcirnet.he.protocol.offline.store_files import DIGEST_BYTES, SERIAL_BYTES, UnusablePreparationError
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.rounds.batches import BatchedExchange, OnlineTrip, Part, arrays_of, keep
from privcirnet.he.protocol.rounds.exchange import Correlation, PreparedNode
from privcirnet.he.protocol.rounds.linear import StackedExchange
from privcirnet.he.protocol.rounds.message_specs import PartyCoroutine, ask, end, run_initiator, run_responder
from privcirnet.he.protocol.rounds.transfers import answer_beginning, answer_more
from privcirnet.he.protocol.schedule import Schedule, schedule_of
from privcirnet.he.protocol.wire import MessageSizes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.process import Process

if TYPE_CHECKING:
    from privcirnet.he.mpc.ot.session import OtSession


Phase = Generator[bytes, bytes, bytes]
"""A generator that yields replies, is sent the requests after the first, and returns the last reply."""


@dataclass
class PreparedServer:
    """The prepared inferences of one session.

    Args:
        server: the program, and what was made of it once for all sessions.

    Attributes:
        dropped: reasons why correlated randomness could not be used, in words.
    """

    server: "Server"
    store: PreparedStore
    form: CorrelationFormat
    meter: Meter
    preparation: Meter
    dropped: list[str] = field(default_factory=list[str])
    _transfers: "OtSession | None" = None

    @property
    def program(self) -> Program:
        """The program, with its weights."""
        return self.server.program

    @property
    def _t(self) -> int:
        return self.program.parameters.plain_modulus

    @property
    def _schedule(self) -> Schedule:
        return schedule_of(self.program)

    def agree(self, message: bytes) -> bytes:
        """Drop prepared work of which the client has no half, and return the reply.

        Returns:
            the serial numbers that are left.

        Raises:
            RuleError: the message is something else.
        """
        (part,) = wire.unframe(message, wire.AGREE, 1)
        mine, theirs = self.store.serials(), set(correlated.split(part))
        for serial in mine:
            if serial not in theirs:
                self.store.drop(serial)
                self.dropped.append(f"the client has no prepared work of number {serial.hex()}")
        return wire.frame(wire.AGREE, [correlated.join([serial for serial in mine if serial in theirs])])

    def offline(self, message: bytes, keys: EvaluationKeys) -> Phase:
        """Prepare some images, all of them at once.

        Yields:
            replies; the generator is sent the request after each.

        Returns:
            the last reply.
        """
        count = correlated.read_count(message, self._schedule.max_batch)
        _ = self.server.layers  # made now: nobody waits
        if count > 1:
            _ = self.server.stacks
        serials, correlations = (
            [os.urandom(SERIAL_BYTES) for _ in range(count)],
            [dict[str, Correlation]() for _ in range(count)],
        )
        done: list[list[list[Correlation]]] = []
        try:
            message = yield wire.frame(wire.PREPARE, [correlated.join(serials)])
            transfers, self._transfers = self._transfers, None
            if wire.begins(message) == wire.TRANSFERS:
                transfers, message = yield from answer_beginning(self.program, message)
            for bundle in self._schedule.offline(count):
                names, done = [node.name for node in bundle.nodes], []
                for piece in bundle.pieces:
                    message = yield from answer_more(transfers, piece, message)
                    side = self._side(names, piece, keys, transfers)
                    result, message = yield from run_responder(
                        side, message, wire.OFFLINE + bundle.position, piece.trips
                    )
                    done.append(result)
                keep(correlations, {name: self._schedule.exchanges[name] for name in names}, done)
            if wire.unframe(message, wire.PREPARED, 1) != [correlated.join(serials)]:
                raise RuleError("prepared work must keep its number", got="another", remedy="prepare again")
            halves = zip(serials, correlations, strict=True)
            put_all(
                self.store,
                ((serial, self.form.write(CorrelatedRandomness(serial, arrays))) for serial, arrays in halves),
            )
            self._transfers = transfers
        finally:
            wipe(arrays_of(done))
            for serial, arrays in zip(serials, correlations, strict=True):
                CorrelatedRandomness(serial, arrays).wipe()
        return wire.frame(wire.PREPARED, [])

    def online(
        self, message: bytes, node_shares: dict[str, Residues | None], last_uses: Mapping[str, Sequence[str]]
    ) -> Phase:
        """Run the program on an image.

        Args:
            message: the first request: the serial number, and the server's share of the image.
            node_shares: the server's share of every node; filled here.
            last_uses: shares to zero after each node, see :func:`protocol.parties.server.last_uses`.

        Yields:
            replies; the generator is sent the request after each.

        Raises:
            RuleError: a request is not the one that is due.
        """
        serial, packed = wire.unframe(message, wire.ONLINE, 2)
        correlated = self._taken(serial)
        if correlated is None:
            return wire.frame(wire.ONLINE, [])
        try:
            source = self.program.nodes[0]
            node_shares[source.name] = unpack(packed, source.shape, self._t)
            sides, received = dict[int, PartyCoroutine[Residues]](), dict[int, list[Any]]()
            for trip in self._schedule.online:
                for node in trip.before:
                    if node.name in self.server.prepared:
                        with self.meter.time(node.name):
                            node_shares[node.name] = end(self._side_of(node, correlated, node_shares))
                        correlated.spend(node.name)
                    elif node is not source:
                        node_shares[node.name] = shares.local_server(self.program, node, node_shares)
                    zero(node_shares, last_uses.get(node.name, ()))
                if trip.shared:
                    side = self._asks(trip, sides, received, correlated, node_shares)
                    measured = partial(self.meter.time, *(self.program.nodes[number].name for number in trip.shared))
                    yield from run_initiator(side, trip.position, [trip.whole], measured, memoryview)
                for name in (self.program.nodes[number].name for number in trip.ends):
                    correlated.spend(name)
                    zero(node_shares, last_uses.get(name, ()))
            share = shares.present(node_shares[self.program.output.name])
        finally:
            correlated.wipe()
        return answer.reveal_output(self.program, share)

    def _side(
        self,
        names: Sequence[str],
        batch: BatchedExchange,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[list[list[Correlation]]]:
        """Run the exchanges of some nodes, and return each node's correlations by image."""
        engine = self.server.engine

        @contextmanager
        def measured(part: Part) -> Generator[None]:
            who = [names[number] for number in part.members]
            with self.preparation.time(*who), self.preparation.count(who[0], engine.counts):
                yield

        def prepared_for(part: Part) -> PreparedNode:
            name = names[part.members[0]]
            return (
                self.server.stacks[name] if isinstance(part.exchange, StackedExchange) else self.server.prepared[name]
            )

        onlines = [exchange.online for exchange in batch.exchanges]
        drawn = [[online.offline_shares(self._t) for _ in range(batch.count)] for online in onlines]
        offline_shares = batch.shares([[_stacked(arg) for arg in zip(*images, strict=True)] for images in drawn])
        try:
            prepared = [prepared_for(part) for part in batch.parts]
            part_results = yield from batch.server(prepared, offline_shares, engine, keys, measured, transfers)
            return [
                [online.keep_server(image, result, self._t) for image, result in zip(images, results, strict=True)]
                for online, images, results in zip(onlines, drawn, batch.results(part_results), strict=True)
            ]
        finally:
            wipe(share for images in drawn for image in images for share in image)
            wipe(share for inputs in offline_shares for share in inputs)

    def _asks(
        self,
        trip: OnlineTrip,
        sides: dict[int, PartyCoroutine[Residues]],
        received: dict[int, list[Any]],
        correlated: CorrelatedRandomness,
        node_shares: dict[str, Residues | None],
    ) -> PartyCoroutine[None]:
        """Take the server's turns of a trip, and add its shares of the results to ``node_shares``.

        Args:
            sides: sides of nodes whose turns go on, by position. Changed here.
            received: parts of the last answer to each. Changed here.
        """
        nodes = self.program.nodes
        sides |= {number: self._side_of(nodes[number], correlated, node_shares) for number in trip.begins}
        yield from ask(sides, trip.shared, received)
        for number in trip.ends:
            node_shares[nodes[number].name] = end(sides.pop(number), received.pop(number))

    def _side_of(
        self, node: Node, correlated: CorrelatedRandomness, node_shares: Mapping[str, Residues | None]
    ) -> PartyCoroutine[Residues]:
        """Take the server's turns of a node with an image, if it has any, and return its share of the result."""
        arguments = [shares.present(node_shares[name]) for name in node.inputs]
        online = self._schedule.exchanges[node.name].online
        return online.server(self.server.layers.get(node.name), correlated.kept[node.name], arguments, self._t)

    def _taken(self, serial: bytes) -> CorrelatedRandomness | None:
        try:
            return self.form.read(serial, self.store.take(serial))
        except UnusablePreparationError as error:
            self.dropped.append(str(error))
            return None


def _stacked(shares: Sequence[Residues | None]) -> Residues | None:
    """Return the shares of several images as one array, (images, ...); None for zeros."""
    nonzero = [share for share in shares if share is not None]
    return np.stack(nonzero) if nonzero else None


def last_uses(nodes: Iterable[Node]) -> Mapping[str, Sequence[str]]:
    """Return the results whose last use each node is; ``nodes``: a program's nodes, in the order of their turns."""
    last = {name: node.name for node in nodes for name in node.inputs}
    names_by_node = dict[str, list[str]]()
    for name, node in last.items():
        names_by_node.setdefault(node, []).append(name)
    return names_by_node


def zero(shares: dict[str, Residues | None], names: Iterable[str]) -> None:
    """Zero shares and remove them, except those that remaining shares are views of."""
    for name in names:
        share = shares.pop(name)
        if share is not None and any(
            np.may_share_memory(share, remaining) for remaining in shares.values() if remaining is not None
        ):
            shares[name] = share
        else:
            wipe([share])


_LANES = False, True
"""Lanes of a session: images, and offline work. Either goes on whenever a request of it comes."""


class Server:
    """One program, its weights encoded, ready for sessions.

    Args:
        program: program with weights.
        engine: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing.
        spectra: weight spectra by node, if they were exported; computed otherwise.
        progress: function called with each layer's name before its weights are encoded.
        cache: cache for the encoded weights of engine "kernel": a cap on memory, a folder that keeps them.
        signature: signature of the program's public description, for clients that pin a key; empty for none.
        watched: whether sessions keep their shares of every node, for whoever audits both parties. If not, each share
            of a prepared image is zeroed after its last use.

    Attributes:
        program: the given program, with the width of its result if that is proved and was missing.
        engine: the server's engine.
        watched: the given value, for sessions to come.
        prepared: the server's secret inputs to each node that takes an exchange, in order.

    Raises:
        RuleError: no program, a value bound over t / 2, too little noise budget, a layer without a weight, or an
            unknown engine.
    """

    def __init__(  # noqa: PLR0913
        self,
        program: Program,
        engine: str = "kernel",
        spectra: Mapping[str, Residues] | None = None,
        progress: Callable[[str], None] | None = None,
        cache: WeightCache | None = None,
        signature: bytes = b"",
        *,
        watched: bool = True,
    ) -> None:
        if not isinstance(program, Program):  # pyright: ignore[reportUnnecessaryIsInstance]
            got, remedy = type(program).__name__, "of a compiled one give .integer, and spectra=.spectra"
            raise RuleError("a server must have a program of integers", got=got, remedy=remedy)
        self._signature, self.watched, self._lock = signature, watched, Lock()
        intervals = bounds.prove(program) if program.bounds == "proved" else {}
        bounds.check_modulus(program, intervals)
        if intervals and not program.output_bits:
            program = replace(program, output_bits=bounds.value_bits(intervals[program.output.name]))
        self.program, self.engine = program, engine_of(engine).server(program.parameters, cache)
        exchanges = schedule_of(self.program).exchanges
        for name, exchange in exchanges.items():
            check_noise(program.parameters, exchange.noise_bits(program.parameters), name)
        for node, _, stack in program.stacks:
            check_noise(program.parameters, stack.layer.noise_bits(program.parameters), node.name)
        self.prepared: dict[str, PreparedNode] = {}
        for name, exchange in exchanges.items():
            weights, spectrum = program.weights.get(name), (spectra or {}).get(name)
            if progress and weights is not None and weights.rows.size:
                progress(name)
            self.prepared[name] = exchange.prepare(weights, spectrum, self.engine, name)

    @property
    def known(self) -> Program:
        """The public description of the program, and its weights."""
        return self.program

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of its messages."""
        return schedule_of(self.program).sizes

    def in_words(self) -> str:
        """Describe the program's computation and its cost, for the operator."""
        program, pixels = self.program, self.program.pixels
        return (
            f"{len(program.linear_nodes)} layers with weights, {schedule_of(program).rounds} rounds an image, "
            f"n = {program.parameters.ring_degree}, log q = {program.parameters.log_q}; "
            f"images of {' x '.join(map(str, pixels.shape))} integers in [{pixels.low}, {pixels.high}]; "
            f"a session takes {schedule_of(program).server_bytes / 1e6:.0f} MB, "
            f"an inference that it prepares {self.prepared_bytes(bytes(32)) / 1e6:.1f} MB"
        )

    def greeting(self) -> bytes:
        """The program's public description for a client: architecture, plans, parameters; no weight. Signed, or not."""
        signed = {"signature": self._signature.hex()} if self._signature else {}
        return json.dumps({**manifest.to_dict(self.program), **signed}).encode()

    def session(self, keys: Message | None, store: PreparedStore | None = None, owner: bytes = b"") -> "Session":
        """Return a session with one client.

        Args:
            keys: result of :meth:`Client.keys`; None: the session runs prepared images only.
            store: store of work prepared with this client; None: memory, for as long as the session.
            owner: 32 random bytes that a client chose for all that it prepares; empty where the store ends here.

        Raises:
            RuleError: the keys are not what the program's rotations need.
        """
        form = CorrelationFormat("server", self.program, owner or bytes(DIGEST_BYTES))
        loaded = None if keys is None else self.engine.load_keys(bytes(keys), self.program.column_steps)
        return Session(self, loaded, form, MemoryStore() if store is None else store)

    def client(self, engine: str) -> Client:
        """Return a client in this process."""
        return Client(self.greeting(), engine)

    def prepared_bytes(self, owner: bytes) -> int:
        """Return the bytes of one prepared inference."""
        return CorrelationFormat("server", self.program, owner).length

    @cached_property
    def last_uses(self) -> Mapping[str, Sequence[str]]:
        """The shares to zero after each node, where nobody watches."""
        nodes, order = self.program.nodes, schedule_of(self.program).online
        return last_uses(node for trip in order for node in (*trip.before, *(nodes[number] for number in trip.ends)))

    @cached_property
    def layers(self) -> dict[str, ClearLinear]:
        """The linear layers in clear by node, for the online phase; made on first use."""
        t, weights = self.program.parameters.plain_modulus, self.program.weights
        return {node.name: clear_linear(layer, weights[node.name].rows, t) for node, layer in self.program.linear_nodes}

    @property
    def stacks(self) -> Mapping[str, PreparedNode]:
        """The prepared nodes for stacks of images, by node; made when several are first prepared together."""
        with self._lock:
            return self._stacks

    @cached_property
    def _stacks(self) -> Mapping[str, PreparedNode]:
        prepared = dict[str, PreparedNode]()
        for node, shape, stack in self.program.stacks:
            exchange, weights = StackedExchange(shape, stack, stack.images), self.program.weights[node.name]
            prepared[node.name] = exchange.prepare(weights, None, self.engine, node.name)
        return prepared


class Session:
    """A session of one client's inferences, one image at a time. It refuses out-of-order messages; ``with`` closes it.

    Args:
        keys: the client's keys, as the server's engine loaded them; None: it has sent none.

    Attributes:
        dropped: reasons why correlated randomness could not be used, in words.
        shares: the server's own share of every node of the last inference, if it is watched; None for zero.
        watched: whether the images that begin from now on are watched; at first the server's value.
    """

    def __init__(
        self, server: Server, keys: EvaluationKeys | None, form: CorrelationFormat, store: PreparedStore
    ) -> None:
        self.meter, self.preparation, self._process = Meter(), Meter(), Process()
        self.meters = self.meter, self.preparation
        self.shares: dict[str, Residues | None] = {}
        self._server, self._keys, self.watched = server, keys, server.watched
        self._prepared = PreparedServer(server, store, form, self.meter, self.preparation)
        self.dropped = self._prepared.dropped
        self._lanes: dict[bool, Generator[bytes, bytes, None]] | None = {
            offline: self._start(offline) for offline in _LANES
        }

    def close(self) -> None:
        """Forget the client: its keys, and its shares, whose memory is zeroed. Nothing is handled afterwards.

        Without it they stay in memory until Python collects a reference cycle.
        """
        for lane in (self._lanes or {}).values():
            lane.close()
        self._lanes = self._keys = None
        wipe(self.shares.values())
        self.shares = {}

    def seen(self) -> Mapping[str, Residues | None]:
        """Return the shares, which an audit of both parties compares."""
        return self.shares

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def handle(self, message: bytes) -> bytes:
        """Return the reply to one request. A preparation goes on after an image that came between two of its rounds.

        Raises:
            RuleError: it is not the request that is due; the image's inference starts over, and the preparation too if
                the request was about it.
        """
        if self._lanes is None:
            raise RuntimeError("a closed session handles nothing")
        if self._process.changed():  # what images and work in progress have drawn is the other's
            self._lanes = {lane: self._start(lane) for lane in _LANES}
        offline = wire.is_offline(message)
        if wire.begins(message) == wire.PREPARE:  # instead of one that the client gave up
            self._lanes[offline].close()
            self._lanes[offline] = self._start(offline)
        try:
            return self._lanes[offline].send(message)
        except Exception:
            self._lanes = {lane: self._start(lane) if offline >= lane else old for lane, old in self._lanes.items()}
            raise

    def _start(self, offline: bool) -> Generator[bytes, bytes, None]:
        steps = self._preparations() if offline else self._images()
        next(steps)
        return steps

    def _preparations(self) -> Generator[bytes, bytes, None]:
        """Receive requests of offline work and yield the reply to each; the first value yielded is no reply."""
        reply = b""
        while True:
            message = yield reply
            self._check_keys()
            reply = yield from self._prepared.offline(message, self._keys)

    def _images(self) -> Generator[bytes, bytes, None]:
        """Receive requests of images and yield the reply to each; the first value yielded is no reply."""
        reply = b""
        while True:
            message = yield reply
            if wire.begins(message) == wire.AGREE:
                reply = self._prepared.agree(message)
                continue
            wipe(self.shares.values())  # those of the image before
            self.shares = {}
            uses: Mapping[str, Sequence[str]] = {} if self.watched else self._server.last_uses
            reply = yield from self._prepared.online(message, self.shares, uses)

    def _check_keys(self) -> None:
        if self._keys is None:
            rule = "a client without keys must have prepared work for its images"
            raise RuleError(rule, got="a request that needs keys", remedy="register keys")
