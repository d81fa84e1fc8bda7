"""The small interface between the protocol and its engines, and engines made of single operations on ciphertexts.

There are two roles, because two parties hold different things: a :class:`ClientEngine` has the secret key, a
:class:`ServerEngine` has none and sees only bytes that the client made. Slots are numpy ``uint64`` residues mod t of
shape (n,), row 0 then row 1. Ciphertexts and encoded weights are opaque to the caller.

The methods are whole steps of the protocol, on all ciphertexts of a layer: how they are split into operations, in which
form and on how many cores is the engine's business.

:class:`SequentialServer` makes them out of operations on one ciphertext at a time. Its order of work for a layer's
circuit: rotate in coefficient form, change to NTT form once for each rotated input, multiply and add in NTT form,
change back once for each inner sum, rotate and add the inner sums in coefficient form. See docs/mathematics.md, "Engine
order of work".
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np

from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair, PlaintextSource
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.parameters import galois_element

Ciphertext = Any
EncodedWeights = Any
EvaluationKeys = Any


class ClientEngine(Protocol):
    """The client's operations with its secret key. ``concurrent``: several threads may use it at once."""

    parameters: Parameters
    concurrent: bool

    def public_keys(self, steps: Collection[int]) -> bytes:
        """Return a public encryption key and Galois keys for rotations by some column steps, as bytes for the server.

        Args:
            steps: columns by which the server rotates to the left, 1 to n / 2 - 1.
        """
        ...

    def encrypt(self, slots: Residues, sent: Integers | None = None) -> bytes:
        """Return one encrypted plaintext as bytes for the server.

        Args:
            slots: residues, shape (n,).
            sent: ascending coefficients of the first polynomial that the message holds; None: all of them.
        """
        ...

    def encrypt_all(self, slots: Residues, sent: Sequence[Integers] | None = None) -> list[bytes]:
        """Return the messages of several plaintexts, each as of :meth:`encrypt`.

        Args:
            slots: residues, shape (ciphertexts, n).
            sent: coefficients that each message holds; None: all of them.
        """
        ...

    def decrypt(self, message: bytes, sent: Integers | None = None) -> Residues:
        """Decrypt one of the messages that :meth:`ServerEngine.reply_all` returned.

        Args:
            sent: coefficients that the reply holds. All others of the plaintext are then without meaning.

        Returns:
            slots, shape (n,).

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        ...

    def decrypt_all(self, messages: Sequence[bytes], sent: Sequence[Integers] | None = None) -> Residues:
        """Return the slots of several replies, each as of :meth:`decrypt`, shape (replies, n).

        Args:
            messages: the replies, at least one.
            sent: coefficients that each holds; None: all of them.

        Raises:
            RuleError: the bytes of one are not such a ciphertext.
        """
        ...

    def close(self) -> None:
        """Forget the secret key. The engine is of no use afterwards; to close it again does nothing."""
        ...


class ServerEngine(Protocol):
    """The server's operations on ciphertexts; ``counts`` adds up the operations by name."""

    parameters: Parameters
    counts: Counter[str]

    def load_keys(self, message: bytes, steps: Collection[int]) -> EvaluationKeys:
        """Check and load the client's public key and Galois keys.

        Args:
            message: result of :meth:`ClientEngine.public_keys`.
            steps: the column steps that it was made with.

        Returns:
            the keys, for :meth:`evaluate` and :meth:`reply_all`.

        Raises:
            RuleError: the bytes are not such keys.
        """
        ...

    def receive_all(
        self, messages: Sequence[bytes], addends: Residues | None, sent: Sequence[Integers] | None = None
    ) -> Sequence[Ciphertext]:
        """Check and load ciphertexts from the client, and add the server's own share.

        Args:
            messages: results of :meth:`ClientEngine.encrypt`.
            addends: the share's slots, shape (ciphertexts, n); None for zeros.
            sent: coefficients that each message holds; the others of the first polynomials count as zero. None:
                all coefficients are there.

        Returns:
            a ciphertext for each message.

        Raises:
            RuleError: the bytes are not such ciphertexts.
        """
        ...

    def encode_weights(
        self,
        circuit: LayerCircuit,
        slots: PlaintextSource,
        *,
        keep: bool = True,
        present: Sequence[bool] | None = None,
    ) -> EncodedWeights:
        """Encode the plaintexts of a layer's weights for its circuit; zeros are left out, but a sum may have no other.

        Args:
            keep: whether the weights serve many images. Weights of one use (False) stay out of the weight cache.
            present: whether each plaintext has a value that is not zero; None: all are looked at.

        Returns:
            encoded weights, for :meth:`evaluate`.
        """
        ...

    def evaluate(
        self, circuit: LayerCircuit, weights: EncodedWeights, inputs: Sequence[Ciphertext], keys: EvaluationKeys
    ) -> Sequence[Ciphertext]:
        """Run a circuit.

        Rotations are counted as "rotate", products as "pmult". Products with zero are left out and not counted.

        Args:
            inputs: the ciphertexts x of the circuit, one for each number that it rotates.
            keys: keys of the client, with all column steps of the circuit.

        Returns:
            a ciphertext for each output of the circuit.
        """
        ...

    def multiply_all(self, ciphertexts: Sequence[Ciphertext], factors: Residues) -> Sequence[Ciphertext]:
        """Multiply ciphertexts slot-wise with plaintexts. Counted as "pmult".

        Args:
            ciphertexts: results of :meth:`receive_all`.
            factors: slots, shape (ciphertexts, n), none of them all zero.

        Returns:
            a ciphertext for each product.
        """
        ...

    def reply_all(
        self,
        ciphertexts: Sequence[Ciphertext],
        addends: Residues,
        keys: EvaluationKeys,
        sent: Sequence[Integers] | None = None,
    ) -> list[bytes]:
        """Mask results, hide the weights in their noise, switch to a smaller modulus and serialise.

        The modulus of a reply is the smallest that still decrypts. :mod:`ring.sampling` has the noise of a reply. Its
        width follows from the parameters alone (:func:`bfv.noise.flood_bits`); whether that hides the
        noise is checked before (:func:`bfv.noise.check_noise`). The ciphertexts may be overwritten.

        Args:
            addends: slots to add, shape (ciphertexts, n): minus the masks.
            sent: ascending positions of the plaintext coefficients that the client needs of each result. A reply holds
                the second polynomial whole and of the first only these coefficients. None: all of them.

        Returns:
            bytes for the client, for each result.
        """
        ...


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


class SequentialServer(ABC):
    """A server's engine out of single operations; rotations are in coefficient form.

    Args:
        parameters: n, q, t.
    """

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
    def encode(self, slots: Residues, primes: int = 0) -> Any:
        """Return a plaintext for sums.

        Args:
            slots: residues, shape (n,).
            primes: of no meaning to engines under one modulus.
        """

    @abstractmethod
    def encode_factor(self, slots: Residues) -> Any:
        """Return a plaintext in NTT form, for products in NTT form.

        Args:
            slots: residues, shape (n,).
        """

    @abstractmethod
    def add_plain(self, ciphertext: Any, plaintext: Any) -> Any:
        """Return ciphertext + plaintext.

        Args:
            plaintext: result of :meth:`encode`.
        """

    @abstractmethod
    def turn(self, ciphertext: Any, element: int, keys: Any) -> Any:
        """Return a ciphertext after an automorphism. Counted as "rotate".

        Args:
            element: Galois element of the automorphism.

        Raises:
            RuleError: there is no key for it.
        """

    @abstractmethod
    def to_ntt(self, ciphertext: Any) -> Any:
        """Return a ciphertext in the form that products are made in."""

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
    def add(self, first: Any, second: Any) -> Any:
        """Return the sum of two ciphertexts in the same form."""

    @abstractmethod
    def square(self, ciphertext: Any, keys: Any) -> Any:
        """Return the ciphertext times itself, relinearised."""

    @abstractmethod
    def zero(self, keys: Any) -> Any:
        """Return an encryption of zero."""

    @abstractmethod
    def reply(self, ciphertext: Any, keys: Any, sent: Integers | None = None) -> bytes:
        """Return the reply of one ciphertext that is masked."""

    def load_keys(self, message: bytes, steps: Collection[int]) -> Any:
        return self.load(message, [galois_element(step, self.parameters.ring_degree) for step in steps])

    def combine(self, ciphertexts: Sequence[Any], factors: Sequence[Any]) -> Any:
        """Return a sum of plaintext products.

        Args:
            ciphertexts: results of :meth:`to_ntt`.
            factors: results of :meth:`encode_factor`, one for each.
        """
        return self.from_ntt(reduce(self.add, map(self.multiply, ciphertexts, factors)))

    def answer(self, ciphertext: Any, addend: Residues, keys: Any, sent: Integers | None = None) -> bytes:
        """Return the reply of one ciphertext, masked.

        Args:
            addend: slots to add, shape (n,).
        """
        return self.reply(self.add_plain(ciphertext, self.encode(addend)), keys, sent)

    def receive_all(
        self, messages: Sequence[bytes], addends: Residues | None, sent: Sequence[Integers] | None = None
    ) -> list[Any]:
        places = sent or [None] * len(messages)
        received = [self.receive(message, place) for message, place in zip(messages, places, strict=True)]
        if addends is None:
            return received
        return [self.add_plain(c, self.encode(slots)) for c, slots in zip(received, addends, strict=True)]

    def encode_weights(
        self,
        circuit: LayerCircuit,
        slots: PlaintextSource,
        *,
        keep: bool = True,
        present: Sequence[bool] | None = None,
    ) -> list[Any]:
        """Return the encoded plaintexts; None for those that are all zero."""
        plain = (slots[weight] for weight in range(len(slots)))
        return [self.encode_factor(values) if values.any() else None for values in plain]

    def evaluate(self, circuit: LayerCircuit, weights: Sequence[Any], inputs: Sequence[Any], keys: Any) -> list[Any]:
        return _LayerRun(self, circuit, weights, inputs, keys).outputs()

    def multiply_all(self, ciphertexts: Sequence[Any], factors: Residues) -> list[Any]:
        return [self.multiply(c, self.encode(slots)) for c, slots in zip(ciphertexts, factors, strict=True)]

    def reply_all(
        self, ciphertexts: Sequence[Any], addends: Residues, keys: Any, sent: Sequence[Integers] | None = None
    ) -> list[bytes]:
        triples = zip(ciphertexts, addends, sent or [None] * len(ciphertexts), strict=True)
        return [self.answer(c, addend, keys, place) for c, addend, place in triples]


class _LayerRun:
    """One run of a layer's circuit: products with zero are left out, and sums of none with their rotations.

    A rotated input is dropped once no later sum reads it.
    """

    def __init__(
        self, server: SequentialServer, circuit: LayerCircuit, weights: Sequence[Any], inputs: Sequence[Any], keys: Any
    ) -> None:
        self._server, self._circuit, self._inputs, self._keys = server, circuit, inputs, keys
        self._columns = server.parameters.ring_degree // 2
        rotated = [(source, step % self._columns) for source, step in circuit.rotated]
        sums = [[(rotated[index], weights[weight]) for index, weight in terms] for terms in circuit.sums]
        self._sums = [terms if any(factor is not None for _, factor in terms) else [] for terms in sums]
        inner = [number for terms in circuit.outputs for number, _ in terms]
        self._readers = Counter(place for number in inner for place, _ in self._sums[number])
        self._rotated: dict[Pair, Any] = {}
        self._in_ntt: dict[Pair, Any] = {}

    def outputs(self) -> list[Any]:
        """Return the outputs; those of no product are an encryption of zero, the same one."""
        found = [self._output(*parts) for parts in zip(self._circuit.outputs, self._circuit.folds, strict=True)]
        zero = self._server.zero(self._keys) if None in found else None
        return [zero if output is None else output for output in found]

    def _output(self, terms: tuple[Pair, ...], folds: tuple[int, ...]) -> Any:
        inner = [self._turned(self._inner(number), step) for number, step in terms if self._sums[number]]
        if not inner:
            return None
        total = reduce(self._server.add, inner)
        return reduce(lambda total, step: self._server.add(total, self._turned(total, step)), folds, total)

    def _inner(self, number: int) -> Any:
        places = [place for place, _ in self._sums[number]]
        for source, step in places:
            if (source, step) not in self._rotated:
                self._rotated[source, step] = self._turned(self._inputs[source], step)
        products = [(place, factor) for place, factor in self._sums[number] if factor is not None]
        for place, _ in products:
            if place not in self._in_ntt:
                self._in_ntt[place] = self._server.to_ntt(self._rotated[place])
        total = self._server.combine([self._in_ntt[place] for place, _ in products], [factor for _, factor in products])
        self._readers.subtract(places)
        for place in set(places):
            if not self._readers[place]:
                del self._rotated[place]
                self._in_ntt.pop(place, None)
        return total

    def _turned(self, ciphertext: Any, step: int) -> Any:
        if not step % self._columns:
            return ciphertext
        return self._server.turn(ciphertext, galois_element(step, 2 * self._columns), self._keys)
