"""The clear-text engine of leveled inference: bare slots and counters. It hides NOTHING."""

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.interactive.cleartext import CleartextClient, CleartextServer, Slots
from privcirnet.he.circuits.bfv.network_circuit import SWAP
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


class Client(CleartextClient):
    """The client's side in clear; see :class:`circuits.bfv.leveled.interface.LeveledClient`."""

    def evaluation_keys(self, rotations: Collection[int]) -> bytes:
        """Return the steps as bytes.

        Args:
            rotations: column steps, :data:`circuits.bfv.network_circuit.SWAP` among them.
        """
        return self.public_keys(rotations)


class Server(CleartextServer):
    """The server's side in clear; see :class:`circuits.bfv.leveled.evaluator.Evaluator`."""

    special = 0

    def load_evaluation_keys(self, message: bytes, rotations: Collection[int]) -> frozenset[int]:
        """Return keys for some rotations, checked.

        Args:
            message: from the client.
            rotations: that it was made with.

        Raises:
            RuleError: the bytes are not such keys.
        """
        return self.load_keys(message, rotations)

    def encode(self, slots: Residues, level: int = 0) -> Slots:
        """See :meth:`Evaluator.encode`."""
        return super().encode(slots)

    def encode_factors(self, slots: Sequence[Residues], level: int, *, extended: bool) -> list[Slots]:
        """See :meth:`Evaluator.encode_factors`."""
        return [self.encode_factor(own) for own in slots]

    def combine(self, ciphertexts: Sequence[Slots], factors: Sequence[Slots]) -> Slots:
        """See :meth:`Evaluator.combine`."""
        products = [self.multiply(*pair) for pair in zip(ciphertexts, factors, strict=True)]
        return self.from_ntt(reduce(self.add, products))

    def turn(self, ciphertext: Slots, columns: int, keys: frozenset[int]) -> Slots:
        """See :meth:`Evaluator.turn`. Without a key it is an error, as with the real engines."""
        if columns != SWAP:
            return self.rotate(ciphertext, columns, keys)
        if SWAP not in keys or ciphertext.ntt:
            raise RuleError("a swap needs its key and coefficient form", got="neither", remedy="send its Galois key")
        self.counts["rotate"] += 1
        return Slots(ciphertext.values.reshape(2, -1)[::-1].reshape(-1))

    def square(self, ciphertext: Slots, keys: Any) -> Slots:
        """See :meth:`Evaluator.square`."""
        self.counts["square"] += 1
        return Slots(modular.multiply(ciphertext.values, ciphertext.values, self.parameters.plain_modulus))

    def reduce(self, ciphertext: Slots, level: int) -> Slots:
        """See :meth:`Evaluator.reduce`: nothing to do."""
        return ciphertext

    def answer(self, ciphertext: Slots, addend: Residues, keys: frozenset[int]) -> bytes:
        """See :meth:`Evaluator.answer`."""
        return self.reply(self.add_plain(ciphertext, self.encode(addend)), keys)
