"""The square of a shared value and the product of two, in one round each, by homomorphic encryption alone.

*Square.* x = c + s. The client sends Enc(c); the server returns Enc(2 s c + s^2 - r) and keeps r; the client adds c^2.
One product a ciphertext, no rotation. Values that do not fill a ciphertext live in a subring, which shortens both
messages (:mod:`layers.subring`). Source: docs/mathematics.md, "The protocol".

*Product.* With a = a_c + a_s and b = b_c + b_s, multiplied over the channels of each group as the program's product
says,

    a b = a b_s + a_s b_c + a_c b_c.

The client sends Enc(a_c) and Enc(b_c). The first term is the layer of a with the server's share of b as weights, and
the server adds its share of a as to any layer's input; the second is the layer of b_c with the server's share of a as
weights. Each comes back under masks of its own. The client knows the third term. Every plaintext is encoded anew,
because shares are fresh for every image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.noise import square_noise_bits
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers import subring
from privcirnet.he.layers.integer import transpose
from privcirnet.he.layers.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.mpc.local import products, squares
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.shares import present
from privcirnet.he.program.interpreter import as_weights
from privcirnet.he.program.operation import spread
from privcirnet.he.program.operations import MatMul
from privcirnet.he.protocol.rounds.exchange import (
    ClientShares,
    Correlation,
    CrossedOnline,
    OneTrip,
    PreparedNode,
    RoundPlan,
    ServerShares,
)
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.protocol.rounds.message_specs import PartyCoroutine, one_trip
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads


class SquareOnline(CrossedOnline):
    """The online phase of a square: either party's result of a message is packed again while a cache has it."""

    def client(self, correlation: Correlation, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        (packed,) = yield []
        yield [squares.answer_packed(_flat(shares), packed, correlation["terms"], t)]

    def server(
        self, layer: ClearLinear | None, correlation: Correlation, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        (answer,) = yield [squares.ask_packed(_flat(shares), correlation["offline_shares"], t)]
        return squares.finish_packed(_flat(shares), answer, correlation["terms"], t).reshape(shares[0].shape)


@dataclass(frozen=True)
class SquareExchange(OneTrip):
    """The round of a square, from one share of any shape to one of the same shape."""

    values: int
    ring_degree: int

    @property
    def plan(self) -> RoundPlan:
        """The plan: one product for each ciphertext."""
        count = len(subring.sizes(self.values, self.ring_degree))
        return RoundPlan("square", "slots", one_trip(count, count), pmults=count)

    @property
    def online(self) -> SquareOnline:
        return SquareOnline(((self.values,),), self.values, _answer, _finish)

    def noise_bits(self, parameters: Parameters) -> int:
        return square_noise_bits(parameters)

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        (share,), n = shares, self.ring_degree
        return engine.encrypt_all(subring.spread(share.reshape(-1), n), subring.kept(self.values, n))

    def reply(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        messages: list[bytes],
        engine: ServerEngine,
        keys: EvaluationKeys,
    ) -> tuple[list[bytes], Residues]:
        share, t = present(shares[0]), engine.parameters.plain_modulus
        polynomial = threads.beside(lambda: self._polynomial(share, t))
        coefficients = subring.kept(self.values, self.ring_degree)
        inputs = engine.receive_all(messages, None, coefficients)
        doubled, constant, output_share = polynomial()
        products = engine.multiply_all(inputs, doubled)
        return engine.reply_all(products, constant, keys, coefficients), output_share

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        (share,), t = shares, engine.parameters.plain_modulus
        coefficients = subring.kept(self.values, self.ring_degree)
        slots = engine.decrypt_all(messages, coefficients)
        cross = subring.collect(slots, self.values, t)
        return modular.add(cross.reshape(share.shape), modular.multiply(share, share, t), t)

    def _polynomial(self, share: Residues, t: int) -> tuple[Residues, Residues, Residues]:
        """Return the slots of 2 s and of s^2 - r, (ciphertexts, n), and the server's share r."""
        n = self.ring_degree
        r = sampling.uniform(share.shape, t)
        fill = sampling.uniform((sum(subring.sizes(self.values, n)),), t)
        mask = subring.spread(r.reshape(-1), n, fill)
        rows = subring.spread(share.reshape(-1), n)
        return modular.add(rows, rows, t), modular.subtract(modular.multiply(rows, rows, t), mask, t), r


def _flat(shares: Sequence[Residues]) -> Residues:
    return np.ascontiguousarray(shares[0]).reshape(-1)


def _answer(shares: Sequence[Residues], differences: Sequence[Residues], terms: Residues, t: int) -> Residues:
    return squares.answer(shares[0], differences[0], terms.reshape(shares[0].shape), t)


def _finish(shares: Sequence[Residues], answer: Residues, terms: Residues, t: int) -> Residues:
    shape = shares[0].shape
    return squares.finish(shares[0], answer.reshape(shape), terms.reshape(shape), t)


@dataclass(frozen=True)
class ProductExchange(OneTrip):
    """The round of a product, from shares (g k, A, 1) of the left and (g k, B, 1) of the right value to (g B, A, 1).

    Messages hold the left layer's ciphertexts, then the right one's.
    """

    product: MatMul

    @property
    def plan(self) -> RoundPlan:
        """The sum of both layers' counts."""
        left, right = self._left.plan, self._right.plan
        return RoundPlan(
            kind="product",
            encoding=left.encoding,
            turns=one_trip(left.ciphertexts_up + right.ciphertexts_up, left.ciphertexts_down + right.ciphertexts_down),
            rotations=left.rotations + right.rotations,
            pmults=left.pmults + right.pmults,
        )

    @property
    def online(self) -> CrossedOnline:
        left, right = self.product.left.shape, self.product.right.shape
        return CrossedOnline((left.input_shape, right.input_shape), prod(left.output_shape), self._answer, self._finish)

    @property
    def _left(self) -> LinearExchange:
        return LinearExchange(self.product.left)

    @property
    def _right(self) -> LinearExchange:
        return LinearExchange(self.product.right)

    def noise_bits(self, parameters: Parameters) -> int:
        return max(self._left.noise_bits(parameters), self._right.noise_bits(parameters))

    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        left, right = shares
        return [*self._left.request([left], engine), *self._right.request([right], engine)]

    def reply(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        messages: list[bytes],
        engine: ServerEngine,
        keys: EvaluationKeys,
    ) -> tuple[list[bytes], Residues]:
        """Reply with both terms: the second's uniform mask joins the bias of the first, which has the result's mask."""
        left, right = map(present, shares)
        count, t = self._left.plan.ciphertexts_up, engine.parameters.plain_modulus
        weights = PreparedNode(_share_as_weights(self.product.right, left, engine))
        second, output_share = self._right.reply(weights, [None], messages[count:], engine, keys)
        bias = transpose(output_share, self.product.groups)
        if prepared.bias is not None:
            bias = modular.add(modular.residues(spread(prepared.bias), t), bias, t)
        weights = PreparedNode(_share_as_weights(self.product.left, right, engine), bias.astype(np.int64))
        first, output_share = self._left.reply(weights, [left], messages[:count], engine, keys)
        return [*first, *second], output_share

    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        left, right = shares
        count, t = self._left.plan.ciphertexts_down, engine.parameters.plain_modulus
        first = self._left.finish([left], messages[:count], engine)
        second = self._right.finish([right], messages[count:], engine)
        sent = modular.add(first, transpose(second, self.product.groups), t)
        return products.product(left, right, self.product.groups, t, sent)

    def _answer(self, shares: Sequence[Residues], differences: Sequence[Residues], terms: Residues, t: int) -> Residues:
        """Return a_c d_b + d_a b_c + terms, (g B, A, 1)."""
        shape = self.product.left.shape.output_shape
        return products.answer(
            shares[0], shares[1], differences[0], differences[1], self.product.groups, t, terms.reshape(shape)
        )

    def _finish(self, shares: Sequence[Residues], answer: Residues, terms: Residues, t: int) -> Residues:
        """Return the server's a_s b_s + answer + terms, (g B, A, 1)."""
        shape = self.product.left.shape.output_shape
        return products.finish(
            shares[0], shares[1], answer.reshape(shape), self.product.groups, t, terms.reshape(shape)
        )


def _share_as_weights(layer: SpectralLayer, share: Residues, engine: ServerEngine) -> EncodedWeights:
    """Return a share as encoded weights, of which nothing stays behind."""
    rows = as_weights(share, layer.shape.groups).astype(np.int64)
    spectrum = layer.spectrum(rows, engine.parameters.plain_modulus)
    return encode_weights(layer, spectrum, engine, keep=False)
