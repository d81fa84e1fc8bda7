"""The small interface between the protocol and the engines that compute on ciphertexts.

There are two roles, because two parties hold different things: a :class:`ClientEngine` has the secret key, a
:class:`ServerEngine` has none and sees only bytes that the client made. Slots are numpy ``uint64`` residues mod t of
shape (n,), row 0 then row 1. Ciphertexts and encoded weights are opaque to the caller.

The methods are whole steps of the protocol, on all ciphertexts of a layer: how they are split into operations, in which
form and on how many cores is the engine's business. :mod:`bfv.sequential` makes them out of single operations.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from privcirnet.he.bfv.evaluator import Ciphertext
from privcirnet.he.bfv.layer_circuit import LayerCircuit, PlaintextSource
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.ring.modular import Integers, Residues

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

    def encode_weights(self, circuit: LayerCircuit, slots: PlaintextSource, *, keep: bool = True) -> EncodedWeights:
        """Encode the plaintexts of a layer's weights for its circuit; zeros are left out, but a sum may have no other.

        Args:
            keep: whether the weights serve many images. Weights of one use (False) stay out of the weight cache.

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
