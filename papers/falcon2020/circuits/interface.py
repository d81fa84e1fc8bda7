"""What client and server compute for a whole network between two messages, under all plain moduli."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from papers.falcon2020.circuits.evaluator import Evaluator
from privcirnet.he.bfv.interface import Ciphertext
from privcirnet.he.ring.modular import Residues


class KeyPlan(Protocol):
    """What engines need to know of how a network is computed: the keys, and how long answers are."""

    @property
    def keys(self) -> tuple[tuple[int, int], ...]:
        """Names of switch keys (:mod:`rlwe.parameters`), and data primes of what they switch."""
        ...

    @property
    def primes(self) -> int:
        """Data primes of an answer."""
        ...


class LeveledClient(Protocol):
    """What the client computes with its secret key."""

    def evaluation_keys(self) -> list[bytes]:
        """Return the public key, a relinearisation key and Galois keys as messages for the server."""
        ...

    def encrypt_all(self, slots: Sequence[Residues]) -> list[list[bytes]]:
        """Return encrypted plaintexts: one row of messages for all plain moduli, or one for each.

        Args:
            slots: for each plain modulus, residues of shape (inputs, n).
        """
        ...

    def decrypt(self, number: int, message: bytes) -> Residues:
        """Return the slots of an answer, shape (n,).

        Args:
            message: what :meth:`.evaluator.Evaluator.answer` returned.

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        ...

    def close(self) -> None:
        """Forget the secret key."""
        ...


class LeveledServer(Protocol):
    """What the server computes.

    Attributes:
        rows: of a request: one for all plain moduli, or one for each; as many messages hold keys.
    """

    rows: int

    @property
    def evaluators(self) -> Sequence[Evaluator]:
        """For each plain modulus."""
        ...

    def load_evaluation_keys(self, messages: Sequence[bytes]) -> list[Any]:
        """Check and load a client's keys.

        Args:
            messages: what :meth:`LeveledClient.evaluation_keys` returned.

        Returns:
            the keys for each plain modulus.

        Raises:
            RuleError: the bytes are not such keys.
        """
        ...

    def receive_all(self, request: Sequence[Sequence[bytes]]) -> list[Callable[[], list[Ciphertext]]]:
        """Check and load the ciphertexts of a request.

        Args:
            request: what :meth:`LeveledClient.encrypt_all` returned.

        Returns:
            for each plain modulus what makes its inputs: those of all moduli at once are the most of an image's memory.

        Raises:
            RuleError: the bytes are not such ciphertexts.
        """
        ...
