"""Whole steps of the protocol on an engine that works on one ciphertext at a time, a server's or a client's.

Order of work for a circuit: rotate in coefficient form, change to NTT form once for each rotated input, multiply and
add in NTT form, change back once for each inner sum, rotate and add the inner sums in coefficient form. See
docs/mathematics.md, "Engine order of work".
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np

from privcirnet.he.circuits.bfv.layer_circuit import LayerCircuit, Pair, Slots, check_sums
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.schemes.bfv.parameters import Parameters
from privcirnet.he.schemes.bfv.reply_stock import ReplyStock

PlainWeights = list[Any | None]
"""Encoded plaintexts; None for zeros, because SEAL refuses a product with zero."""


class SequentialClient(ABC):
    """A client's engine that encrypts and decrypts one ciphertext after the other."""

    concurrent = False

    @abstractmethod
    def encrypt(self, slots: Residues, kept: Integers | None = None) -> bytes: ...

    @abstractmethod
    def decrypt(self, message: bytes, kept: Integers | None = None) -> Residues: ...

    def encrypt_all(self, slots: Residues, kept: Sequence[Integers] | None = None) -> list[bytes]:
        return [self.encrypt(*one) for one in zip(slots, kept or [None] * len(slots), strict=True)]

    def decrypt_all(self, messages: Sequence[bytes], kept: Sequence[Integers] | None = None) -> Residues:
        return np.stack([self.decrypt(*one) for one in zip(messages, kept or [None] * len(messages), strict=True)])


class Operations(Protocol):
    """What such an engine computes: rotations and masks in coefficient form, products in either form."""

    parameters: Parameters

    def receive(self, message: bytes, kept: Integers | None = None, /) -> Any:
        """Check and load one ciphertext from the client.

        Args:
            message: what :meth:`ClientEngine.encrypt` returned.

        Returns:
            a ciphertext in coefficient form.

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        ...

    def encode(self, slots: Residues, /) -> Any:
        """Return a plaintext in coefficient form, for sums and single products.

        Args:
            slots: residues, shape (n,).
        """
        ...

    def encode_factor(self, slots: Residues, /) -> Any:
        """Return a plaintext in NTT form, for products in NTT form.

        Args:
            slots: residues, shape (n,).
        """
        ...

    def add_plain(self, ciphertext: Any, plaintext: Any, /) -> Any:
        """Return ciphertext + plaintext."""
        ...

    def rotate(self, ciphertext: Any, step: int, keys: Any, /) -> Any:
        """Return a ciphertext with both slot rows rotated to the left. Counted as "rotate".

        Args:
            step: columns to rotate by.
        """
        ...

    def to_ntt(self, ciphertext: Any, /) -> Any:
        """Return a ciphertext in NTT form."""
        ...

    def from_ntt(self, ciphertext: Any, /) -> Any:
        """Return a ciphertext in coefficient form.

        Args:
            ciphertext: in NTT form.
        """
        ...

    def multiply(self, ciphertext: Any, plaintext: Any, /) -> Any:
        """Return the slot-wise product. Counted as "pmult".

        Args:
            plaintext: in the same form, not zero.
        """
        ...

    def add(self, first: Any, second: Any, /) -> Any:
        """Return the sum of two ciphertexts.

        Args:
            second: in the same form.
        """
        ...

    def reply(self, ciphertext: Any, keys: Any, kept: Integers | None = None, /) -> bytes:
        """Return the reply of one ciphertext that is masked."""
        ...


class Sequential:
    """The steps of :class:`ServerEngine` out of :class:`Operations`, which a subclass has."""

    def receive_all(
        self: Operations,
        messages: Sequence[bytes],
        addends: Residues | None,
        kept: Sequence[Integers] | None = None,
    ) -> list[Any]:
        places = kept or [None] * len(messages)
        received = [self.receive(message, place) for message, place in zip(messages, places, strict=True)]
        if addends is None:
            return received
        return [self.add_plain(c, self.encode(slots)) for c, slots in zip(received, addends, strict=True)]

    def encode_weights(
        self: Operations, circuit: LayerCircuit, slots: Slots, name: str = "", *, keep: bool = True
    ) -> PlainWeights:
        plain = (slots[weight] for weight in range(len(slots)))
        weights = [self.encode_factor(values) if values.any() else None for values in plain]
        check_sums(circuit, [plaintext is not None for plaintext in weights], name)
        return weights

    def evaluate(
        self: Operations, circuit: LayerCircuit, weights: PlainWeights, inputs: Sequence[Any], keys: Any
    ) -> list[Any]:
        return _Run(self, circuit, weights, inputs, keys, {}).outputs()

    def multiply_all(self: Operations, ciphertexts: Sequence[Any], factors: Residues) -> list[Any]:
        return [self.multiply(c, self.encode(slots)) for c, slots in zip(ciphertexts, factors, strict=True)]

    def reply_all(
        self: Operations,
        ciphertexts: Sequence[Any],
        addends: Residues,
        keys: Any,
        kept: Sequence[Integers] | None = None,
    ) -> list[bytes]:
        places = kept or [None] * len(ciphertexts)
        masked = [self.add_plain(c, self.encode(slots)) for c, slots in zip(ciphertexts, addends, strict=True)]
        return [self.reply(c, keys, place) for c, place in zip(masked, places, strict=True)]

    def stock(self: Operations, keys: Any) -> ReplyStock:
        """Nothing is made ahead."""
        return ReplyStock(self.parameters.ring_degree, self.parameters.plain_modulus)


@dataclass(frozen=True)
class _Run:
    """One circuit on one engine; rotated inputs are kept from their first use to their last."""

    engine: Operations
    circuit: LayerCircuit
    weights: PlainWeights
    inputs: Sequence[Any]
    keys: Any
    rotated: dict[int, Any]

    def outputs(self) -> list[Any]:
        return [self._output(*parts) for parts in zip(self.circuit.outputs, self.circuit.folds, strict=True)]

    def _output(self, terms: tuple[Pair, ...], folds: tuple[int, ...]) -> Any:
        total = reduce(self.engine.add, (self._turn(self._inner(number), step) for number, step in terms))
        for step in folds:
            total = self.engine.add(total, self._turn(total, step))
        return total

    def _inner(self, number: int) -> Any:
        engine, pairs = self.engine, self.circuit.sums[number]
        for index, _ in pairs:
            if index not in self.rotated:
                source, step = self.circuit.rotated[index]
                self.rotated[index] = engine.to_ntt(self._turn(self.inputs[source], step))
        present = [(self.rotated[index], self.weights[w]) for index, w in pairs if self.weights[w] is not None]
        total = engine.from_ntt(reduce(engine.add, (engine.multiply(*pair) for pair in present)))
        for index in {index for index, _ in pairs}:
            if self.circuit.last_uses[index] == number:
                del self.rotated[index]
        return total

    def _turn(self, ciphertext: Any, step: int) -> Any:
        return self.engine.rotate(ciphertext, step, self.keys) if step else ciphertext
