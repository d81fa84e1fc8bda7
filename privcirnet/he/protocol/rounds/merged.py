"""Merged exchanges: several nodes and images in the same messages, which only offline work can have.

Values of several images stand on a new first axis. The values of all squares fill ciphertexts one after the other,
whichever node and image they belong to. Linear layers take images together where their stack says so. All other
exchanges stand side by side; one of more trips goes on in messages that those of fewer have no part in.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.protocol.rounds.exchange import ClientShares, Exchange, PreparedNode, ServerShares
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.protocol.rounds.message_specs import (
    MessageSpec,
    PartyCoroutine,
    answering_together,
    asking_together,
    joined_trips,
    trips,
)
from privcirnet.he.protocol.rounds.online_phase import SHARE, Kept
from privcirnet.he.protocol.rounds.square import SquareExchange
from privcirnet.he.protocol.rounds.stacked import StackedExchange
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
    def trips(self) -> list[tuple[MessageSpec, MessageSpec]]:
        """The messages and their answers."""
        return joined_trips(self._trips)

    @cached_property
    def _trips(self) -> list[list[tuple[MessageSpec, MessageSpec]]]:
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
    images: Sequence[dict[str, Kept]], exchanges: Mapping[str, Exchange], pieces: Sequence[list[list[Kept]]]
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


def arrays_of(pieces: Sequence[list[list[Kept]]]) -> Iterator[Residues]:
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
