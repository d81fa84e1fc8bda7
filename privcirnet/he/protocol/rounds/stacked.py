"""The round of a linear layer for several images, one below the other; only offline work has it.

Shares have a first axis for images. Slots between the results of a tall image are masked like every slot, and
neither party keeps them. Maths: :mod:`layers.layer`.
"""

from dataclasses import dataclass, replace

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers import layer
from privcirnet.he.layers.layer import Stack
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program.operation import Weights
from privcirnet.he.protocol.rounds.exchange import ClientShares, OneTrip, PreparedNode, RoundPlan, ServerShares
from privcirnet.he.protocol.rounds.linear import LinearExchange, LinearOnline
from privcirnet.he.ring.modular import Residues


@dataclass(frozen=True)
class StackedExchange(OneTrip):
    """The round of some images, from one share (images, C, H, W) to one (images, K, H', W').

    Attributes:
        images: number of images, at most those of the stack.
    """

    shape: LinearShape
    stack: Stack
    images: int

    @property
    def _tall(self) -> LinearExchange:
        return LinearExchange(self.stack.layer)

    @property
    def plan(self) -> RoundPlan:
        """The counts of the tall layer's plan."""
        return self._tall.plan

    @property
    def online(self) -> LinearOnline:
        """The online phase of one image."""
        return LinearOnline(self.shape.output_shape)

    def noise_bits(self, parameters: Parameters) -> int:
        return self._tall.noise_bits(parameters)

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        engine: ServerEngine,
        name: str,
    ) -> PreparedNode:
        """Prepare the tall layer; the spectrum, of a single image's layer, is unused."""
        prepared = self._tall.prepare(weights, None, engine, name)
        if prepared.bias is None or prepared.bias.ndim == 1:
            return prepared
        return replace(prepared, bias=layer.repeated(self.shape, self.stack.images, prepared.bias))

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        return self._tall.request([self._joined(shares[0])], engine)

    def reply(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        messages: list[bytes],
        engine: ServerEngine,
        keys: EvaluationKeys,
    ) -> tuple[list[bytes], Residues]:
        joined = None if shares[0] is None else self._joined(shares[0])
        replies, share = self._tall.reply(prepared, [joined], messages, engine, keys)
        return replies, layer.split(self.shape, self.images, share)

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        return layer.split(self.shape, self.images, self._tall.finish(shares, messages, engine))

    def _joined(self, share: Residues) -> Residues:
        return layer.join(self.shape, self.stack.images, [*share])
