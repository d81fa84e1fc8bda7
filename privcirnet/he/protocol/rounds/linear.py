"""An encrypted linear layer on shares, of one image or of several that are prepared together.

x = c + s, the client's share and the server's. The client sends Enc(c); the server adds s, evaluates the layer under
encryption, subtracts a mask from every slot and keeps mask + bias as its share; the client decrypts its own.
Both parties transform their shares of input and output in clear. Source: docs/mathematics.md, "The protocol".

Several images stand one below the other (:mod:`layers.layer`); only offline work has it. Slots between the results
of a tall image are masked like every slot, and neither party keeps them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.layer import Layer, Stack, join, repeated, split
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.program.operation import Weights, spread
from privcirnet.he.protocol.rounds.exchange import (
    SHARE,
    ClientShares,
    Correlation,
    OneTrip,
    PreparedNode,
    RoundPlan,
    ServerShares,
)
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine, one_trip
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system import threads


@dataclass(frozen=True)
class LinearOnline:
    """The online phase of a linear layer: the server keeps its mask, with the bias."""

    shape: tuple[int, int, int]

    @property
    def client_keeps(self) -> Mapping[str, int]:
        return {SHARE: prod(self.shape)}

    @property
    def server_keeps(self) -> Mapping[str, int]:
        return {"mask": prod(self.shape)}

    def turns(self, t: int) -> tuple[MessageSpec, ...]:
        """Return no turns: nobody sends anything."""
        return ()

    @property
    def chosen(self) -> bool:
        return False

    def offline_shares(self, t: int) -> list[Residues | None]:
        return [None]

    def keep_client(self, share: Residues, result: Residues, t: int) -> Correlation:
        return {SHARE: share}

    def keep_server(self, offline_shares: Sequence[Residues | None], result: Residues, t: int) -> Correlation:
        return {"mask": result.reshape(-1)}

    def client(self, correlation: Correlation, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        yield from ()

    def server(
        self, layer: ClearLinear | None, correlation: Correlation, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        yield from ()
        assert layer is not None
        return layer.apply(shares[0], correlation["mask"].reshape(self.shape))


@dataclass(frozen=True)
class LinearExchange(OneTrip):
    """The round of a linear layer, from one share (C, H, W) to one (K, H', W').

    Attributes:
        layer: layer with its shape, block size and encoding.
        stack: stack of several images in offline work, if there is one.
    """

    layer: Layer
    stack: Stack | None = None

    @property
    def plan(self) -> RoundPlan:
        return self._plan

    @cached_property
    def _plan(self) -> RoundPlan:
        """The counts of the layer's plan."""
        layer = self.layer
        return RoundPlan(
            kind=layer.shape.kind,
            encoding=layer.encoding,
            turns=one_trip(layer.ciphertexts_in, layer.ciphertexts_out),
            block_size=layer.block_size,
            rotations=layer.rotations,
            pmults=layer.pmults,
        )

    @property
    def online(self) -> LinearOnline:
        return LinearOnline(self.layer.shape.output_shape)

    def noise_bits(self, parameters: Parameters) -> int:
        return self.layer.noise_bits(parameters)

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        engine: ServerEngine,
        name: str,
    ) -> PreparedNode:
        assert weights is not None
        if spectrum is None:
            spectrum = self.layer.spectrum(weights.rows, engine.parameters.plain_modulus)
        return PreparedNode(self.layer.encode_spectrum(spectrum, engine), weights.bias)

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        return engine.encrypt_all(self.layer.encode_input(shares[0], engine.parameters.plain_modulus))

    def reply(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        messages: list[bytes],
        engine: ServerEngine,
        keys: EvaluationKeys,
    ) -> tuple[list[bytes], Residues]:
        layer, share, t = self.layer, shares[0], engine.parameters.plain_modulus
        mask = threads.beside(lambda: self._mask(prepared.bias, t))
        inputs = engine.receive_all(messages, None if share is None else layer.encode_input(share, t))
        outputs = layer.evaluate(prepared.weights, inputs, engine, keys)
        minus, output_share = mask()
        return engine.reply_all(outputs, minus, keys, layer.kept), output_share

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        slots = engine.decrypt_all(messages, self.layer.kept)
        return self.layer.decode_output(slots, engine.parameters.plain_modulus)

    def _mask(self, bias: Integers | None, t: int) -> tuple[Residues, Residues]:
        """Return minus a mask in slots (ciphertexts_out, n), and the server's share (K, H', W') = the mask + bias.

        Uniform slots are a mask as they are: what they decode to is uniform too.
        """
        layer, constants = self.layer, np.zeros(1, dtype=np.int64) if bias is None else bias
        minus = sampling.uniform((layer.ciphertexts_out, layer.ring_degree), t)
        constant = np.broadcast_to(modular.residues(spread(constants), t), layer.shape.output_shape)
        return minus, modular.subtract(constant, layer.decode_output(minus, t), t)


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
        return replace(prepared, bias=repeated(self.shape, self.stack.images, prepared.bias))

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
        return replies, split(self.shape, self.images, share)

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        return split(self.shape, self.images, self._tall.finish(shares, messages, engine))

    def _joined(self, share: Residues) -> Residues:
        return join(self.shape, self.stack.images, [*share])
