"""One round between the client and the server for one operation on shared values: what all kinds of rounds have alike.

The client sends a request made from its shares of the inputs, the server replies and keeps its share of the result, and
the client takes its own share from the reply. Each kind is one file beside this one, and one line of the table in
:mod:`protocol.rounds.exchanges`. Nothing but public data is in an exchange, so both parties make the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from privcirnet.he.circuits.bfv.interface import ClientEngine, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.program.operation import Weights
from privcirnet.he.protocol.rounds.online_phase import Online
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.schemes.bfv.parameters import Parameters

ClientShares = Sequence[Residues]
"""The client's share of each input of a node, residues mod t."""
ServerShares = Sequence[Residues | None]
"""The server's; None for zero, which its share of the image is."""


@dataclass(frozen=True)
class RoundPlan:
    """What is known of a round before it happens.

    Attributes:
        block_size: b of the weights; 1 without structure.
        ciphertexts_up: ciphertexts that the client sends, each a part of the request.
        ciphertexts_down: ciphertexts that the server sends, each a part of the reply.
        shares_down: number of values of which the server sends its share as it is, together one more part of the reply.
    """

    kind: str
    encoding: str
    block_size: int = 1
    ciphertexts_up: int = 0
    ciphertexts_down: int = 0
    rotations: int = 0
    pmults: int = 0
    shares_down: int = 0

    @property
    def parts_down(self) -> int:
        """Parts of the reply."""
        return self.ciphertexts_down + (self.shares_down > 0)


@dataclass(frozen=True)
class Held:
    """What the server alone holds for a node.

    Attributes:
        weights: encoded for the server's engine; None for an operation without weights.
        bias: int64, (K,) or of the result's shape (K, H', W'); None for zero.
        mask_bound: the result's mask is drawn from [bound + 1, t - bound]; None for a uniform one.
    """

    weights: EncodedWeights | None = None
    bias: Integers | None = None
    mask_bound: int | None = None


class Exchange(Protocol):
    """One round for one node."""

    @property
    def plan(self) -> RoundPlan:
        """Sizes and counts of the round."""
        ...

    @property
    def online(self) -> Online:
        """What is left to do with the image where the round was done offline."""
        ...

    def noise_bits(self, parameters: Parameters) -> int:
        """Return log2 of a bound on the noise of the round's results, from public data only."""
        ...

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        mask_bound: int | None,
        engine: ServerEngine,
        name: str,
    ) -> Held:
        """Return what the server holds for the node, made once for all rounds.

        Args:
            weights: the node's; None where it has none.
            spectrum: of the weights, if it was exported; None to compute it.

        Raises:
            RuleError: the weights are zero where the engine needs one that is not.
        """
        ...

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        """Return the client's request: ``plan.ciphertexts_up`` parts of a message."""
        ...

    def reply(
        self, held: Held, shares: ServerShares, messages: list[bytes], engine: ServerEngine, keys: EvaluationKeys
    ) -> tuple[list[bytes], Residues | None]:
        """Return the server's reply and its share of the result.

        Returns:
            (``plan.parts_down`` parts of a message, the server's share of the result or None for zero).

        Raises:
            RuleError: the messages are not what :meth:`request` makes.
        """
        ...

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        """Return the client's share of the result: residues of the node's shape.

        Raises:
            RuleError: the messages are not what :meth:`reply` makes.
        """
        ...
