"""A function that the client computes in clear: the server hands over its share, and the client holds the result alone.

Nothing is encrypted and nothing is masked, so the client sees every value that goes in. What that gives away is said in
:mod:`program.nonpolynomial`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from privcirnet.he.circuits.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.packing import pack, unpack
from privcirnet.he.mpc.local.shares import from_bytes, present, to_bytes
from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import ClientAided
from privcirnet.he.protocol.rounds.answer import width
from privcirnet.he.protocol.rounds.exchange import ClientShares, Held, OneTrip, RoundPlan, ServerShares
from privcirnet.he.protocol.rounds.online_phase import SHARE, Kept, flat, question
from privcirnet.he.protocol.rounds.turns import Side, Turn
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import SHARE_BYTES, Residues
from privcirnet.he.schemes.bfv.parameters import Parameters

T = TypeVar("T")


@dataclass(frozen=True)
class RevealedOnline:
    """That of a function in clear: the server's whole share goes to the client, whose answer is masked by its own.

    Attributes:
        values: number of values, of the input and of the result.
        function: (the client's share, the server's, t) -> the result, residues of the share's shape.
    """

    values: int
    function: Callable[[Residues, Residues, int], Residues]

    @property
    def client_keeps(self) -> Mapping[str, int]:
        return {SHARE: self.values}

    @property
    def server_keeps(self) -> Mapping[str, int]:
        return {}

    def turns(self, t: int) -> tuple[Turn, ...]:
        return question(self.values, self.values, t)

    @property
    def chosen(self) -> bool:
        return True

    def offline_shares(self, t: int) -> list[Residues | None]:
        return []

    def keep_client(self, share: Residues, result: Residues | None, t: int) -> Kept:
        return {SHARE: share}

    def keep_server(self, offline_shares: Sequence[Residues | None], own: Residues | None, t: int) -> Kept:
        return {}

    def client(self, kept: Kept, shares: Sequence[Residues], t: int) -> Side[None]:
        (asked,) = yield []
        found = self.function(shares[0], unpack(asked, shares[0].shape, t), t)
        yield [pack(modular.subtract(found.reshape(-1), kept[SHARE], t), t)]

    def server(self, layer: ClearLinear | None, kept: Kept, shares: Sequence[Residues], t: int) -> Side[Residues]:
        (answer,) = yield [pack(flat(shares), t)]
        return unpack(answer, shares[0].shape, t)


@dataclass(frozen=True)
class ClientAidedExchange(OneTrip):
    """The round of a function in clear, from one share of any shape to one of the same shape; the server's is zero."""

    operation: ClientAided
    values: int

    @property
    def plan(self) -> RoundPlan:
        """An empty request, and a reply of shares alone."""
        turns = Turn("client"), Turn("server", octets=(SHARE_BYTES * self.values,))
        return RoundPlan(self.operation.function, "in clear", turns, ahead=False)

    @property
    def online(self) -> RevealedOnline:
        return RevealedOnline(self.values, self._apply)

    def noise_bits(self, parameters: Parameters) -> int:
        """Without ciphertexts there is no noise."""
        return 0

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        return []

    def reply(
        self, held: Held, shares: ServerShares, messages: list[bytes], engine: ServerEngine, keys: EvaluationKeys
    ) -> tuple[list[bytes], None]:
        return [to_bytes(present(shares[0]))], None

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        (share,), (message,), t = shares, messages, engine.parameters.plain_modulus
        return self._apply(share, from_bytes(message, share.shape, t), t)

    def _apply(self, share: Residues, other: Residues, t: int) -> Residues:
        values = modular.centered(modular.add(share, other, t), t)
        return modular.residues(apply(self.operation, [values]), t)


def noted(
    side: Side[T],
    node: Node,
    share: Residues,
    t: int,
    read: Callable[[Any, tuple[int, ...], int], Residues],
    seen: dict[str, tuple[int, int]],
) -> Side[T]:
    """Take the client's turns, and note how wide the values are that it sees.

    Args:
        share: the client's, of the input.
        read: (the server's share as it was sent, shape, t) -> the share.
        seen: is given (bits of the largest value, bits that it has at most) under the input's name.

    Yields:
        as the side does.

    Returns:
        what the side returns.
    """
    assert isinstance(node.operation, ClientAided)
    told = yield next(side)
    values = modular.centered(modular.add(share, read(told[0], share.shape, t), t), t)
    seen[node.inputs[0]] = width(values), node.operation.value_bits
    try:
        while True:
            told = yield side.send(told)
    except StopIteration as finished:
        return finished.value
