"""The client's side of prepared inference: its offline walk through the program, and its answers with the image."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv.interface import ClientEngine
from privcirnet.he.layers.integer import Values
from privcirnet.he.mpc.local import shares
from privcirnet.he.mpc.local.packing import pack
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.offline.correlated import CorrelatedRandomness, CorrelationFormat
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.offline.store_files import UnusablePreparationError
from privcirnet.he.protocol.rounds.exchange import Exchange
from privcirnet.he.protocol.rounds.merged import BatchedExchange, arrays_of, keep
from privcirnet.he.protocol.rounds.message_batches import OnlineBatch, offline_batches, online_batches
from privcirnet.he.protocol.rounds.message_specs import PartyCoroutine, answering_together, run_initiator, run_responder
from privcirnet.he.protocol.rounds.online_phase import SHARE, Kept, OnlinePhase
from privcirnet.he.protocol.rounds.transfers import begin, more, takes_transfers
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.mpc.ot.session import OtSession


class Walk(dict[str, Residues]):
    """The client's share of every node; derived shares are computed on first use.

    Args:
        program: program, with or without weights.
    """

    def __init__(self, program: Program, correlations: Mapping[str, Kept]) -> None:
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
        program: program, with or without weights.
        exchanges: exchanges by node.
    """

    program: Program
    exchanges: Mapping[str, Exchange]
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
            count: number of images, at most what :func:`message_sizes.max_batch` allows.

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
        correlations: list[dict[str, Kept]] = [self._chosen() for _ in serials]
        walks = [Walk(self.program, arrays) for arrays in correlations]
        done = list[list[list[Kept]]]()
        try:
            if transfers is None and takes_transfers(self.exchanges):
                transfers = yield from begin(self.program)
            for bundle in offline_batches(self.program, self.exchanges, count):
                exchanges, done = {node.name: self.exchanges[node.name] for node in bundle.nodes}, []
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
            for stage in self._stages:
                names = [node.name for node in stage.nodes]
                if names:
                    sides = [self._answers(node, correlated, walk) for node in stage.nodes]
                    side, measured = answering_together(sides, stage.each), partial(self.meter.time, *names)
                    _, reply = yield from run_responder(
                        side, reply, stage.positions[0], stage.trips, measured, memoryview
                    )
            return wire.unframe(reply, wire.OUTPUT, 1)[0]
        except BaseException:
            wipe(walk.values())
            raise
        finally:
            correlated.wipe(SHARE)

    def _chosen(self) -> dict[str, Kept]:
        """Return the client's random shares for one image: of the input, and of every result that it chooses."""
        source, *nodes = self.program.nodes
        random_nodes = [n for n in nodes if n.name in self.exchanges and self.exchanges[n.name].online.chosen]
        return {node.name: {SHARE: sampling.uniform((prod(node.shape),), self._t)} for node in (source, *random_nodes)}

    def _side(
        self,
        nodes: Sequence[Node],
        batch: BatchedExchange,
        correlations: Sequence[Mapping[str, Kept]],
        walks: Sequence[Walk],
        engine: Callable[[], ClientEngine],
        transfers: "OtSession | None",
    ) -> PartyCoroutine[list[list[Kept]]]:
        """Run the exchanges of some nodes; return each node's correlations by image. ``correlations``: earlier ones."""
        arguments = [[np.stack(arg) for arg in zip(*(walk.of(node) for walk in walks), strict=True)] for node in nodes]
        part_shares = [[*map(shares.present, inputs)] for inputs in batch.shares(arguments)]

        def keeps(node: Node, online: OnlinePhase, arrays: Mapping[str, Kept], result: Residues) -> Kept:
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

    @cached_property
    def _stages(self) -> list[OnlineBatch]:
        return online_batches(self.program, self.exchanges)

    def _answers(self, node: Node, correlated: CorrelatedRandomness, walk: Walk) -> PartyCoroutine[None]:
        """Take the client's turns of a node with its correlation, which they use up."""
        arguments, correlation = walk.of(node), correlated.kept[node.name]
        yield from self.exchanges[node.name].online.client(correlation, arguments, self._t)
        correlated.spend(node.name, SHARE)

    def _drop(self, serial: bytes) -> None:
        self.store.drop(serial)
        self._agreed.discard(serial)
        self.dropped.append(f"the server has no prepared work of number {serial.hex()}")
