"""Whole steps on an engine that works on one ciphertext at a time, a server's or a client's.

Order of work for a layer's circuit: rotate in coefficient form, change to NTT form once for each rotated input,
multiply and add in NTT form, change back once for each inner sum, rotate and add the inner sums in coefficient form.
See docs/mathematics.md, "Engine order of work".
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from privcirnet.he.bfv.evaluator import Evaluator, run
from privcirnet.he.bfv.layer_circuit import LayerCircuit, PlaintextSource, as_steps
from privcirnet.he.bfv.network_circuit import CircuitStep, Combine, NetworkCircuit
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.bfv.weights import Factors
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.parameters import galois_element


class SequentialClient(ABC):
    """A client's engine that encrypts and decrypts one ciphertext after the other.

    Args:
        parameters: n, q, t.
    """

    concurrent = False

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    @abstractmethod
    def keys(self, names: Collection[int]) -> bytes:
        """Return a public key and switch keys.

        Args:
            names: see :mod:`rlwe.parameters`.
        """

    @abstractmethod
    def encrypt(self, slots: Residues, sent: Integers | None = None) -> bytes: ...

    @abstractmethod
    def decrypt(self, message: bytes, sent: Integers | None = None) -> Residues: ...

    @abstractmethod
    def close(self) -> None: ...

    def public_keys(self, steps: Collection[int]) -> bytes:
        return self.keys([galois_element(step, self.parameters.ring_degree) for step in steps])

    def encrypt_all(self, slots: Residues, sent: Sequence[Integers] | None = None) -> list[bytes]:
        return [self.encrypt(*pair) for pair in zip(slots, sent or [None] * len(slots), strict=True)]

    def decrypt_all(self, messages: Sequence[bytes], sent: Sequence[Integers] | None = None) -> Residues:
        return np.stack([self.decrypt(*pair) for pair in zip(messages, sent or [None] * len(messages), strict=True)])


class PlainWeights(NamedTuple):
    """A layer's encoded plaintexts, and its circuit as steps."""

    circuit: NetworkCircuit
    factors: list[Factors | None]


class SequentialServer(Evaluator, ABC):
    """A server's engine, of layers and of networks, out of single operations; rotations are in coefficient form.

    Args:
        parameters: n, q, t.
    """

    special = 0

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.counts: Counter[str] = Counter()

    @abstractmethod
    def load(self, message: bytes, names: Collection[int]) -> Any:
        """Return a client's keys, checked.

        Args:
            message: result of :meth:`SequentialClient.keys`.
            names: names of the keys.

        Raises:
            RuleError: the bytes are not such keys.
        """

    @abstractmethod
    def receive(self, message: bytes, sent: Integers | None = None) -> Any:
        """Return one ciphertext from the client, checked, in coefficient form.

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """

    @abstractmethod
    def encode(self, slots: Residues, primes: int = 0) -> Any: ...

    @abstractmethod
    def encode_factor(self, slots: Residues) -> Any:
        """Return a plaintext in NTT form, for products in NTT form.

        Args:
            slots: residues, shape (n,).
        """

    @abstractmethod
    def from_ntt(self, ciphertext: Any) -> Any:
        """Return a ciphertext in coefficient form."""

    @abstractmethod
    def multiply(self, ciphertext: Any, plaintext: Any) -> Any:
        """Return the slot-wise product. Counted as "pmult".

        Args:
            plaintext: in the same form, not zero.
        """

    @abstractmethod
    def zero(self, keys: Any) -> Any:
        """Return an encryption of zero."""

    @abstractmethod
    def reply(self, ciphertext: Any, keys: Any, sent: Integers | None = None) -> bytes:
        """Return the reply of one ciphertext that is masked."""

    def load_keys(self, message: bytes, steps: Collection[int]) -> Any:
        return self.load(message, [galois_element(step, self.parameters.ring_degree) for step in steps])

    def encode_factors(self, slots: Sequence[Residues], primes: int, *, extended: bool) -> list[Any]:
        return [self.encode_factor(values) for values in slots]

    def combine(self, ciphertexts: Sequence[Any], factors: Sequence[Any]) -> Any:
        return self.from_ntt(reduce(self.add, map(self.multiply, ciphertexts, factors)))

    def reduce(self, ciphertext: Any, primes: int) -> Any:
        return ciphertext

    def answer(self, ciphertext: Any, addend: Residues, keys: Any, sent: Integers | None = None) -> bytes:
        return self.reply(self.add_plain(ciphertext, self.encode(addend)), keys, sent)

    def receive_all(
        self, messages: Sequence[bytes], addends: Residues | None, sent: Sequence[Integers] | None = None
    ) -> list[Any]:
        places = sent or [None] * len(messages)
        received = [self.receive(message, place) for message, place in zip(messages, places, strict=True)]
        if addends is None:
            return received
        return [self.add_plain(c, self.encode(slots)) for c, slots in zip(received, addends, strict=True)]

    def encode_weights(self, circuit: LayerCircuit, slots: PlaintextSource, *, keep: bool = True) -> PlainWeights:
        plain = (slots[weight] for weight in range(len(slots)))
        encoded = [self.encode_factor(values) if values.any() else None for values in plain]
        steps = as_steps(circuit, [factor is not None for factor in encoded], self.parameters.ring_degree)

        def factors(step: CircuitStep) -> Factors | None:
            return Factors.encoded([encoded[weight] for _, weight in step.terms]) if isinstance(step, Combine) else None

        return PlainWeights(steps, [*map(factors, steps.steps)])

    def evaluate(self, circuit: LayerCircuit, weights: PlainWeights, inputs: Sequence[Any], keys: Any) -> list[Any]:
        zeros = [self.zero(keys)] if len(inputs) in weights.circuit.outputs else []
        return run(weights.circuit, weights.factors, [*inputs, *zeros], self, keys)

    def multiply_all(self, ciphertexts: Sequence[Any], factors: Residues) -> list[Any]:
        return [self.multiply(c, self.encode(slots)) for c, slots in zip(ciphertexts, factors, strict=True)]

    def reply_all(
        self, ciphertexts: Sequence[Any], addends: Residues, keys: Any, sent: Sequence[Integers] | None = None
    ) -> list[bytes]:
        triples = zip(ciphertexts, addends, sent or [None] * len(ciphertexts), strict=True)
        return [self.answer(c, addend, keys, place) for c, addend, place in triples]
