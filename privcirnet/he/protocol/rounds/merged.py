"""Rounds of several nodes and images in one message each way, which only offline work can have.

Values of several images stand on a new first axis. The values of all squares fill ciphertexts one after the other,
whichever node and image they belong to. Linear layers take images together where their stack says so. The rounds of
all other operations stand side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privcirnet.he.protocol.rounds.exchange import Exchange, ServerShares
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.protocol.rounds.square import SquareExchange
from privcirnet.he.protocol.rounds.stacked import StackedExchange
from privcirnet.he.ring.modular import Residues


class Part(NamedTuple):
    """One exchange of a message.

    Attributes:
        exchange: with shares of one image, of a stack of them, or of all squares.
        members: which of the message's exchanges it is for: one, or all squares.
    """

    exchange: Exchange
    members: tuple[int, ...]
    images: range


@dataclass(frozen=True)
class Together:
    """The rounds of some nodes for several images.

    Attributes:
        exchanges: of one image; none of these nodes needs another's result.
    """

    exchanges: tuple[Exchange, ...]
    count: int = 1

    @cached_property
    def parts(self) -> list[Part]:
        """What the message is made of, in order: the rounds of every other exchange, then the squares."""
        squares = [(i, e) for i, e in enumerate(self.exchanges) if isinstance(e, SquareExchange)]
        found = [
            Part(whole, (number,), images)
            for number, exchange in enumerate(self.exchanges)
            if not isinstance(exchange, SquareExchange)
            for whole, images in _rounds(exchange, self.count)
        ]
        if squares:
            values = self.count * sum(square.values for _, square in squares)
            whole = SquareExchange(values, squares[0][1].ring_degree)
            found.append(Part(whole, tuple(number for number, _ in squares), range(self.count)))
        return found

    @property
    def ciphertexts_up(self) -> int:
        """Ciphertexts that the client sends."""
        return sum(part.exchange.plan.ciphertexts_up for part in self.parts)

    @property
    def ciphertexts_down(self) -> int:
        """Ciphertexts that the server sends."""
        return sum(part.exchange.plan.ciphertexts_down for part in self.parts)

    @property
    def parts_down(self) -> int:
        """Parts of the server's message."""
        return sum(part.exchange.plan.parts_down for part in self.parts)

    def ciphertexts(self, member: int) -> tuple[float, float]:
        """Return the ciphertexts (up, down) that are one exchange's; those of squares are shared by values."""
        up = down = 0.0
        for exchange, members, _ in self.parts:
            if member in members:
                squares = isinstance(exchange, SquareExchange)
                share = self.count * _values(self.exchanges[member]) / _values(exchange) if squares else 1.0
                up, down = up + share * exchange.plan.ciphertexts_up, down + share * exchange.plan.ciphertexts_down
        return up, down

    def shares(self, given: Sequence[ServerShares]) -> list[list[Residues | None]]:
        """Return either party's shares of the inputs of each part.

        Args:
            given: of each exchange, of each of its inputs, (count, ...); None for zeros.
        """
        found = list[list[Residues | None]]()
        for exchange, members, images in self.parts:
            if isinstance(exchange, SquareExchange):
                flat = [share.reshape(-1) for number in members for share in given[number] if share is not None]
                found.append([np.concatenate(flat)])
            else:
                which = slice(images.start, images.stop) if isinstance(exchange, StackedExchange) else images.start
                found.append([None if share is None else share[which] for share in given[members[0]]])
        return found

    def results(self, parts: Sequence[Residues]) -> list[Residues]:
        """Return a party's shares of the results by exchange, (count, ...); those of squares are flat."""
        found: list[list[Residues]] = [[] for _ in self.exchanges]
        for (exchange, members, _), result in zip(self.parts, parts, strict=True):
            if isinstance(exchange, SquareExchange):
                flat, start = result.reshape(-1), 0
                for number in members:
                    size = self.count * _values(self.exchanges[number])
                    found[number] = [*flat[start : start + size].reshape(self.count, -1)]
                    start += size
            elif isinstance(exchange, StackedExchange):
                found[members[0]] += [*result]
            else:
                found[members[0]].append(result)
        return [np.stack(each) for each in found]


def _rounds(exchange: Exchange, count: int) -> Iterator[tuple[Exchange, range]]:
    """The rounds of an exchange for some images, and which of them each is for."""
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
