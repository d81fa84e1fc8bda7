"""The small interface between the protocol and whatever computes on ciphertexts.

Two roles, because two parties hold different things: a :class:`ClientEngine` has the secret key, a
:class:`ServerEngine` has none and sees only bytes that the client made. Slots are numpy ``uint64`` residues of length n
(row 0, then row 1); ciphertexts and encoded plaintexts are opaque to the caller.

Ciphertexts are rotated and masked in coefficient form, multiplied and added in NTT form: the caller says when to
change, because that is what the cost depends on (he.md section 5).
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.modular import Integers, Residues
from privcirnet.he.params import Parameters

Ciphertext = Any
Plaintext = Any
Keys = Any

ENGINES = ("tenseal", "cleartext")


class ClientEngine(Protocol):
    """What the client computes with its secret key."""

    parameters: Parameters

    def public_keys(self, steps: Collection[int]) -> bytes:
        """A public encryption key, and Galois keys for rotations by these column steps, as bytes for the server."""
        ...

    def encrypt(self, slots: Residues) -> bytes:
        """Encrypt one ciphertext's slots under the secret key."""
        ...

    def decrypt(self, message: bytes, kept: Integers | None = None) -> Residues:
        """Decrypt what :meth:`ServerEngine.reply` made.

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

    def load_keys(self, message: bytes, steps: Collection[int]) -> Keys:
        """Check and load the client's public key and Galois keys for these column steps."""
        ...

    def receive(self, message: bytes) -> Ciphertext:
        """Check and load one ciphertext from the client, in coefficient form."""
        ...

    def encode(self, slots: Residues) -> Plaintext:
        """A plaintext in coefficient form, for adding, subtracting and single products."""
        ...

    def encode_factor(self, slots: Residues) -> Plaintext:
        """A plaintext in NTT form, for products in NTT form."""
        ...

    def add_plain(self, ciphertext: Ciphertext, plaintext: Plaintext) -> Ciphertext:
        """Ciphertext + plaintext, coefficient form."""
        ...

    def subtract_plain(self, ciphertext: Ciphertext, plaintext: Plaintext) -> Ciphertext:
        """Ciphertext - plaintext, coefficient form."""
        ...

    def rotate(self, ciphertext: Ciphertext, step: int, keys: Keys) -> Ciphertext:
        """Turn both slot rows left by ``step`` columns, coefficient form. Counted as "rotate"."""
        ...

    def to_ntt(self, ciphertext: Ciphertext) -> Ciphertext:
        """Coefficient form to NTT form."""
        ...

    def from_ntt(self, ciphertext: Ciphertext) -> Ciphertext:
        """NTT form to coefficient form."""
        ...

    def multiply(self, ciphertext: Ciphertext, plaintext: Plaintext) -> Ciphertext:
        """Slot-wise product; both in the same form. Counted as "pmult"."""
        ...

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Sum of two ciphertexts of the same form."""
        ...

    def reply(self, ciphertext: Ciphertext, keys: Keys, noise_bits: int, kept: Integers | None = None) -> bytes:
        """Hide what a result says of the weights; switch down and serialise.

        See :mod:`privcirnet.he.flooding`. The reply's modulus is the smallest that still decrypts.

        Args:
            ciphertext: in coefficient form.
            keys: the client's.
            noise_bits: log2 of a bound on the noise, from public data only (:func:`params.noise_bits`).
            kept: ascending positions of the plaintext coefficients that the client needs: a reply holds the second
                polynomial whole and of the first only these coefficients. None: all of them.
        """
        ...


def client_engine(name: str, parameters: Parameters) -> ClientEngine:
    """The client's engine by name, with fresh keys.

    Raises:
        RuleError: unknown name.
    """
    return _module(name).Client(parameters)


def server_engine(name: str, parameters: Parameters) -> ServerEngine:
    """The server's engine by name.

    Raises:
        RuleError: unknown name.
    """
    return _module(name).Server(parameters)


def check_sums(empty: Sequence[object], layer: str) -> None:
    """Raise if there are sums without a product: no engine can make a ciphertext of zero out of none.

    Args:
        empty: the sums, however the caller names them.
        layer: for the error.

    Raises:
        RuleError: there are some.
    """
    if empty:
        raise RuleError(
            "every inner sum of a layer needs a weight that is not zero",
            got=f"layer {layer}, parts {list(empty)}",
            remedy="train the layer further or remove its dead channels",
        )


def _module(name: str) -> Any:
    if name == "tenseal":
        from privcirnet.he import tenseal as module
    elif name == "cleartext":
        from privcirnet.he import cleartext as module
    else:
        raise RuleError("the engine must be a known one", got=repr(name), remedy=f"use one of {', '.join(ENGINES)}")
    return module
