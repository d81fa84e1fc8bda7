"""One round for several images at once, which only work ahead can have: a client's random shares share ciphertexts.

Values of several images stand on a new first axis. A square's fill ciphertexts one after the other, whichever image
they belong to; the rounds of other operations stand side by side in one message.
"""

from dataclasses import dataclass, replace

import numpy as np

from privcirnet.he.engines.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.protocol.exchange import ClientShares, Exchange, Held, RoundPlan, ServerShares
from privcirnet.he.protocol.square import SquareExchange
from privcirnet.he.ring.modular import Residues


@dataclass(frozen=True)
class Together:
    """The round of a node for several images.

    Attributes:
        exchange: of one image.
        count: of images.
    """

    exchange: Exchange
    count: int

    @property
    def plan(self) -> RoundPlan:
        """What all images need."""
        if isinstance(self.exchange, SquareExchange):
            return self._filled.plan
        plan, count = self.exchange.plan, self.count
        return replace(
            plan,
            ciphertexts_up=count * plan.ciphertexts_up,
            ciphertexts_down=count * plan.ciphertexts_down,
            rotations=count * plan.rotations,
            pmults=count * plan.pmults,
            shares_down=count * plan.shares_down,
        )

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        """Return the client's request: :meth:`Exchange.request`.

        Args:
            shares: the client's, of the inputs, (count, ...).
            engine: the client's engine.
        """
        if isinstance(self.exchange, SquareExchange):
            return self._filled.request(shares, engine)
        return [part for one in zip(*shares, strict=True) for part in self.exchange.request(one, engine)]

    def reply(
        self, held: Held, shares: ServerShares, messages: list[bytes], engine: ServerEngine, keys: EvaluationKeys
    ) -> tuple[list[bytes], Residues]:
        """Return the server's reply and its shares of the results: :meth:`Exchange.reply`.

        Args:
            held: of one image.
            shares: the server's, of the inputs, (count, ...); None for zero.
            messages: what :meth:`request` made.
            engine: the server's engine.
            keys: the client's Galois keys, as the engine loaded them.

        Returns:
            (parts of a message, (count, ...)).

        Raises:
            RuleError: the messages are not what :meth:`request` makes.
        """
        if isinstance(self.exchange, SquareExchange):
            return self._filled.reply(held, shares, messages, engine, keys)
        up, replies, own = self.exchange.plan.ciphertexts_up, list[bytes](), list[Residues | None]()
        for index in range(self.count):
            one = [None if share is None else share[index] for share in shares]
            part, share = self.exchange.reply(held, one, messages[index * up :][:up], engine, keys)
            replies += part
            own.append(share)
        return replies, np.stack([share for share in own if share is not None])

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        """Return the client's shares of the results: :meth:`Exchange.finish`.

        Args:
            shares: the client's, of the inputs, as given to :meth:`request`.
            messages: what :meth:`reply` made.
            engine: the client's engine.

        Returns:
            residues, (count, ...).

        Raises:
            RuleError: the messages are not what :meth:`reply` makes.
        """
        if isinstance(self.exchange, SquareExchange):
            return self._filled.finish(shares, messages, engine)
        down = self.exchange.plan.parts_down
        each = enumerate(zip(*shares, strict=True))
        return np.stack([self.exchange.finish(one, messages[i * down :][:down], engine) for i, one in each])

    @property
    def _filled(self) -> SquareExchange:
        assert isinstance(self.exchange, SquareExchange)
        return replace(self.exchange, values=self.count * self.exchange.values)
