"""The client: it has the image and the keys, and never sees a weight.

It walks through the program with random shares, offline, and answers the server's questions about an image with what it
kept. A share that follows from others is computed on first use.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from privcirnet.errors import Interrupted, RuleError
from privcirnet.he.bfv.engines import check_engine, engine_of
from privcirnet.he.bfv.interface import ClientEngine
from privcirnet.he.layers.integer import Values
from privcirnet.he.mpc.local import shares
from privcirnet.he.mpc.local.packing import pack
from privcirnet.he.program import manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import Meter, closed, read_greeting
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.offline.correlated import CorrelatedRandomness, CorrelationFormat
from privcirnet.he.protocol.offline.store import MemoryStore, PreparedStore
from privcirnet.he.protocol.offline.store_files import DIGEST_BYTES, UnusablePreparationError
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.rounds.batches import BatchedExchange, OnlineTrip, arrays_of, keep
from privcirnet.he.protocol.rounds.exchange import SHARE, Correlation, OnlinePhase
from privcirnet.he.protocol.rounds.message_specs import PartyCoroutine, end, parted, run_initiator, run_responder
from privcirnet.he.protocol.rounds.transfers import begin, more
from privcirnet.he.protocol.schedule import Schedule, check_description, schedule_of
from privcirnet.he.protocol.wire import MessageSizes
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.system.process import in_one_process
from privcirnet.he.system.threads import beside

if TYPE_CHECKING:
    from privcirnet.he.mpc.ot.session import OtSession


class Walk(dict[str, Residues]):
    """The client's share of every node; derived shares are computed on first use.

    Args:
        program: program, with or without weights.
    """

    def __init__(self, program: Program, correlations: Mapping[str, Correlation]) -> None:
        self._program = program
        self._nodes = {node.name: node for node in program.nodes}
        super().__init__({n: arrays[SHARE].reshape(self._nodes[n].shape) for n, arrays in correlations.items()})

    def __missing__(self, name: str) -> Residues:
        node = self._nodes[name]
        self[name] = shares.local_client(self._program, node, self.of(node))
        return self[name]

    def of(self, node: Node) -> list[Residues]:
        """Return the shares of a node's inputs."""
        return [self[name] for name in node.inputs]


@dataclass
class PreparedClient:
    """The prepared inferences of one client.

    Args:
        program: the public description.
    """

    program: Program
    store: PreparedStore
    form: CorrelationFormat
    meter: Meter
    preparation: Meter
    dropped: list[str] = field(default_factory=list[str])
    _transfers: "OtSession | None" = None
    _agreed: set[bytes] = field(default_factory=set[bytes])
    _unconfirmed: set[bytes] = field(default_factory=set[bytes])

    @property
    def _t(self) -> int:
        return self.program.parameters.plain_modulus

    @property
    def _schedule(self) -> Schedule:
        return schedule_of(self.program)

    def agree(self) -> Generator[bytes, bytes, None]:
        """Drop prepared work of which the server has no half. A store from a backup has work that was used.

        Yields:
            one request for the server; the generator is sent the reply.

        Raises:
            RuleError: the reply is not what the protocol expects.
        """
        mine = self.store.serials()
        reply = yield wire.frame(wire.AGREE, [correlated.join(mine[: correlated.MAX_HELD])])
        theirs = set(correlated.split(*wire.unframe(reply, wire.AGREE, 1)))
        self._agreed = theirs.intersection(mine)
        for serial in self.store.serials():  # an image may have taken one meanwhile
            if serial in mine and serial not in theirs and serial not in self._unconfirmed:
                self._drop(serial)

    def forget_session(self) -> None:
        """Drop the oblivious transfers, whose other ends only the session's server has."""
        self._transfers = None

    def prepare(self, engine: Callable[[], ClientEngine], count: int) -> Generator[bytes, bytes, None]:
        """Prepare some images, all of them at once.

        Args:
            count: number of images, at most what :func:`Schedule.max_batch` allows.

        Yields:
            requests for the server; the generator is sent the reply to each.
        """
        try:
            reply = yield wire.frame(wire.PREPARE, [correlated.write_count(count)])
        finally:  # refused, lost or answered: no other preparation goes on with them
            transfers = self._transfers
            self.forget_session()
        serials = correlated.split(*wire.unframe(reply, wire.PREPARE, 1))
        if len(serials) != count or len({*serials} - {*self.store.serials()}) != count:
            got = f"{len(serials)} numbers for {count} images, not all of them new"
            raise RuleError("prepared work must have a number of its own", got=got, remedy="do not use this server")
        correlations: list[dict[str, Correlation]] = [self._chosen() for _ in serials]
        walks = [Walk(self.program, arrays) for arrays in correlations]
        done: list[list[list[Correlation]]] = []
        try:
            if transfers is None and self._schedule.takes_transfers:
                transfers = yield from begin(self.program)
            for bundle in self._schedule.offline(count):
                exchanges, done = {node.name: self._schedule.exchanges[node.name] for node in bundle.nodes}, []
                position, measured = wire.OFFLINE + bundle.position, partial(self.preparation.time, *exchanges)
                for piece in bundle.pieces:
                    yield from more(transfers, piece)
                    side = self._side(bundle.nodes, piece, correlations, walks, engine, transfers)
                    done.append((yield from run_initiator(side, position, piece.trips, measured)))
                keep(correlations, exchanges, done)
                for arrays, walk in zip(correlations, walks, strict=True):
                    walk.update({node.name: arrays[node.name][SHARE].reshape(node.shape) for node in bundle.nodes})
            self._unconfirmed = {*serials}  # until the server has its halves
            for serial, arrays in zip(serials, correlations, strict=True):
                self.store.put(serial, self.form.write(CorrelatedRandomness(serial, arrays)))
            wire.unframe((yield wire.frame(wire.PREPARED, [correlated.join(serials)])), wire.PREPARED, 0)
            self._agreed.update(serials)
            self._transfers = transfers
        except BaseException:
            for serial in serials:
                self.store.drop(serial)
            raise
        finally:
            self._unconfirmed = set()
            wipe(arrays_of(done))
            for serial, arrays, walk in zip(serials, correlations, walks, strict=True):
                wipe(walk.values())
                CorrelatedRandomness(serial, arrays).wipe()

    @property
    def unknown(self) -> bool:
        """True if there is prepared work, and none whose other half the server is known to have."""
        mine = self.ready
        return bool(mine) and self._agreed.isdisjoint(mine)

    @property
    def ready(self) -> set[bytes]:
        """Serials of the prepared work that is whole on both sides, as far as it is known."""
        return set(self.store.serials()) - self._unconfirmed

    def take(self) -> CorrelatedRandomness | None:
        """Return the oldest prepared work that is whole, which is gone from the store; None if there is none."""
        for serial in self.store.serials():
            if serial not in self._agreed:
                continue
            self._agreed.discard(serial)
            try:
                return self.form.read(serial, self.store.take(serial))
            except UnusablePreparationError as error:
                self.dropped.append(str(error))
        return None

    def infer(
        self, correlated: CorrelatedRandomness, image: Values, walk: Walk
    ) -> Generator[bytes, bytes, bytes | None]:
        """Run the program on an image.

        Args:
            correlated: result of :meth:`take`; its secrets are zeroed in the end, but for the shares in ``walk``.

        Yields:
            requests for the server; the generator is sent the reply to each.

        Returns:
            the server's part of the result; None if it has no other half, and saw nothing of the image.

        Raises:
            RuleError: a reply is not what the protocol expects.
        """
        source = self.program.nodes[0]
        try:
            with self.meter.time(source.name):
                server_share = modular.subtract(modular.residues(image, self._t), walk[source.name], self._t)
                request = wire.frame(wire.ONLINE, [correlated.serial, pack(server_share, self._t)])
            reply = yield request
            if wire.begins(reply) == wire.ONLINE:
                wire.unframe(reply, wire.ONLINE, 0)
                self._drop(correlated.serial)
                return None
            sides = dict[int, PartyCoroutine[None]]()
            for trip in self._schedule.online:
                if trip.shared:
                    side, pairs = self._answers(trip, sides, correlated, walk), [trip.whole]
                    measured = partial(self.meter.time, *(self.program.nodes[number].name for number in trip.shared))
                    _, reply = yield from run_responder(side, reply, trip.position, pairs, measured, memoryview)
            return wire.unframe(reply, wire.OUTPUT, 1)[0]
        except BaseException:
            wipe(walk.values())
            raise
        finally:
            correlated.wipe(SHARE)

    def _chosen(self) -> dict[str, Correlation]:
        """Return the client's random shares for one image: of the input, and of every result that it chooses."""
        source, *nodes = self.program.nodes
        exchanges = self._schedule.exchanges
        random_nodes = [n for n in nodes if n.name in exchanges and exchanges[n.name].online.chosen]
        return {node.name: {SHARE: sampling.uniform((prod(node.shape),), self._t)} for node in (source, *random_nodes)}

    def _side(
        self,
        nodes: Sequence[Node],
        batch: BatchedExchange,
        correlations: Sequence[Mapping[str, Correlation]],
        walks: Sequence[Walk],
        engine: Callable[[], ClientEngine],
        transfers: "OtSession | None",
    ) -> PartyCoroutine[list[list[Correlation]]]:
        """Run the exchanges of some nodes; return each node's correlations by image. ``correlations``: earlier ones."""
        arguments = [[np.stack(arg) for arg in zip(*(walk.of(node) for walk in walks), strict=True)] for node in nodes]
        part_shares = [[*map(shares.present, inputs)] for inputs in batch.shares(arguments)]

        def keeps(node: Node, online: OnlinePhase, arrays: Mapping[str, Correlation], result: Residues) -> Correlation:
            share = arrays[node.name][SHARE] if online.chosen else result.reshape(-1)
            return online.keep_client(share, result.reshape(-1), self._t)

        try:
            node_results = batch.results((yield from batch.client(part_shares, engine(), transfers)))
            by_node = zip(nodes, batch.exchanges, node_results, strict=True)
            return [
                [keeps(node, exchange.online, *pair) for pair in zip(correlations, results, strict=True)]
                for node, exchange, results in by_node
            ]
        finally:
            wipe(share for inputs in [*arguments, *part_shares] for share in inputs)

    def _answers(
        self,
        trip: OnlineTrip,
        sides: dict[int, PartyCoroutine[None]],
        correlated: CorrelatedRandomness,
        walk: Walk,
    ) -> PartyCoroutine[None]:
        """Take the client's turns of a trip; ``sides``: those of nodes whose turns go on, by position. Changed here."""
        for number in trip.begins:
            sides[number] = self._side_of(self.program.nodes[number], correlated, walk)
            next(sides[number])
        received = parted((yield []), trip.shared, False)
        yield [part for number, parts in received.items() for part in sides[number].send(parts)]
        for number in trip.ends:
            end(sides.pop(number))

    def _side_of(self, node: Node, correlated: CorrelatedRandomness, walk: Walk) -> PartyCoroutine[None]:
        """Take the client's turns of a node with its correlation, which they use up."""
        arguments, correlation = walk.of(node), correlated.kept[node.name]
        yield from self._schedule.exchanges[node.name].online.client(correlation, arguments, self._t)
        correlated.spend(node.name, SHARE)

    def _drop(self, serial: bytes) -> None:
        self.store.drop(serial)
        self._agreed.discard(serial)
        self.dropped.append(f"the server has no prepared work of number {serial.hex()}")


class Client:
    """One client of one program; ``with`` closes it.

    Args:
        greeting: result of :meth:`Server.greeting`: the program's public description.
        engine: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing; the server's.
        key: the key that must have signed the description; None for any.
        store: store of prepared work; None: memory, for as long as the client.
        owner: 32 random bytes that the store is bound to; empty if it ends with the client.

    Attributes:
        program: the public description, without weights.
        meter: measurements of images.
        preparation: measurements of offline work.
        waited: whether the last image had to wait for its preparation.
        shares: the client's own share of every node of the last inference.

    Raises:
        RuleError: the greeting is damaged, not signed with the key, or its parameters are not 128-bit secure; what it
            describes takes more than half of the memory; the engine is unknown.
    """

    def __init__(
        self,
        greeting: bytes,
        engine: str = "kernel",
        key: PublicKey | None = None,
        store: PreparedStore | None = None,
        owner: bytes = b"",
    ) -> None:
        self.program = manifest.from_dict(read_greeting(greeting, key, "interactive"))
        check_description(self.program)
        self.meter, self.preparation, self.waited = Meter(), Meter(), False
        self.meters = self.meter, self.preparation
        form = CorrelationFormat("client", self.program, owner or bytes(DIGEST_BYTES))
        self.shares: dict[str, Residues] = {}
        self._prepared = PreparedClient(
            self.program, MemoryStore() if store is None else store, form, self.meter, self.preparation
        )
        check_engine(engine)
        self._make: Callable[[], ClientEngine] | None = lambda: engine_of(engine).client(self.program.parameters)
        self._engine: ClientEngine | None = None
        self._finished = False
        self._threads = dict[str, int]()

    def close(self) -> None:
        """Forget the keys and the shares, whose memory is zeroed. No image can be inferred afterwards."""
        if self._engine is not None:
            self._engine.close()
        self._engine = self._make = None
        wipe(self.shares.values())
        self.shares = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def keys(self) -> bytes:
        """Return a public key, and Galois keys for exactly the program's rotations; they are sent once."""
        return self._open().public_keys(self.program.column_steps)

    def _open(self) -> ClientEngine:
        """Return the engine. Its secret key is made on first use: images with prepared work need none."""
        if self._make is None:
            raise closed()
        if self._engine is None:
            self._engine = self._make()
        return self._engine

    def infer(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Run the program on one image, which is prepared first unless both parties have prepared work.

        Args:
            image: integers in the input node's range, of its shape.

        Yields:
            requests for the server; the generator is sent the reply to each.

        Returns:
            the logits as integers in units of the output's step.

        Raises:
            RuleError: the image has the wrong shape or range, a reply is not what the protocol expects, or this is a
                copy (fork) of the process that began the image, or another thread runs one.
            ImpossibleResultError: the result is wider than right ones are, or no class. The server is not told: all of
                the image's requests were sent.
        """
        check_image(self.program.nodes[0], image)
        if self._make is None:
            raise closed()
        if self._threads.setdefault("image", get_ident()) != get_ident():
            rule, remedy = "a client must run one image at a time", "give each thread a client of its own"
            raise RuleError(rule, got="another thread's, which is under way", remedy=remedy)
        try:
            return (yield from self._inferred(image))
        finally:
            self._threads.clear()

    def _inferred(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Return the logits, see :meth:`infer`."""
        before = [*self.shares.values()] if self._finished else []
        wiped = beside(lambda: wipe(before))  # while the server works on its first reply
        self._finished = False
        try:
            received = yield from in_one_process(self._image(image))
        finally:
            wiped()
        self._finished = True
        return answer.result(self.program, self.shares[self.program.output.name], received)

    def prepare(self, count: int) -> Generator[bytes, bytes, None]:
        """Do all encrypted work for some images to come.

        Yields:
            requests for the server; the generator is sent the reply to each.

        Raises:
            RuleError: a reply is not what the protocol expects, there is no room, or this is a copy (fork) of the
                process that began the work.
        """
        yield from self.agree()
        for first in range(0, count, self.together):
            yield from in_one_process(self._prepared.prepare(self._open, min(self.together, count - first)))

    def agree(self) -> Generator[bytes, bytes, None]:
        """Drop the prepared work of which the server has no half, and the server's of which this client has none.

        A connection begins with it; else an image with correlated randomness that an earlier client left does.

        Yields:
            one request for the server; the generator is sent the reply.

        Raises:
            RuleError: the reply is not what the protocol expects.
        """
        yield from self._prepared.agree()

    def forget_session(self) -> None:
        """Drop state whose other half only the session's server has: a new session begins."""
        self._prepared.forget_session()

    @property
    def together(self) -> int:
        """The most images that are prepared at once: their random shares fill ciphertexts together."""
        return schedule_of(self.program).max_batch

    @property
    def known(self) -> Program:
        """The public description of the program."""
        return self.program

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of the program's messages."""
        return schedule_of(self.program).sizes

    @property
    def prepared(self) -> int:
        """The number of images for which there is prepared work."""
        return len(self._prepared.ready)

    @property
    def dropped(self) -> list[str]:
        """The reasons why prepared work was dropped, in words."""
        return self._prepared.dropped

    def _image(self, image: Values) -> Generator[bytes, bytes, bytes]:
        """Return the server's part of the result; the image is prepared first if there is no prepared work."""
        received = yield from self._prepared_image(image)
        self.waited = received is None
        if received is None:
            yield from self.agree()
            yield from self._prepared.prepare(self._open, 1)
            received = yield from self._prepared_image(image)
        if received is None:
            rule, remedy = "an image must have prepared work", "run it again"
            raise Interrupted(rule, got="a server that has lost what was prepared for it", remedy=remedy)
        return received

    def _prepared_image(self, image: Values) -> Generator[bytes, bytes, bytes | None]:
        """Return the server's part of the result, if both parties have prepared work; None otherwise."""
        if self._prepared.unknown:
            yield from self.agree()
        while (correlated := self._prepared.take()) is not None:
            self.shares = walk = Walk(self.program, correlated.kept)
            received = yield from self._prepared.infer(correlated, image, walk)
            if received is not None:
                return received
            wipe(walk.values())
        return None


def check_image(node: Node, image: Values) -> None:
    """Raise unless an image fits the program's input."""
    assert isinstance(node.operation, Input)
    low, high = node.operation.low, node.operation.high
    if not isinstance(image, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
        got, remedy = type(image).__name__, "give one of what a compiled program's integers() returns"
        raise RuleError("an image must be a NumPy array of integers", got=got, remedy=remedy)
    if tuple(image.shape) != node.shape:
        raise RuleError(
            "an image must have the program's input shape",
            got=f"{tuple(image.shape)} for {node.shape}",
            remedy="resize the image or export a program for this size",
        )
    if image.dtype.kind not in "iu" or image.min() < low or image.max() > high:
        raise RuleError(
            f"pixels must be integers in [{low}, {high}]",
            got=f"{image.dtype} in [{image.min()}, {image.max()}]",
            remedy="scale the image as in training",
        )
