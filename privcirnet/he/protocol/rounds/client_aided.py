"""A function that the client computes in clear: the server hands over its share, and the client holds the result alone.

Nothing is encrypted and nothing is masked, so the client sees every value that goes in. What that gives away is said in
:mod:`program.nonpolynomial`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from privcirnet.he.circuits.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.packing import Octets, pack, unpack
from privcirnet.he.mpc.local.shares import from_bytes, present, to_bytes
from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.operation import Weights
from privcirnet.he.program.operations import ClientAided
from privcirnet.he.protocol.rounds.exchange import ClientShares, Held, RoundPlan, ServerShares
from privcirnet.he.protocol.rounds.online_phase import SHARE, Kept, flat
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.schemes.bfv.parameters import Parameters


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
    def client(self) -> Mapping[str, int]:
        return {SHARE: self.values}

    @property
    def server(self) -> Mapping[str, int]:
        return {}

    @property
    def asked(self) -> int:
        return self.values

    @property
    def answered(self) -> int:
        return self.values

    @property
    def chosen(self) -> bool:
        return True

    def offline_shares(self, t: int) -> list[Residues | None]:
        return []

    def keep_client(self, share: Residues, result: Residues | None, t: int) -> Kept:
        return {SHARE: share}

    def keep_server(self, offline_shares: Sequence[Residues | None], own: Residues | None, t: int) -> Kept:
        return {}

    def ask(self, kept: Kept, shares: Sequence[Residues], t: int) -> Octets:
        return pack(flat(shares), t)

    def answer(self, kept: Kept, shares: Sequence[Residues], asked: Octets, t: int) -> Octets:
        found = self.function(shares[0], unpack(asked, shares[0].shape, t), t)
        return pack(modular.subtract(found.reshape(-1), kept[SHARE], t), t)

    def close(
        self, layer: ClearLinear | None, kept: Kept, shares: Sequence[Residues], answer: Octets | None, t: int
    ) -> Residues:
        assert answer is not None
        return unpack(answer, shares[0].shape, t)


@dataclass(frozen=True)
class ClientAidedExchange:
    """The round of a function in clear, from one share of any shape to one of the same shape; the server's is zero."""

    operation: ClientAided
    values: int

    @property
    def plan(self) -> RoundPlan:
        """An empty request, and a reply of shares alone."""
        return RoundPlan(self.operation.function, "in clear", shares_down=self.values)

    @property
    def online(self) -> RevealedOnline:
        return RevealedOnline(self.values, self._apply)

    def noise_bits(self, parameters: Parameters) -> int:
        """Without ciphertexts there is no noise."""
        return 0

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        mask_bound: int | None,
        engine: ServerEngine,
        name: str,
    ) -> Held:
        return Held()

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
