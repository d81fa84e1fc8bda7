"""What computes on ciphertexts for one plain modulus, and how it runs a circuit.

The client's side is :class:`engines.interface.ClientEngine` with relinearisation keys; the server's has the operations
of :class:`engines.sequential.Operations` and squares. A ciphertext is dropped once no later step reads it.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.engines.interface import Ciphertext
from privcirnet.he.leveled.circuit import Add, AddPlain, Circuit, Combine, Rotate, Square, Step, sources_of
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.ring.modular import Residues

ENGINES = ("tenseal", "cleartext")
"""tenseal: SEAL's evaluator; cleartext: hides nothing, and counts."""


class LeveledClient(Protocol):
    """What the client computes with its secret key."""

    def evaluation_keys(self, rotations: Collection[int]) -> bytes:
        """Return the public key, a relinearisation key and Galois keys as bytes for the server.

        Args:
            rotations: column steps, :data:`leveled.circuit.SWAP` among them.
        """
        ...

    def encrypt(self, slots: Residues) -> bytes:
        """Return one encrypted plaintext as bytes.

        Args:
            slots: residues, shape (n,).
        """
        ...

    def decrypt(self, message: bytes) -> Residues:
        """Return the slots of an answer, shape (n,).

        Args:
            message: what :meth:`LeveledServer.answer` returned.

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        ...

    def close(self) -> None:
        """Forget the secret key."""
        ...


class LeveledServer(Protocol):
    """What the server computes; ``counts`` adds up the operations by name."""

    parameters: Parameters
    counts: Counter[str]

    def load_evaluation_keys(self, message: bytes, rotations: Collection[int]) -> Any:
        """Check and load a client's keys.

        Args:
            message: what :meth:`LeveledClient.evaluation_keys` returned.
            rotations: that it was made with.

        Returns:
            the keys, for the other methods.

        Raises:
            RuleError: the bytes are not such keys.
        """
        ...

    def receive(self, message: bytes) -> Ciphertext:
        """Check and load a ciphertext from the client.

        Args:
            message: what :meth:`LeveledClient.encrypt` returned.

        Returns:
            it, in coefficient form.

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        ...

    def encode(self, slots: Residues) -> Any:
        """Return a plaintext for sums.

        Args:
            slots: residues, shape (n,).
        """
        ...

    def encode_factor(self, slots: Residues) -> Any:
        """Return a plaintext for products.

        Args:
            slots: residues, shape (n,), not all zero.
        """
        ...

    def turn(self, ciphertext: Ciphertext, columns: int, keys: Any) -> Ciphertext:
        """Return a ciphertext with both rows turned left, or exchanged.

        Args:
            ciphertext: in coefficient form.
            columns: see :class:`leveled.circuit.Rotate`.
            keys: the client's.
        """
        ...

    def to_ntt(self, ciphertext: Ciphertext) -> Ciphertext:
        """Return a ciphertext in the form that products are made in.

        Args:
            ciphertext: in coefficient form.
        """
        ...

    def from_ntt(self, ciphertext: Ciphertext) -> Ciphertext:
        """Return a ciphertext in coefficient form.

        Args:
            ciphertext: in NTT form.
        """
        ...

    def multiply(self, ciphertext: Ciphertext, plaintext: Any) -> Ciphertext:
        """Return a plaintext product.

        Args:
            ciphertext: in NTT form.
            plaintext: from :meth:`encode_factor`.
        """
        ...

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Return the sum of two ciphertexts.

        Args:
            first: in either form.
            second: in the same.
        """
        ...

    def add_plain(self, ciphertext: Ciphertext, plaintext: Any) -> Ciphertext:
        """Return ciphertext + plaintext.

        Args:
            ciphertext: in coefficient form.
            plaintext: from :meth:`encode`.
        """
        ...

    def square(self, ciphertext: Ciphertext, keys: Any) -> Ciphertext:
        """Return the ciphertext times itself, relinearised.

        Args:
            ciphertext: in coefficient form.
            keys: the client's.
        """
        ...

    def answer(self, ciphertext: Ciphertext, addend: Residues, keys: Any) -> bytes:
        """Mask a result, flood its noise, switch to the smallest modulus that still decrypts, and serialise.

        Args:
            ciphertext: in coefficient form.
            addend: slots to add: zero where the client may read, uniform elsewhere.
            keys: the client's.

        Returns:
            bytes for the client.
        """
        ...


def leveled_client(name: str, parameters: Parameters) -> LeveledClient:
    """Return a client's engine with fresh keys.

    Args:
        name: one of :data:`ENGINES`.
        parameters: of one plain modulus.

    Raises:
        RuleError: unknown name.
    """
    return _module(name).Client(parameters)


def leveled_server(name: str, parameters: Parameters) -> LeveledServer:
    """Return a server's engine.

    Args:
        name: one of :data:`ENGINES`.
        parameters: of one plain modulus.

    Raises:
        RuleError: unknown name.
    """
    return _module(name).Server(parameters)


def _module(name: str) -> Any:
    if name == "tenseal":
        from privcirnet.he.leveled import tenseal

        return tenseal
    if name == "cleartext":
        from privcirnet.he.leveled import cleartext

        return cleartext
    raise RuleError("the engine must be a known one", got=repr(name), remedy=f"use one of {', '.join(ENGINES)}")


def encode(circuit: Circuit, server: LeveledServer) -> list[Any]:
    """Return a circuit's plaintexts, encoded for many images.

    Args:
        circuit: of the network.
        server: for one plain modulus.
    """
    t, factors = server.parameters.plain_modulus, _factors(circuit)
    return [
        server.encode_factor(plaintext(t)) if number in factors else server.encode(plaintext(t))
        for number, plaintext in enumerate(circuit.plaintexts)
    ]


def run(
    circuit: Circuit, plaintexts: Sequence[Any], inputs: Sequence[Ciphertext], server: LeveledServer, keys: Any
) -> list[Ciphertext]:
    """Return the outputs of a circuit.

    Args:
        circuit: of the network.
        plaintexts: from :func:`encode`.
        inputs: the client's ciphertexts.
        server: for the same plain modulus.
        keys: the client's.
    """
    values: dict[int, Ciphertext] = dict(enumerate(inputs))
    readers = Counter(source for step in circuit.steps for source in set(sources_of(step)))
    readers.update(circuit.outputs)
    in_ntt: dict[int, Ciphertext] = {}
    for number, step in enumerate(circuit.steps, circuit.inputs):
        values[number] = _apply(step, values, in_ntt, plaintexts, server, keys)
        for source in set(sources_of(step)):
            readers[source] -= 1
            if not readers[source]:
                del values[source]
                in_ntt.pop(source, None)
    return [values[output] for output in circuit.outputs]


def _apply(
    step: Step,
    values: dict[int, Any],
    in_ntt: dict[int, Any],
    plaintexts: Sequence[Any],
    server: LeveledServer,
    keys: Any,
) -> Ciphertext:
    match step:
        case Rotate(source, columns):
            return server.turn(values[source], columns, keys)
        case Add(first, second):
            return server.add(values[first], values[second])
        case AddPlain(source, plaintext):
            return server.add_plain(values[source], plaintexts[plaintext])
        case Square(source):
            return server.square(values[source], keys)
        case Combine(terms):
            total = None
            for source, plaintext in terms:
                if source not in in_ntt:
                    in_ntt[source] = server.to_ntt(values[source])
                product = server.multiply(in_ntt[source], plaintexts[plaintext])
                total = product if total is None else server.add(total, product)
            return server.from_ntt(total)


def _factors(circuit: Circuit) -> set[int]:
    return {plaintext for step in circuit.steps if isinstance(step, Combine) for _, plaintext in step.terms}
