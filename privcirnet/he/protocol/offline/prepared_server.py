"""The server's side of prepared inference: offline work, and the image with what was kept of it."""

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
from privcirnet.he.ring.wipe import wipe

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.mpc.ot.session import OtSession

Phase = Generator[bytes, bytes, bytes]
"""Yields replies, is sent the requests after the first, returns the last reply."""


@dataclass
class PreparedServer:
    """One session's.

    Args:
        rounds: by node, see :class:`protocol.parties.server.Server`.
        layers: returns the linear layers in clear by node.
        stacks: returns what the server holds for stacks of images by node.
        stages: of :func:`protocol.rounds.waves.online_batches`.

    Attributes:
        dropped: why correlated randomness could not be used, in words.
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
        """Images that may be prepared at once."""
        return message_sizes.max_batch(self.program)

    def agree(self, message: bytes) -> bytes:
        """Drop what the client has no half of, and return the reply: what is left.

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
        serials, kept = [os.urandom(SERIAL_BYTES) for _ in range(count)], [dict[str, Kept]() for _ in range(count)]
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
                    found, message = yield from run_responder(
                        side, message, wire.OFFLINE + bundle.position, piece.trips
                    )
                    done.append(found)
                keep(kept, {name: exchanges[name] for name in names}, done)
            if wire.unframe(message, wire.PREPARED, 1) != [correlated.join(serials)]:
                raise RuleError("prepared work must keep its number", got="another", remedy="prepare again")
            halves = zip(serials, kept, strict=True)
            put_all(self.store, ((one, self.form.write(CorrelatedRandomness(one, arrays))) for one, arrays in halves))
            self._transfers = transfers
        finally:
            wipe(arrays_of(done))
            for serial, arrays in zip(serials, kept, strict=True):
                CorrelatedRandomness(serial, arrays).wipe()
        return wire.frame(wire.PREPARED, [])

    def online(self, message: bytes, held: dict[str, Residues | None], last_uses: Mapping[str, Sequence[str]]) -> Phase:
        """Run the program on an image.

        Args:
            message: the first request: the serial number, and the server's share of the image.
            held: is given the server's share of every node.
            last_uses: after which node which shares are zeroed, see :func:`protocol.rounds.zeroing.last_uses`.

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
            held[source.name] = unpack(packed, source.shape, self._t)
            for stage in self.stages:
                for node in stage.before:
                    if node.name in self.rounds:
                        with self.meter.time(node.name):
                            held[node.name] = end(self._side_of(node, correlated, held))
                        correlated.spend(node.name)
                    elif node is not source:
                        held[node.name] = shares.local_server(self.program, node, held)
                    zeroing.forget(held, last_uses.get(node.name, ()))
                yield from self._together(stage, correlated, held, last_uses)
            share = shares.present(held[self.program.output.name])
        finally:
            correlated.wipe()
        return answer.reveal_output(self.program, share)

    def _side(
        self,
        names: Sequence[str],
        together: BatchedExchange,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[list[list[Kept]]]:
        """The exchanges of some nodes, and what is kept of each for each image."""

        @contextmanager
        def measured(part: Part) -> Generator[None]:
            who = [names[number] for number in part.members]
            with self.preparation.time(*who), self.preparation.count(who[0], engine.counts):
                yield

        def held(part: Part) -> PreparedNode:
            name = names[part.members[0]]
            return self.stacks()[name] if isinstance(part.exchange, StackedExchange) else self.rounds[name][1]

        onlines = [exchange.online for exchange in together.exchanges]
        drawn = [[online.offline_shares(self._t) for _ in range(together.count)] for online in onlines]
        offline_shares = together.shares([[_stacked(one) for one in zip(*images, strict=True)] for images in drawn])
        try:
            each = [held(part) for part in together.parts]
            own = yield from together.server(each, offline_shares, engine, keys, measured, transfers)
            return [
                [online.keep_server(one, result, self._t) for one, result in zip(images, results, strict=True)]
                for online, images, results in zip(onlines, drawn, together.results(own), strict=True)
            ]
        finally:
            wipe(share for images in drawn for one in images for share in one)
            wipe(share for one in offline_shares for share in one)

    def _together(
        self,
        stage: OnlineBatch,
        correlated: CorrelatedRandomness,
        held: dict[str, Residues | None],
        last_uses: Mapping[str, Sequence[str]],
    ) -> Generator[bytes, bytes, None]:
        """Take the turns of a stage, of which the server's shares of the results are held."""
        names = [node.name for node in stage.nodes]
        if names:
            side = asking_together([self._side_of(node, correlated, held) for node in stage.nodes], stage.each)
            measured = partial(self.meter.time, *names)
            found = yield from run_initiator(side, stage.positions[0], stage.trips, measured, memoryview)
            held |= zip(names, found, strict=True)
        for name in names:
            correlated.spend(name)
            zeroing.forget(held, last_uses.get(name, ()))

    def _side_of(
        self, node: Node, correlated: CorrelatedRandomness, held: Mapping[str, Residues | None]
    ) -> PartyCoroutine[Residues]:
        """The server's turns of a node with an image, if it has any, and its share of the result."""
        arguments, online = [shares.present(held[name]) for name in node.inputs], self.rounds[node.name][0].online
        return online.server(self.layers().get(node.name), correlated.kept[node.name], arguments, self._t)

    def _taken(self, serial: bytes) -> CorrelatedRandomness | None:
        try:
            return self.form.read(serial, self.store.take(serial))
        except UnusablePreparationError as error:
            self.dropped.append(str(error))
            return None


def _stacked(shares: Sequence[Residues | None]) -> Residues | None:
    """Those of several images, (images, ...); None for zeros."""
    found = [share for share in shares if share is not None]
    return np.stack(found) if found else None
