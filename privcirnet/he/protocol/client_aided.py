"""A function that the client computes in clear: the server hands over its share, and the client holds the result alone.

Nothing is encrypted and nothing is masked, so the client sees every value that goes in. What that gives away is said in
:mod:`program.nonpolynomial`.
"""

from dataclasses import dataclass

from privcirnet.he.engines.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.operations import ClientAided
from privcirnet.he.program.program import Weights
from privcirnet.he.protocol.exchange import ClientShares, Held, RoundPlan, ServerShares
from privcirnet.he.protocol.shares import present, reveal, to_bytes
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


@dataclass(frozen=True)
class ClientAidedExchange:
    """The round of a function in clear, from one share of any shape to one of the same shape; the server's is zero.

    Attributes:
        operation: the function and its steps.
        values: number of values.
    """

    operation: ClientAided
    values: int

    @property
    def plan(self) -> RoundPlan:
        """An empty request, and a reply of shares alone."""
        return RoundPlan(self.operation.function, "in clear", shares_down=self.values)

    def noise_bits(self, parameters: Parameters) -> int:
        """See :meth:`Exchange.noise_bits`. Without ciphertexts there is no noise."""
        return 0

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        mask_bound: int | None,
        engine: ServerEngine,
        name: str,
    ) -> Held:
        """See :meth:`Exchange.prepare`."""
        return Held()

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        """See :meth:`Exchange.request`."""
        return []

    def reply(
        self, held: Held, shares: ServerShares, messages: list[bytes], engine: ServerEngine, keys: EvaluationKeys
    ) -> tuple[list[bytes], None]:
        """See :meth:`Exchange.reply`."""
        return [to_bytes(present(shares[0]))], None

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        """See :meth:`Exchange.finish`."""
        (share,), (message,), t = shares, messages, engine.parameters.plain_modulus
        return modular.residues(apply(self.operation, [reveal(share, message, t)]), t)
