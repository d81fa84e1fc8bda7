"""The clear-text engine: the interface of the encrypted ones on bare slots. It counts operations and hides NOTHING.

It is as strict as the real ones: to rotate without a key, to mix forms or to multiply by zero raises.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.interactive.sequential import Sequential, SequentialClient
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.schemes.bfv import batching
from privcirnet.he.schemes.bfv.parameters import Parameters


@dataclass(frozen=True)
class Slots:
    """A ciphertext or plaintext in clear, with the form that the real one would have.

    Attributes:
        values: slots, residues mod t, shape (n,).
        ntt: whether it is in NTT form.
    """

    values: Residues
    ntt: bool = False


class CleartextClient(SequentialClient):
    """The client's side in clear.

    Args:
        parameters: n, q, t.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    def public_keys(self, steps: Collection[int]) -> bytes:
        """The bytes are the steps, as 64-bit words."""
        return _steps_to_bytes(steps)

    def encrypt(self, slots: Residues, kept: Integers | None = None) -> bytes:
        """Slots, or kept coefficients, are little-endian 64-bit words."""
        return _to_bytes(slots, kept, self.parameters)

    def decrypt(self, message: bytes, kept: Integers | None = None) -> Residues:
        """Coefficients that were not kept are zero."""
        return _from_bytes(message, kept, self.parameters)

    def close(self) -> None:
        """There is no key."""


class CleartextServer(Sequential):
    """The server's side in clear.

    Args:
        parameters: n, q, t.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.counts: Counter[str] = Counter()

    def load_keys(self, message: bytes, steps: Collection[int]) -> frozenset[int]:
        """Return the steps that the client allowed; see :meth:`ServerEngine.load_keys`.

        Args:
            message: what :meth:`CleartextClient.public_keys` returned.
            steps: the column steps that it was made with.

        Raises:
            RuleError: the message is for other steps.
        """
        if message != _steps_to_bytes(steps):
            raise RuleError(
                "the client's keys must be for the plan's rotations", got=f"{message!r:.80}", remedy="send keys again"
            )
        return frozenset(steps)

    def receive(self, message: bytes, kept: Integers | None = None) -> Slots:
        return Slots(_from_bytes(message, kept, self.parameters))

    def encode(self, slots: Residues) -> Slots:
        return Slots(slots)

    def encode_factor(self, slots: Residues) -> Slots:
        return Slots(slots, ntt=True)

    def add_plain(self, ciphertext: Slots, plaintext: Slots) -> Slots:
        return self._combine(modular.add, ciphertext, plaintext, ntt=False)

    def rotate(self, ciphertext: Slots, step: int, keys: frozenset[int]) -> Slots:
        """To rotate by a step without a key is a RuntimeError."""
        if step not in keys or ciphertext.ntt:
            raise RuntimeError(f"rotation by {step} needs a key and coefficient form")
        self.counts["rotate"] += 1
        rows = ciphertext.values.reshape(2, -1)
        return Slots(np.roll(rows, -step, axis=1).reshape(-1))

    def to_ntt(self, ciphertext: Slots) -> Slots:
        """Only the form changes."""
        self.counts["to_ntt"] += 1
        return Slots(ciphertext.values, ntt=True)

    def from_ntt(self, ciphertext: Slots) -> Slots:
        """Only the form changes."""
        self.counts["from_ntt"] += 1
        return Slots(ciphertext.values)

    def multiply(self, ciphertext: Slots, plaintext: Slots) -> Slots:
        """A product with zero is a RuntimeError, because SEAL refuses it."""
        if not plaintext.values.any():
            raise RuntimeError("a product with zero is transparent: skip it")
        self.counts["pmult"] += 1
        return self._combine(modular.multiply, ciphertext, plaintext, ntt=plaintext.ntt)

    def add(self, first: Slots, second: Slots) -> Slots:
        self.counts["add"] += 1
        return self._combine(modular.add, first, second, ntt=first.ntt)

    def reply(self, ciphertext: Slots, keys: frozenset[int], kept: Integers | None = None) -> bytes:
        """Nothing is hidden and nothing is switched."""
        if ciphertext.ntt:
            raise RuntimeError("a reply must be in coefficient form")
        return _to_bytes(ciphertext.values, kept, self.parameters)

    def _combine(
        self, operation: Callable[[Residues, Residues, int], Residues], first: Slots, second: Slots, *, ntt: bool
    ) -> Slots:
        if first.ntt != ntt or second.ntt != ntt:
            raise RuntimeError("operands must have the same form")
        return Slots(operation(first.values, second.values, self.parameters.plain_modulus), ntt)


def _steps_to_bytes(steps: Collection[int]) -> bytes:
    return np.array(sorted(steps), dtype="<u8").tobytes()


def _to_bytes(slots: Residues, kept: Integers | None, parameters: Parameters) -> bytes:
    found = slots if kept is None else batching.slots_to_coefficients(slots, parameters.plain_modulus)[kept]
    return found.astype("<u8").tobytes()


def _from_bytes(message: bytes, kept: Integers | None, parameters: Parameters) -> Residues:
    if kept is None:
        return _checked_residues(message, parameters.ring_degree, parameters)
    coefficients = np.zeros(parameters.ring_degree, dtype=np.uint64)
    coefficients[kept] = _checked_residues(message, len(kept), parameters)
    return batching.coefficients_to_slots(coefficients, parameters.plain_modulus)


def _checked_residues(message: bytes, count: int, parameters: Parameters) -> Residues:
    if len(message) != 8 * count:
        raise RuleError(
            "a clear-text message must hold n words, or one for each coefficient kept",
            got=f"{len(message)} bytes where {8 * count} are due",
            remedy="send it again",
        )
    values = np.frombuffer(message, dtype="<u8").astype(np.uint64)
    if (values >= parameters.plain_modulus).any():
        raise RuleError("slots must be residues mod t", got=int(values.max()), remedy="send it again")
    return values
