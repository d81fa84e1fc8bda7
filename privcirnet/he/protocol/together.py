"""Rounds of several nodes and images in one message each way, which only work ahead can have.

Values of several images stand on a new first axis. The values of all squares fill ciphertexts one after the other,
whichever node and image they belong to; the rounds of other operations stand side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privcirnet.he.protocol.exchange import Exchange, ServerShares
from privcirnet.he.protocol.square import SquareExchange
from privcirnet.he.ring.modular import Residues


class Part(NamedTuple):
    """One exchange of a message.

    Attributes:
        exchange: with shares of one image, or of all squares.
        members: which of the message's exchanges it is for: one, or all squares.
    """

    exchange: Exchange
    members: tuple[int, ...]


@dataclass(frozen=True)
class Together:
    """The rounds of some nodes for several images.

    Attributes:
        exchanges: of one image; none of these nodes needs another's result.
        count: of images.
    """

    exchanges: tuple[Exchange, ...]
    count: int = 1

    @cached_property
    def parts(self) -> list[Part]:
        """What the message is made of, in order: every other exchange once for each image, then the squares."""
        squares = [(i, e) for i, e in enumerate(self.exchanges) if isinstance(e, SquareExchange)]
        found = [
            Part(exchange, (number,))
            for number, exchange in enumerate(self.exchanges)
            if not isinstance(exchange, SquareExchange)
            for _ in range(self.count)
        ]
        if squares:
            values = self.count * sum(square.values for _, square in squares)
            whole = SquareExchange(values, squares[0][1].ring_degree)
            found.append(Part(whole, tuple(number for number, _ in squares)))
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

    def shares(self, given: Sequence[ServerShares]) -> list[list[Residues | None]]:
        """Return either party's shares of the inputs of each part.

        Args:
            given: of each exchange, of each of its inputs, (count, ...); None for zeros.
        """
        found = list[list[Residues | None]]()
        for at, (exchange, members) in enumerate(self.parts):
            if isinstance(exchange, SquareExchange):
                flat = [share.reshape(-1) for number in members for share in given[number] if share is not None]
                found.append([np.concatenate(flat)])
            else:
                image = at - next(i for i, part in enumerate(self.parts) if part.members == members)
                found.append([None if share is None else share[image] for share in given[members[0]]])
        return found

    def results(self, parts: Sequence[Residues]) -> list[Residues]:
        """Return a party's shares of the results by exchange, (count, ...); those of squares are flat.

        Args:
            parts: its shares of the results of each part.
        """
        found: list[list[Residues]] = [[] for _ in self.exchanges]
        for (exchange, members), result in zip(self.parts, parts, strict=True):
            if isinstance(exchange, SquareExchange):
                flat, start = result.reshape(-1), 0
                for number in members:
                    size = self.count * _values(self.exchanges[number])
                    found[number] = [*flat[start : start + size].reshape(self.count, -1)]
                    start += size
            else:
                found[members[0]].append(result)
        return [np.stack(each) for each in found]


def _values(exchange: Exchange) -> int:
    assert isinstance(exchange, SquareExchange)
    return exchange.values
