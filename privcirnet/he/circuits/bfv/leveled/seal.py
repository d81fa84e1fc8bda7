"""SEAL's engine of leveled inference: that of interactive inference, squares, and exchanges of the rows; no levels.

Keys on the wire: the public key, the relinearisation key, then the Galois keys by element; all are seeded. Lengths and
residues are checked before SEAL sees them.
"""

# The library has no type stubs; what its objects may be is checked at run time, by the library and by the tests.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import tenseal.sealapi as seal

from privcirnet.he.circuits.bfv.interactive.seal import TensealClient, TensealKeys, TensealServer
from privcirnet.he.circuits.bfv.network_circuit import element_of
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe import wire_bytes
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES
from privcirnet.he.schemes.bfv import sealfile


@dataclass(frozen=True)
class LeveledKeys(TensealKeys):
    """The client's evaluation keys and its public key."""

    relinearization: Any


class Client(TensealClient):
    """The client's side; see :class:`circuits.bfv.leveled.interface.LeveledClient`."""

    def evaluation_keys(self, rotations: Collection[int]) -> bytes:
        """Return the public key and evaluation keys as bytes.

        Args:
            rotations: column steps, :data:`circuits.bfv.network_circuit.SWAP` among them.
        """
        context, digits = self._context, len(self._context.data_level.primes)
        made = [self._keys.create_relin_keys()]
        if rotations:
            made.append(self._keys.create_galois_keys(_elements(rotations, self.parameters.ring_degree)))
        public = self.encrypt(np.zeros(self.parameters.ring_degree, dtype=np.uint64))
        return public + b"".join(sealfile.compact_keys(context.save(key), context.key_level, digits) for key in made)


class Server(TensealServer):
    """The server's side; see :class:`circuits.bfv.leveled.evaluator.Evaluator`."""

    special = 0

    def load_evaluation_keys(self, message: bytes, rotations: Collection[int]) -> LeveledKeys:
        """Return keys for some rotations, checked.

        Args:
            message: from the client.
            rotations: that it was made with.

        Raises:
            RuleError: the bytes are not such keys.
        """
        level, context = self._context.key_level, self._context
        elements, digits = _elements(rotations, self.parameters.ring_degree), len(context.data_level.primes)
        public, each = (one.compact_size(1) + SEED_BYTES for one in (context.data_level, level))
        wire_bytes.check_keys_length(message, public, each * digits * (1 + len(elements)))
        end = public + each * digits
        relinearization = sealfile.expand_relinearization_key(message[public:end], level, digits)
        galois = sealfile.expand_keys(message[end:], level, digits, elements) if elements else b""
        return LeveledKeys(
            context.load(seal.GaloisKeys(), galois) if elements else None,
            self._public_key(message[:public]),
            context.load(seal.RelinKeys(), relinearization),
        )

    def encode(self, slots: Residues, level: int = 0) -> Any:
        """See :meth:`Evaluator.encode`."""
        return super().encode(slots)

    def encode_factors(self, slots: Sequence[Residues], level: int, *, extended: bool) -> list[Any]:
        """See :meth:`Evaluator.encode_factors`."""
        return [self.encode_factor(own) for own in slots]

    def combine(self, ciphertexts: Sequence[Any], factors: Sequence[Any]) -> Any:
        """See :meth:`Evaluator.combine`."""
        products = [self.multiply(*pair) for pair in zip(ciphertexts, factors, strict=True)]
        return self.from_ntt(reduce(self.add, products))

    def turn(self, ciphertext: Any, columns: int, keys: LeveledKeys) -> Any:
        """See :meth:`Evaluator.turn`: an automorphism and a key switch."""
        self.counts["rotate"] += 1
        element = element_of(columns, self.parameters.ring_degree)
        return self._apply(self._evaluator.apply_galois, ciphertext, element, keys.galois)

    def square(self, ciphertext: Any, keys: LeveledKeys) -> Any:
        """See :meth:`Evaluator.square`."""
        self.counts["square"] += 1
        product = self._apply(self._evaluator.square, ciphertext)
        return self._apply(self._evaluator.relinearize, product, keys.relinearization)

    def reduce(self, ciphertext: Any, level: int) -> Any:
        """See :meth:`Evaluator.reduce`: nothing to do."""
        return ciphertext

    def answer(self, ciphertext: Any, addend: Residues, keys: LeveledKeys) -> bytes:
        """See :meth:`Evaluator.answer`."""
        return self.reply(self.add_plain(ciphertext, self.encode(addend)), keys)


def _elements(rotations: Collection[int], ring_degree: int) -> list[int]:
    return sorted(element_of(columns, ring_degree) for columns in rotations)
