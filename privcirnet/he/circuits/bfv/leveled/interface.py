"""What computes on ciphertexts of a whole network.

A party's engine is for all plain moduli (:class:`LeveledClient`, :class:`LeveledServer`); a circuit is run for one at a
time (:class:`circuits.bfv.evaluator.Evaluator`).

The kernels have one secret, one set of keys and one request for all plain moduli; SEAL and clear text have
one of each for every plain modulus (:mod:`circuits.bfv.leveled.one_by_one`), and stay under one modulus.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from privcirnet.he.circuits.bfv.engines import check_engine, sequential
from privcirnet.he.circuits.bfv.evaluator import Ciphertext, Evaluator
from privcirnet.he.circuits.bfv.network_circuit import KeyPlan
from privcirnet.he.ring.modular import Residues
from privcirnet.he.schemes.bfv.plain_moduli import LeveledParameters


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
            message: what :meth:`circuits.bfv.evaluator.Evaluator.answer` returned.

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


def leveled_client(name: str, parameters: LeveledParameters, plan: KeyPlan) -> LeveledClient:
    """Return a client's engine with fresh keys.

    Args:
        name: one of :data:`circuits.bfv.engines.ENGINES`.
        parameters: n, q, and all t.

    Raises:
        RuleError: unknown name.
    """
    check_engine(name)
    if name == "kernel":
        from privcirnet.he.circuits.bfv.leveled.kernel_client import KernelClient

        return KernelClient(parameters, plan)
    from privcirnet.he.circuits.bfv.leveled.one_by_one import SeparateClient

    return SeparateClient([sequential(name).client(each) for each in parameters.moduli], plan)


def leveled_server(name: str, parameters: LeveledParameters, plan: KeyPlan) -> LeveledServer:
    """Return a server's engine.

    Args:
        name: one of :data:`circuits.bfv.engines.ENGINES`.
        parameters: n, q, and all t.

    Raises:
        RuleError: unknown name.
    """
    check_engine(name)
    if name == "kernel":
        from privcirnet.he.circuits.bfv.leveled.kernel import KernelServer

        return KernelServer(parameters, plan)
    from privcirnet.he.circuits.bfv.leveled.one_by_one import SeparateServer

    return SeparateServer([sequential(name).server(each) for each in parameters.moduli], plan)
