"""What the server computes on ciphertexts for one plain modulus."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from privcirnet.he.circuits.bfv.interactive.interface import Ciphertext
from privcirnet.he.ring.modular import Residues
from privcirnet.he.schemes.bfv.parameters import Parameters


class Evaluator(Protocol):
    """What the server computes for one plain modulus.

    Attributes:
        special: rows that an extended plaintext has over a level's.
        counts: operations by name.
    """

    parameters: Parameters
    special: int
    counts: Counter[str]

    def encode(self, slots: Residues, level: int) -> Any:
        """Return a plaintext for sums.

        Args:
            slots: residues, shape (n,).
            level: data primes of what it is added to.
        """
        ...

    def encode_factors(self, slots: Sequence[Residues], level: int, *, extended: bool) -> Any:
        """Return the plaintexts of a sum of products.

        Args:
            slots: residues, shape (n,), none all zero.
            level: data primes of what they meet.
            extended: whether that is not divided by the special primes' product yet, if the engine has such values.
        """
        ...

    def turn(self, ciphertext: Ciphertext, columns: int, keys: Any) -> Ciphertext:
        """Return a ciphertext with both rows turned left, or exchanged.

        Args:
            columns: see :class:`circuits.bfv.network_circuit.Rotate`.
        """
        ...

    def to_ntt(self, ciphertext: Ciphertext) -> Ciphertext:
        """Return a ciphertext in the form that products are made in."""
        ...

    def combine(self, ciphertexts: Sequence[Ciphertext], factors: Any) -> Ciphertext:
        """Return the sum of plaintext products.

        Args:
            ciphertexts: from :meth:`to_ntt`.
            factors: from :meth:`encode_factors`, one for each.
        """
        ...

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Return the sum of two ciphertexts.

        Args:
            second: of the same level.
        """
        ...

    def add_plain(self, ciphertext: Ciphertext, plaintext: Any) -> Ciphertext:
        """Return ciphertext + plaintext.

        Args:
            plaintext: from :meth:`encode`.
        """
        ...

    def square(self, ciphertext: Ciphertext, keys: Any) -> Ciphertext:
        """Return the ciphertext times itself, relinearised."""
        ...

    def reduce(self, ciphertext: Ciphertext, level: int) -> Ciphertext:
        """Return a ciphertext under fewer data primes; an engine without levels returns it as it is.

        Args:
            level: data primes that are left.
        """
        ...

    def answer(self, ciphertext: Ciphertext, addend: Residues, keys: Any) -> bytes:
        """Mask a result, flood its noise, switch to the smallest modulus that still decrypts, and serialise.

        Args:
            ciphertext: of the level of answers, or a longer modulus.
            addend: slots to add: shares of zero where the client may read, uniform elsewhere.

        Returns:
            bytes for the client.
        """
        ...
