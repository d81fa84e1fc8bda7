"""Engines by name, for both parties, and the one in clear.

The clear-text engine has the interface of the encrypted ones on bare slots. It counts operations and hides NOTHING. It
is as strict as the real ones: to rotate without a key, to mix forms or to multiply by zero raises.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.bfv.interface import ClientEngine, SequentialClient, SequentialServer, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.parameters import check_held

ENGINES = ("kernel", "tenseal", "cleartext")
"""kernel: our own, compiled by Numba; tenseal: SEAL's; both parties have the same. cleartext hides nothing."""


class Engine(NamedTuple):
    """Constructors of the parties.

    Attributes:
        client: maker of a client with fresh keys, from n, q, t.
        server: maker of a server, from n, q, t, and a :class:`WeightCache`, which the kernels use.
    """

    client: Callable[[Parameters], ClientEngine]
    server: Callable[..., ServerEngine]

    def parties(self, parameters: Parameters) -> tuple[ClientEngine, ServerEngine]:
        """Return both parties."""
        return self.client(parameters), self.server(parameters)


def check_engine(name: str) -> None:
    """Raise unless an engine is a known one: nobody gets the one that hides nothing without asking for it.

    Raises:
        RuleError: it is not one of :data:`ENGINES`.
    """
    if name not in ENGINES:
        raise RuleError("the engine must be a known one", got=repr(name), remedy=f"use one of {', '.join(ENGINES)}")


def engine_of(name: str) -> Engine:
    """Return an engine; its library is imported when it is needed.

    Args:
        name: key of :data:`ENGINES`.

    Raises:
        RuleError: unknown name.
    """
    check_engine(name)
    if name == "kernel":
        from privcirnet.he.bfv.client import KernelClient
        from privcirnet.he.bfv.kernel_engine import KernelServer

        return Engine(KernelClient, KernelServer)
    if name == "tenseal":
        from privcirnet.he.bfv.seal import TensealClient, TensealServer

        return _one_by_one(TensealClient, TensealServer)

    return _one_by_one(CleartextClient, CleartextServer)


def _one_by_one(client: type[SequentialClient], server: type[SequentialServer]) -> Engine:
    """Return an engine that works on one ciphertext at a time."""

    def uncached(parameters: Parameters, _: WeightCache | None = None) -> ServerEngine:
        return server(parameters)

    return Engine(client, uncached)


@dataclass(frozen=True)
class ClearSlots:
    """A ciphertext or plaintext in clear, with the form that the real one would have.

    Attributes:
        values: slots, residues mod t, shape (n,).
        ntt: whether it is in NTT form.
    """

    values: Residues
    ntt: bool = False


class CleartextClient(SequentialClient):
    """The client's side in clear."""

    def keys(self, names: Collection[int]) -> bytes:
        """Return the names, as 64-bit words."""
        return _to_words(names)

    def encrypt(self, slots: Residues, sent: Integers | None = None) -> bytes:
        """Return slots, or the coefficients to send, as little-endian 64-bit words."""
        return _to_bytes(slots, sent, self.parameters)

    def decrypt(self, message: bytes, sent: Integers | None = None) -> Residues:
        """Return the slots of a message; coefficients that were not sent are zero."""
        return _from_bytes(message, sent, self.parameters)

    def close(self) -> None:
        """Do nothing: there is no key."""


class CleartextServer(SequentialServer):
    """The server's side in clear."""

    def load(self, message: bytes, names: Collection[int]) -> frozenset[int]:
        if message != _to_words(names):
            raise RuleError(
                "the client's keys must be for the plan's rotations", got=f"{message!r:.80}", remedy="send keys again"
            )
        return frozenset(names)

    def receive(self, message: bytes, sent: Integers | None = None) -> ClearSlots:
        return ClearSlots(_from_bytes(message, sent, self.parameters))

    def encode(self, slots: Residues, primes: int = 0) -> ClearSlots:
        return ClearSlots(slots)

    def encode_factor(self, slots: Residues) -> ClearSlots:
        return ClearSlots(slots, ntt=True)

    def add_plain(self, ciphertext: ClearSlots, plaintext: ClearSlots) -> ClearSlots:
        return self._combined(modular.add, ciphertext, plaintext, ntt=False)

    def turn(self, ciphertext: ClearSlots, element: int, keys: frozenset[int]) -> ClearSlots:
        check_held({element}, keys)
        if ciphertext.ntt:
            raise RuntimeError("what is rotated must be in coefficient form")
        self.counts["rotate"] += 1
        return ClearSlots(ciphertext.values[batching.slot_sources(element, self.parameters.ring_degree)])

    def to_ntt(self, ciphertext: ClearSlots) -> ClearSlots:
        """Return the slots in the other form."""
        self.counts["to_ntt"] += 1
        return ClearSlots(ciphertext.values, ntt=True)

    def from_ntt(self, ciphertext: ClearSlots) -> ClearSlots:
        """Return the slots in the other form."""
        self.counts["from_ntt"] += 1
        return ClearSlots(ciphertext.values)

    def multiply(self, ciphertext: ClearSlots, plaintext: ClearSlots) -> ClearSlots:
        """Return the product; one with zero is a RuntimeError, because SEAL refuses it."""
        if not plaintext.values.any():
            raise RuntimeError("a product with zero is transparent: skip it")
        self.counts["pmult"] += 1
        return self._combined(modular.multiply, ciphertext, plaintext, ntt=plaintext.ntt)

    def add(self, first: ClearSlots, second: ClearSlots) -> ClearSlots:
        self.counts["add"] += 1
        return self._combined(modular.add, first, second, ntt=first.ntt)

    def square(self, ciphertext: ClearSlots, keys: frozenset[int]) -> ClearSlots:
        self.counts["square"] += 1
        return self._combined(modular.multiply, ciphertext, ciphertext, ntt=False)

    def zero(self, keys: frozenset[int]) -> ClearSlots:
        return ClearSlots(np.zeros(self.parameters.ring_degree, dtype=np.uint64))

    def reply(self, ciphertext: ClearSlots, keys: frozenset[int], sent: Integers | None = None) -> bytes:
        """Return the slots as they are: nothing is hidden and nothing is switched."""
        if ciphertext.ntt:
            raise RuntimeError("a reply must be in coefficient form")
        return _to_bytes(ciphertext.values, sent, self.parameters)

    def _combined(
        self,
        operation: Callable[[Residues, Residues, int], Residues],
        first: ClearSlots,
        second: ClearSlots,
        *,
        ntt: bool,
    ) -> ClearSlots:
        if first.ntt != ntt or second.ntt != ntt:
            raise RuntimeError("operands must have the same form")
        return ClearSlots(operation(first.values, second.values, self.parameters.plain_modulus), ntt)


def _to_words(names: Collection[int]) -> bytes:
    return np.array(sorted(names), dtype="<u8").tobytes()


def _to_bytes(slots: Residues, sent: Integers | None, parameters: Parameters) -> bytes:
    values = slots if sent is None else batching.slots_to_coefficients(slots, parameters.plain_modulus)[sent]
    return values.astype("<u8").tobytes()


def _from_bytes(message: bytes, sent: Integers | None, parameters: Parameters) -> Residues:
    if sent is None:
        return _checked_residues(message, parameters.ring_degree, parameters)
    coefficients = np.zeros(parameters.ring_degree, dtype=np.uint64)
    coefficients[sent] = _checked_residues(message, len(sent), parameters)
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
