"""The small interface between the protocol and whatever computes on ciphertexts.

Two roles, because two parties hold different things: a :class:`ClientEngine` has the secret key, a
:class:`ServerEngine` has none and sees only bytes that the client made. Slots are numpy ``uint64`` residues of length n
(row 0, then row 1); ciphertexts and encoded plaintexts are opaque to the caller.

The steps are whole steps of the protocol, on all ciphertexts of a layer: how they are split into operations, in which
form and on how many cores is the engine's business. :mod:`engines.sequential` makes them out of single ones.
"""

import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.engines.circuit import Circuit, Slots
from privcirnet.he.engines.weight_cache import WeightCache
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.ring.modular import Integers, Residues

Ciphertext = Any
EncodedWeights = Any
EvaluationKeys = Any

ENGINES = ("kernel", "tenseal", "cleartext")
"""kernel: the client's is TenSEAL's, the server's our own, compiled by Numba; cleartext hides nothing."""


class ClientEngine(Protocol):
    """What the client computes with its secret key."""

    parameters: Parameters

    def public_keys(self, steps: Collection[int]) -> bytes:
        """A public encryption key, and Galois keys for rotations by these column steps, as bytes for the server."""
        ...

    def encrypt(self, slots: Residues, kept: Integers | None = None) -> bytes:
        """Encrypt one ciphertext's slots under the secret key.

        Args:
            slots: residues, (n,).
            kept: ascending coefficients of the first polynomial that the message holds; None: all of them.
        """
        ...

    def decrypt(self, message: bytes, kept: Integers | None = None) -> Residues:
        """Decrypt one of what :meth:`ServerEngine.reply_all` made.

        Args:
            message: the reply.
            kept: what the reply was made with. All other coefficients of the plaintext are then without meaning.

        Returns:
            slots, shape (n,).

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        ...


class ServerEngine(Protocol):
    """What the server computes on ciphertexts; ``counts`` adds up the operations by name."""

    parameters: Parameters
    counts: Counter[str]

    def load_keys(self, message: bytes, steps: Collection[int]) -> EvaluationKeys:
        """Check and load the client's public key and Galois keys for these column steps."""
        ...

    def receive_all(
        self, messages: Sequence[bytes], addends: Residues | None, kept: Sequence[Integers] | None = None
    ) -> Sequence[Ciphertext]:
        """Check and load ciphertexts from the client; add the slots (ciphertexts, n), the server's own share.

        Args:
            messages: what :meth:`ClientEngine.encrypt` made.
            addends: slots (ciphertexts, n), or None for zeros.
            kept: what each was made with; the other coefficients of the first polynomials count as zero.

        Raises:
            RuleError: the bytes are not such ciphertexts.
        """
        ...

    def encode_weights(self, circuit: Circuit, slots: Slots, name: str = "", *, keep: bool = True) -> EncodedWeights:
        """Encode the plaintexts of a layer's weights for its circuit; zeros are left out.

        Args:
            circuit: the layer's.
            slots: the plaintexts.
            name: for the error.
            keep: for many images; False for weights of one use, which take no room of those that stay.

        Raises:
            RuleError: an inner sum of layer ``name`` has no product left.
        """
        ...

    def evaluate(
        self, circuit: Circuit, weights: EncodedWeights, inputs: Sequence[Ciphertext], keys: EvaluationKeys
    ) -> Sequence[Ciphertext]:
        """Run a circuit. Rotations are counted as "rotate", products as "pmult"; those with zero are left out."""
        ...

    def multiply_all(self, ciphertexts: Sequence[Ciphertext], factors: Residues) -> Sequence[Ciphertext]:
        """Slot-wise products with slots (ciphertexts, n). Counted as "pmult"."""
        ...

    def reply_all(
        self,
        ciphertexts: Sequence[Ciphertext],
        addends: Residues,
        keys: EvaluationKeys,
        noise_bits: int,
        kept: Sequence[Integers] | None = None,
    ) -> list[bytes]:
        """Mask results, hide what they say of the weights, switch down and serialise.

        See :mod:`ring.flooding`. A reply's modulus is the smallest that still decrypts.

        Args:
            ciphertexts: results.
            addends: slots (ciphertexts, n) to add: minus the masks.
            keys: the client's.
            noise_bits: log2 of a bound on the noise, from public data only (:func:`params.noise.noise_bits`).
            kept: ascending positions of the plaintext coefficients that the client needs of each: a reply holds the
                second polynomial whole and of the first only these coefficients. None: all of them.
        """
        ...


def client_engine(name: str, parameters: Parameters) -> ClientEngine:
    """Return the client's engine by name, with fresh keys.

    Args:
        name: one of :data:`ENGINES`; the client of "kernel" is that of "tenseal".
        parameters: n, q, t.

    Raises:
        RuleError: unknown name.
    """
    _check(name)
    if name == "cleartext":
        from privcirnet.he.engines.cleartext import CleartextClient

        return CleartextClient(parameters)
    from privcirnet.he.engines.tenseal import TensealClient

    return TensealClient(parameters)


def server_engine(name: str, parameters: Parameters, cache: WeightCache | None = None) -> ServerEngine:
    """Return the server's engine by name; "kernel" is "tenseal", with a warning, where Numba is not installed.

    Args:
        name: one of :data:`ENGINES`.
        parameters: n, q, t.
        cache: of encoded weights; only the kernel's can be capped.

    Raises:
        RuleError: unknown name.
    """
    _check(name)
    if name == "cleartext":
        from privcirnet.he.engines.cleartext import CleartextServer

        return CleartextServer(parameters)
    if name == "kernel":
        try:
            from privcirnet.he.engines.kernel import KernelServer
        except ModuleNotFoundError as missing:
            if missing.name != "numba":
                raise
            slower = "engine=kernel needs Numba, which is not installed: engine=tenseal, ten times slower, is used"
            warnings.warn(slower, stacklevel=2)
        else:
            return KernelServer(parameters, cache)
    from privcirnet.he.engines.tenseal import TensealServer

    return TensealServer(parameters)


def _check(name: str) -> None:
    if name not in ENGINES:
        raise RuleError("the engine must be a known one", got=repr(name), remedy=f"use one of {', '.join(ENGINES)}")
