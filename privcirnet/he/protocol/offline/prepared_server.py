"""The server's side of prepared inference: offline work, and the image with its correlations."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv.interface import EvaluationKeys, ServerEngine
from privcirnet.he.mpc.local import shares
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.packing import unpack
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing import message_sizes, wire
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.offline.correlated import CorrelatedRandomness, CorrelationFormat
from privcirnet.he.protocol.offline.store import PreparedStore, put_all
from privcirnet.he.protocol.offline.store_files import SERIAL_BYTES, UnusablePreparationError
from privcirnet.he.protocol.rounds import answer, zeroing
from privcirnet.he.protocol.rounds.exchange import Exchange, PreparedNode
from privcirnet.he.protocol.rounds.merged import BatchedExchange, Part, arrays_of, keep
from privcirnet.he.protocol.rounds.message_batches import OnlineBatch, offline_batches
from privcirnet.he.protocol.rounds.message_specs import (
    PartyCoroutine,
    asking_together,
    end,
    run_initiator,
    run_responder,
)
from privcirnet.he.protocol.rounds.online_phase import Kept
from privcirnet.he.protocol.rounds.stacked import StackedExchange
from privcirnet.he.protocol.rounds.transfers import answer_beginning, answer_more
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.mpc.ot.session import OtSession

Phase = Generator[bytes, bytes, bytes]
"""A generator that yields replies, is sent the requests after the first, and returns the last reply."""


@dataclass
class PreparedServer:
    """The prepared inferences of one session.

    Args:
        rounds: rounds by node, see :class:`protocol.parties.server.Server`.
        layers: function that returns the linear layers in clear by node.
        stacks: function that returns the prepared nodes for stacks of images by node.
        stages: result of :func:`protocol.rounds.message_batches.online_batches`.

    Attributes:
        dropped: reasons why correlated randomness could not be used, in words.
    """

    program: Program
    rounds: Mapping[str, tuple[Exchange, PreparedNode]]
    layers: Callable[[], Mapping[str, ClearLinear]]
    stacks: Callable[[], Mapping[str, PreparedNode]]
    store: PreparedStore
    form: CorrelationFormat
    meter: Meter
    stages: Sequence[OnlineBatch]
    preparation: Meter = field(default_factory=Meter)
    dropped: list[str] = field(default_factory=list[str])
    _transfers: "OtSession | None" = None

    @property
    def _t(self) -> int:
        return self.program.parameters.plain_modulus

    @cached_property
    def most(self) -> int:
        """The most images that may be prepared at once."""
        return message_sizes.max_batch(self.program)

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

    def offline(self, message: bytes, engine: ServerEngine, keys: EvaluationKeys) -> Phase:
        """Prepare some images, all of them at once.

        Yields:
            replies; the generator is sent the request after each.

        Returns:
            the last reply.
        """
        count = correlated.read_count(message, self.most)
        self.layers()  # made now: nobody waits
        if count > 1:
            self.stacks()
        serials, correlations = (
            [os.urandom(SERIAL_BYTES) for _ in range(count)],
            [dict[str, Kept]() for _ in range(count)],
        )
        done = list[list[list[Kept]]]()
        try:
            message = yield wire.frame(wire.PREPARE, [correlated.join(serials)])
            exchanges = {name: exchange for name, (exchange, _) in self.rounds.items()}
            transfers, self._transfers = self._transfers, None
            if wire.begins(message) == wire.TRANSFERS:
                transfers, message = yield from answer_beginning(self.program, message)
            for bundle in offline_batches(self.program, exchanges, count):
                names, done = [node.name for node in bundle.nodes], []
                for piece in bundle.pieces:
                    message = yield from answer_more(transfers, piece, message)
                    side = self._side(names, piece, engine, keys, transfers)
                    result, message = yield from run_responder(
                        side, message, wire.OFFLINE + bundle.position, piece.trips
                    )
                    done.append(result)
                keep(correlations, {name: exchanges[name] for name in names}, done)
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
            last_uses: shares to zero after each node, see :func:`protocol.rounds.zeroing.last_uses`.

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
            for stage in self.stages:
                for node in stage.before:
                    if node.name in self.rounds:
                        with self.meter.time(node.name):
                            node_shares[node.name] = end(self._side_of(node, correlated, node_shares))
                        correlated.spend(node.name)
                    elif node is not source:
                        node_shares[node.name] = shares.local_server(self.program, node, node_shares)
                    zeroing.forget(node_shares, last_uses.get(node.name, ()))
                yield from self._together(stage, correlated, node_shares, last_uses)
            share = shares.present(node_shares[self.program.output.name])
        finally:
            correlated.wipe()
        return answer.reveal_output(self.program, share)

    def _side(
        self,
        names: Sequence[str],
        batch: BatchedExchange,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[list[list[Kept]]]:
        """Run the exchanges of some nodes, and return each node's correlations by image."""

        @contextmanager
        def measured(part: Part) -> Generator[None]:
            who = [names[number] for number in part.members]
            with self.preparation.time(*who), self.preparation.count(who[0], engine.counts):
                yield

        def prepared_for(part: Part) -> PreparedNode:
            name = names[part.members[0]]
            return self.stacks()[name] if isinstance(part.exchange, StackedExchange) else self.rounds[name][1]

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

    def _together(
        self,
        stage: OnlineBatch,
        correlated: CorrelatedRandomness,
        node_shares: dict[str, Residues | None],
        last_uses: Mapping[str, Sequence[str]],
    ) -> Generator[bytes, bytes, None]:
        """Take the turns of a stage, and add the server's shares of its results to ``node_shares``."""
        names = [node.name for node in stage.nodes]
        if names:
            side = asking_together([self._side_of(node, correlated, node_shares) for node in stage.nodes], stage.each)
            measured = partial(self.meter.time, *names)
            results = yield from run_initiator(side, stage.positions[0], stage.trips, measured, memoryview)
            node_shares |= zip(names, results, strict=True)
        for name in names:
            correlated.spend(name)
            zeroing.forget(node_shares, last_uses.get(name, ()))

    def _side_of(
        self, node: Node, correlated: CorrelatedRandomness, node_shares: Mapping[str, Residues | None]
    ) -> PartyCoroutine[Residues]:
        """Take the server's turns of a node with an image, if it has any, and return its share of the result."""
        arguments, online = (
            [shares.present(node_shares[name]) for name in node.inputs],
            self.rounds[node.name][0].online,
        )
        return online.server(self.layers().get(node.name), correlated.kept[node.name], arguments, self._t)

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
