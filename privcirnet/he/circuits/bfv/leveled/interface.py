"""What computes on ciphertexts, and how it runs a circuit.

A party's engine is for all plain moduli (:class:`LeveledClient`, :class:`LeveledServer`); a circuit is run for one at a
time (:class:`circuits.bfv.leveled.evaluator.Evaluator`). A ciphertext is dropped once no later step reads it.

The kernels have one secret, one set of keys and one request for all plain moduli, and levels; SEAL and clear text have
one of each for every plain modulus (:mod:`circuits.bfv.leveled.one_by_one`), and stay under one modulus.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from time import process_time
from typing import Any, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.interactive.interface import Ciphertext
from privcirnet.he.circuits.bfv.leveled.evaluator import Evaluator
from privcirnet.he.circuits.bfv.network_circuit import (
    Add,
    AddPlain,
    Combine,
    KeyPlan,
    NetworkCircuit,
    Reduce,
    Rotate,
    Square,
    Step,
    sources_of,
)
from privcirnet.he.ring.modular import Residues
from privcirnet.he.schemes.bfv.plain_moduli import LeveledParameters

ENGINES = ("kernel", "tenseal", "cleartext")
"""kernel: compiled; tenseal: SEAL's evaluator; cleartext: hides nothing, and counts."""


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
            message: what :meth:`circuits.bfv.leveled.evaluator.Evaluator.answer` returned.

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
        name: one of :data:`ENGINES`.
        parameters: n, q, and all t.

    Raises:
        RuleError: unknown name.
    """
    if name == "kernel":
        from privcirnet.he.circuits.bfv.leveled.kernel_client import KernelClient

        return KernelClient(parameters, plan)
    from privcirnet.he.circuits.bfv.leveled.one_by_one import SeparateClient

    return SeparateClient([_module(name).Client(each) for each in parameters.moduli], plan)


def leveled_server(name: str, parameters: LeveledParameters, plan: KeyPlan) -> LeveledServer:
    """Return a server's engine.

    Args:
        name: one of :data:`ENGINES`.
        parameters: n, q, and all t.

    Raises:
        RuleError: unknown name.
    """
    if name == "kernel":
        from privcirnet.he.circuits.bfv.leveled.kernel import KernelServer

        return KernelServer(parameters, plan)
    from privcirnet.he.circuits.bfv.leveled.one_by_one import SeparateServer

    return SeparateServer([_module(name).Server(each) for each in parameters.moduli], plan)


def _module(name: str) -> Any:
    if name == "tenseal":
        from privcirnet.he.circuits.bfv.leveled import seal

        return seal
    if name == "cleartext":
        from privcirnet.he.circuits.bfv.leveled import cleartext

        return cleartext
    raise RuleError("the engine must be a known one", got=repr(name), remedy=f"use one of {', '.join(ENGINES)}")


def run(
    circuit: NetworkCircuit,
    plaintexts: Sequence[Any],
    inputs: Sequence[Ciphertext],
    evaluator: Evaluator,
    keys: Any,
    timed: list[float] | None = None,
) -> list[Ciphertext]:
    """Return the outputs of a circuit.

    Args:
        circuit: of the network.
        plaintexts: from :func:`circuits.bfv.leveled.weights.encode`.
        inputs: the client's ciphertexts.
        evaluator: for the same plain modulus.
        keys: the client's.
        timed: gets the processor seconds of each step; None: nobody wants them.
    """
    values: dict[int, Ciphertext] = dict(enumerate(inputs))
    readers = Counter(source for step in circuit.steps for source in set(sources_of(step)))
    readers.update(circuit.outputs)
    in_ntt: dict[int, Ciphertext] = {}
    for number, (step, plaintext) in enumerate(zip(circuit.steps, plaintexts, strict=True), circuit.inputs):
        started = process_time()
        values[number] = _apply(step, values, in_ntt, plaintext, evaluator, keys)
        if timed is not None:
            timed.append(process_time() - started)
        for source in set(sources_of(step)):
            readers[source] -= 1
            if not readers[source]:
                del values[source]
                in_ntt.pop(source, None)
    return [values[output] for output in circuit.outputs]


def _apply(
    step: Step, values: dict[int, Any], in_ntt: dict[int, Any], plaintext: Any, evaluator: Evaluator, keys: Any
) -> Ciphertext:
    match step:
        case Rotate(source, columns):
            return evaluator.turn(values[source], columns, keys)
        case Add(first, second):
            return evaluator.add(values[first], values[second])
        case AddPlain(source):
            return evaluator.add_plain(values[source], plaintext)
        case Square(source):
            return evaluator.square(values[source], keys)
        case Reduce(source, level):
            return evaluator.reduce(values[source], level)
        case Combine(terms):
            for source, _ in terms:
                if source not in in_ntt:
                    in_ntt[source] = evaluator.to_ntt(values[source])
            own = [in_ntt[source] for source, _ in terms]
            return reduce(
                evaluator.add, (evaluator.combine(own[part], some) for part, some in plaintext.parts(evaluator))
            )
