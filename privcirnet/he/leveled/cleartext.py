"""The clear-text engine of leveled inference: bare slots and counters. It hides NOTHING."""

from collections.abc import Collection
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.engines.cleartext import CleartextClient, CleartextServer, Slots
from privcirnet.he.leveled.circuit import SWAP
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


class Client(CleartextClient):
    """The client's side in clear; see :class:`leveled.engine.LeveledClient`."""

    def evaluation_keys(self, rotations: Collection[int]) -> bytes:
        """See :meth:`LeveledClient.evaluation_keys`; the bytes are the steps."""
        return self.public_keys(rotations)


class Server(CleartextServer):
    """The server's side in clear; see :class:`leveled.engine.LeveledServer`."""

    def load_evaluation_keys(self, message: bytes, rotations: Collection[int]) -> frozenset[int]:
        """See :meth:`LeveledServer.load_evaluation_keys`."""
        return self.load_keys(message, rotations)

    def turn(self, ciphertext: Slots, columns: int, keys: frozenset[int]) -> Slots:
        """See :meth:`LeveledServer.turn`. Without a key it is an error, as with the real engines."""
        if columns != SWAP:
            return self.rotate(ciphertext, columns, keys)
        if SWAP not in keys or ciphertext.ntt:
            raise RuleError("a swap needs its key and coefficient form", got="neither", remedy="send its Galois key")
        self.counts["rotate"] += 1
        return Slots(ciphertext.values.reshape(2, -1)[::-1].reshape(-1))

    def square(self, ciphertext: Slots, keys: Any) -> Slots:
        """See :meth:`LeveledServer.square`."""
        self.counts["square"] += 1
        return Slots(modular.multiply(ciphertext.values, ciphertext.values, self.parameters.plain_modulus))

    def answer(self, ciphertext: Slots, addend: Residues, keys: frozenset[int]) -> bytes:
        """See :meth:`LeveledServer.answer`."""
        return self.reply(self.add_plain(ciphertext, self.encode(addend)), keys)
