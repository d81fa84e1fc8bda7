"""Exchanges of client and server for one operation on shared values: the interface of all kinds.

From their shares of the inputs, each party gets its share of the result, in one or more trips from the client to the
server and back. Each kind is one file beside this one, and one line of the table in
:mod:`protocol.rounds.exchanges`. Nothing but public data is in an exchange, so both parties make the same ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from privcirnet.he.bfv.interface import ClientEngine, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.program.operation import Weights
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine, Sender
from privcirnet.he.protocol.rounds.online_phase import Kept, OnlinePhase
from privcirnet.he.ring.modular import Integers, Residues

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.mpc.ot.session import OtSession

ClientShares = Sequence[Residues]
"""The client's share of each input of a node, residues mod t."""
ServerShares = Sequence[Residues | None]
"""The server's share of each input; None for zero, which its share of the image is."""
AT_ONCE_BYTES = 1 << 27
"""Bytes that either party works on at a time while it prepares: larger exchanges go in pieces, one by one."""


@dataclass(frozen=True)
class RoundPlan:
    """The public facts of an exchange before it happens.

    Attributes:
        turns: messages, the client's first (:mod:`protocol.rounds.message_specs`).
        block_size: b of the weights; 1 without structure.
        transfers: oblivious transfers, which both parties make in the same order: those in which the client
            helps, and those in which the server does.
    """

    kind: str
    encoding: str
    turns: tuple[MessageSpec, ...] = ()
    block_size: int = 1
    rotations: int = 0
    pmults: int = 0
    transfers: tuple[int, int] = (0, 0)

    @property
    def ciphertexts_up(self) -> int:
        """The number of ciphertexts that the client sends."""
        return self._ciphertexts("client")

    @property
    def ciphertexts_down(self) -> int:
        """The number of ciphertexts that the server sends."""
        return self._ciphertexts("server")

    def _ciphertexts(self, sender: Sender) -> int:
        return sum(turn.ciphertexts for turn in self.turns if turn.sender == sender)


@dataclass(frozen=True)
class PreparedNode:
    """The server's secret inputs to a node.

    Attributes:
        weights: weights encoded for the server's engine; None for an operation without weights.
        bias: int64, (K,) or of the result's shape (K, H', W'); None for zero.
    """

    weights: EncodedWeights | None = None
    bias: Integers | None = None


class Exchange(Protocol):
    """The exchange of one node's operation."""

    @property
    def plan(self) -> RoundPlan:
        """The turns and counts."""
        ...

    @property
    def online(self) -> OnlinePhase:
        """The rest of the work with the image where the exchange was done ahead."""
        ...

    def noise_bits(self, parameters: Parameters) -> int:
        """Return log2 of a bound on the noise of the results, from public data only."""
        ...

    def working_bytes(self, parameters: Parameters) -> int:
        """Return the most bytes that either party has in memory during its turns, the results included.

        This counts ciphertexts, whose polynomials are there as messages and as residues. A server has its results only
        while it computes a reply, and one at a time.
        """
        ciphertext = 2 * 8 * parameters.ring_degree * len(parameters.coefficient_bits)
        return 2 * ciphertext * (self.plan.ciphertexts_up + self.plan.ciphertexts_down)

    def pieces(self, count: int) -> "Sequence[Exchange]":
        """Return the exchanges that do this one's work in sequence, for some images at once; here itself.

        :meth:`joined` gives a party's correlation from all of them.
        """
        return [self]

    def joined(self, pieces: Sequence[Kept]) -> Kept:
        """Return a party's correlation from those of the pieces."""
        (whole,) = pieces
        return whole

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        engine: ServerEngine,
        name: str,
    ) -> PreparedNode:
        """Return the node's prepared weights and bias, made once for all exchanges; no weights unless overridden.

        Args:
            weights: the node's weights; None where it has none.
            spectrum: spectrum of the weights, if it was exported; None to compute it.

        Raises:
            RuleError: the weights are zero where the engine needs one that is not.
        """
        return PreparedNode(bias=weights.bias if weights else None)

    def client(
        self, shares: ClientShares, engine: ClientEngine, transfers: "OtSession | None"
    ) -> PartyCoroutine[Residues]:
        """Take the client's turns; it begins.

        Returns:
            the client's share of the result, residues of the node's shape; ahead, whatever its :attr:`online` keeps.

        Raises:
            RuleError: a message is not what the server's side makes.
        """
        ...

    def server(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[Residues]:
        """Take the server's turns.

        Returns:
            the server's share of the result; ahead, whatever its :attr:`online` keeps.

        Raises:
            RuleError: a message is not what the client's side makes.
        """
        ...


class OneTrip(Exchange, ABC):
    """An exchange of one request and one reply."""

    @abstractmethod
    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        """Return the parts of the client's request."""

    @abstractmethod
    def reply(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        messages: list[bytes],
        engine: ServerEngine,
        keys: EvaluationKeys,
    ) -> tuple[list[bytes], Residues]:
        """Return the parts of the server's reply, and its share of the result.

        Raises:
            RuleError: the messages are not what :meth:`request` makes.
        """

    @abstractmethod
    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        """Return the client's share of the result: residues of the node's shape.

        Raises:
            RuleError: the messages are not what :meth:`reply` makes.
        """

    def client(
        self, shares: ClientShares, engine: ClientEngine, transfers: "OtSession | None"
    ) -> PartyCoroutine[Residues]:
        messages = yield self.request(shares, engine)
        return self.finish(shares, messages, engine)

    def server(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[Residues]:
        replies, share = self.reply(prepared, shares, (yield []), engine, keys)
        yield replies
        return share
