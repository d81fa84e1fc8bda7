"""Engines of both parties for all plain moduli, by the names of :data:`bfv.engines.ENGINES`.

The kernels have one secret, one request and one set of keys for all. Others work on one ciphertext at a time, with a
secret key, keys and a request for each plain modulus.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from papers.falcon2020.circuits.interface import KeyPlan, LeveledClient, LeveledServer
from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from privcirnet.he.bfv.engines import check_engine
from privcirnet.he.bfv.interface import Ciphertext, SequentialClient, SequentialServer
from privcirnet.he.ring.modular import Residues


class Engine(NamedTuple):
    """What makes the parties from n, q and all t.

    Attributes:
        client: with fresh keys.
    """

    client: Callable[[LeveledParameters, KeyPlan], LeveledClient]
    server: Callable[[LeveledParameters, KeyPlan], LeveledServer]


def engine_of(name: str) -> Engine:
    """Return an engine; its library is imported when it is needed.

    Raises:
        RuleError: unknown name.
    """
    check_engine(name)
    if name == "kernel":
        from papers.falcon2020.circuits.kernel import LeveledKernelClient, LeveledKernelServer

        return Engine(LeveledKernelClient, LeveledKernelServer)
    if name == "tenseal":
        from privcirnet.he.bfv.seal import TensealClient, TensealServer

        return Engine(partial(SeparateClient, TensealClient), partial(SeparateServer, TensealServer))
    from privcirnet.he.bfv.engines import CleartextClient, CleartextServer

    return Engine(partial(SeparateClient, CleartextClient), partial(SeparateServer, CleartextServer))


class SeparateClient:
    """The client's side for all plain moduli; see :class:`.interface.LeveledClient`.

    Args:
        client: of one plain modulus.
        parameters: n, q, and all t.
    """

    def __init__(self, client: type[SequentialClient], parameters: LeveledParameters, plan: KeyPlan) -> None:
        self.clients, self._names = [client(each) for each in parameters.moduli], [name for name, _ in plan.keys]

    def evaluation_keys(self) -> list[bytes]:
        """Return one message for each plain modulus."""
        return [client.keys(self._names) for client in self.clients]

    def encrypt_all(self, slots: Sequence[Residues]) -> list[list[bytes]]:
        """A row for each plain modulus."""
        return [[client.encrypt(row) for row in own] for client, own in zip(self.clients, slots, strict=True)]

    def decrypt(self, number: int, message: bytes) -> Residues:
        return self.clients[number].decrypt(message)

    def close(self) -> None:
        for client in self.clients:
            client.close()


class _OneModulus(SequentialServer):
    """What a circuit asks of an engine besides: there is no chain of primes, and factors are encoded one by one."""

    special = 0

    def encode_factors(self, slots: Sequence[Residues], primes: int, *, extended: bool) -> list[Any]:
        return [self.encode_factor(values) for values in slots]

    def reduce(self, ciphertext: Ciphertext, primes: int) -> Ciphertext:
        return ciphertext


def evaluator_of(server: type[SequentialServer]) -> type[_OneModulus]:
    """Return an engine of one plain modulus that runs circuits, too; see :class:`.evaluator.Evaluator`."""
    return type("Evaluator", (_OneModulus, server), {})


class SeparateServer:
    """The server's side for all plain moduli; see :class:`.interface.LeveledServer`.

    Args:
        server: of one plain modulus.
        parameters: n, q, and all t.
    """

    def __init__(self, server: type[SequentialServer], parameters: LeveledParameters, plan: KeyPlan) -> None:
        self.evaluators = [evaluator_of(server)(each) for each in parameters.moduli]
        self._names = [name for name, _ in plan.keys]
        self.rows = len(self.evaluators)

    def load_evaluation_keys(self, messages: Sequence[bytes]) -> list[Any]:
        """Return the keys for each plain modulus."""
        each = zip(self.evaluators, messages, strict=True)
        return [evaluator.load(message, self._names) for evaluator, message in each]

    def receive_all(self, request: Sequence[Sequence[bytes]]) -> list[Callable[[], list[Ciphertext]]]:
        each = zip(self.evaluators, request, strict=True)
        found = [[evaluator.receive(message) for message in row] for evaluator, row in each]
        return [partial(list, row) for row in found]
