"""An encrypted square on shares, with homomorphic encryption alone.

x = c + s. The client sends Enc(c); the server returns Enc(2 s c + s^2 - r) and keeps r; the client adds c^2.
One product a ciphertext, no rotation, no oblivious transfer. Values that do not fill a ciphertext live in a subring,
which shortens both messages (:mod:`layers.subring`). Source: docs/mathematics.md, "The protocol".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.noise import square_noise_bits
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers import subring
from privcirnet.he.mpc.local import squares
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.shares import present
from privcirnet.he.protocol.rounds.exchange import ClientShares, OneTrip, PreparedNode, RoundPlan, ServerShares
from privcirnet.he.protocol.rounds.message_specs import PartyCoroutine, one_trip
from privcirnet.he.protocol.rounds.online_phase import CrossedOnline, Kept
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads


class SquareOnline(CrossedOnline):
    """The online phase of a square: either party's result of a message is packed again while a cache has it."""

    def client(self, correlation: Kept, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        (packed,) = yield []
        yield [squares.answer_packed(_flat(shares), packed, correlation["terms"], t)]

    def server(
        self, layer: ClearLinear | None, correlation: Kept, shares: Sequence[Residues], t: int
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
