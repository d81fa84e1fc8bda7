"""Engines with a secret key, keys and a request for each plain modulus: SEAL, clear text."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from privcirnet.he.circuits.bfv.evaluator import Ciphertext
from privcirnet.he.circuits.bfv.network_circuit import KeyPlan
from privcirnet.he.circuits.bfv.sequential import Sequential, SequentialClient
from privcirnet.he.ring.modular import Residues


class SeparateClient:
    """The client's side for all plain moduli; see :class:`circuits.bfv.leveled.interface.LeveledClient`.

    Args:
        clients: for each plain modulus.
    """

    def __init__(self, clients: Sequence[SequentialClient], plan: KeyPlan) -> None:
        self.clients, self._names = clients, [name for name, _ in plan.keys]

    def evaluation_keys(self) -> list[bytes]:
        return [client.keys(self._names) for client in self.clients]

    def encrypt_all(self, slots: Sequence[Residues]) -> list[list[bytes]]:
        """A row for each plain modulus."""
        return [[client.encrypt(row) for row in own] for client, own in zip(self.clients, slots, strict=True)]

    def decrypt(self, number: int, message: bytes) -> Residues:
        return self.clients[number].decrypt(message)

    def close(self) -> None:
        for client in self.clients:
            client.close()


class SeparateServer:
    """The server's side for all plain moduli; see :class:`circuits.bfv.leveled.interface.LeveledServer`.

    Args:
        evaluators: for each plain modulus.
    """

    def __init__(self, evaluators: Sequence[Sequential], plan: KeyPlan) -> None:
        self.evaluators, self.rows, self._names = evaluators, len(evaluators), [name for name, _ in plan.keys]

    def load_evaluation_keys(self, messages: Sequence[bytes]) -> list[Any]:
        each = zip(self.evaluators, messages, strict=True)
        return [evaluator.load(message, self._names) for evaluator, message in each]

    def receive_all(self, request: Sequence[Sequence[bytes]]) -> list[Callable[[], list[Ciphertext]]]:
        each = zip(self.evaluators, request, strict=True)
        found = [[evaluator.receive(message) for message in row] for evaluator, row in each]
        return [partial(list, row) for row in found]
