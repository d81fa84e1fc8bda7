"""What client and server send each other for one operation on shared values: what all kinds of exchanges have alike.

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
"""The server's; None for zero, which its share of the image is."""
AT_ONCE_BYTES = 1 << 27
"""Of what either party works on at a time while it prepares: larger exchanges go in pieces, one after the other."""


@dataclass(frozen=True)
class RoundPlan:
    """What is known of an exchange before it happens.

    Attributes:
        turns: the client begins (:mod:`protocol.rounds.turns`).
        block_size: b of the weights; 1 without structure.
        transfers: oblivious ones that it takes, which both parties make in the same order: those in which the client
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
        """Ciphertexts that the client sends."""
        return self._ciphertexts("client")

    @property
    def ciphertexts_down(self) -> int:
        """Ciphertexts that the server sends."""
        return self._ciphertexts("server")

    def _ciphertexts(self, sender: Sender) -> int:
        return sum(turn.ciphertexts for turn in self.turns if turn.sender == sender)


@dataclass(frozen=True)
class PreparedNode:
    """What the server alone holds for a node.

    Attributes:
        weights: encoded for the server's engine; None for an operation without weights.
        bias: int64, (K,) or of the result's shape (K, H', W'); None for zero.
    """

    weights: EncodedWeights | None = None
    bias: Integers | None = None


class Exchange(Protocol):
    """What one node's operation takes."""

    @property
    def plan(self) -> RoundPlan:
        """Turns and counts."""
        ...

    @property
    def online(self) -> OnlinePhase:
        """What is left to do with the image where the exchange was done ahead."""
        ...

    def noise_bits(self, parameters: Parameters) -> int:
        """Return log2 of a bound on the noise of the results, from public data only."""
        ...

    def working_bytes(self, parameters: Parameters) -> int:
        """Return the bytes that either party has in memory at most during its turns, what comes of them included.

        Here of ciphertexts, whose polynomials are there as messages and as residues. What a server makes of them it has
        while it computes a reply, and one at a time.
        """
        ciphertext = 2 * 8 * parameters.ring_degree * len(parameters.coefficient_bits)
        return 2 * ciphertext * (self.plan.ciphertexts_up + self.plan.ciphertexts_down)

    def pieces(self, count: int) -> "Sequence[Exchange]":
        """Return exchanges that do this one's work one after the other, for some images at once; here itself.

        What a party keeps of all of them is :meth:`joined`.
        """
        return [self]

    def joined(self, kept: Sequence[Kept]) -> Kept:
        """Return what a party keeps, from what it keeps of each of the pieces."""
        (whole,) = kept
        return whole

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        engine: ServerEngine,
        name: str,
    ) -> PreparedNode:
        """Return what the server holds for the node, made once for all exchanges; no encoded weights unless overridden.

        Args:
            weights: the node's; None where it has none.
            spectrum: of the weights, if it was exported; None to compute it.

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
        held: PreparedNode,
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
    """What exchanges of one request and one reply have alike."""

    @abstractmethod
    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        """Return the parts of the client's request."""

    @abstractmethod
    def reply(
        self,
        held: PreparedNode,
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
        held: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[Residues]:
        replies, own = self.reply(held, shares, (yield []), engine, keys)
        yield replies
        return own
