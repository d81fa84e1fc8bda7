"""What hostile clients have in common: keys and ciphertexts that nobody encrypted, a look at replies, shifted shares.

With the secret key zero a ciphertext (c0, c1) decrypts as c0 alone, whatever c1 is. Such keys and ciphertexts have the
form of honest ones, so that no check of bytes can tell them.
"""

import math
from typing import Any

import numpy as np

from privcirnet.he.bfv.parameters import Parameters, ReplyFormat, ordered_primes
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import ImpossibleResultError
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Session
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.ring import modular
from privcirnet.he.rlwe.kernels.wire_bytes import pack
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, WireFormat
from tests.he.wire_oracles import lengthen


def modulus_of(parameters: Parameters) -> WireFormat:
    """The modulus of requests."""
    primes = ordered_primes(parameters.ring_degree, parameters.coefficient_bits)
    return WireFormat(primes[:-1], parameters.ring_degree)


def keys_of_zero(client: Client) -> bytes:
    """Keys for the secret key zero, as long as honest ones. All residues are 1, so errors are as small as they can be."""
    parameters = client.program.parameters
    primes = ordered_primes(parameters.ring_degree, parameters.coefficient_bits)
    bits, words = (
        WireFormat(primes, parameters.ring_degree).bits,
        np.ones((len(primes), parameters.ring_degree), np.uint64),
    )
    public, digit = (pack(words[: len(some)], some) + bytes(SEED_BYTES) for some in (bits[:-1], bits))
    return public + digit * ((len(client.keys()) - len(public)) // len(digit))


def constant(value: int, parameters: Parameters) -> bytes:
    """A "ciphertext" whose c0 is an integer of the attacker's choice, in the form of a request's."""
    modulus = modulus_of(parameters)
    words = np.zeros((len(modulus.primes), modulus.ring_degree), dtype=np.uint64)
    words[:, 0] = [value % prime for prime in modulus.primes]
    return pack(words, modulus.bits) + bytes(SEED_BYTES)


def first_polynomial(reply: bytes, parameters: Parameters) -> tuple[list[int], int]:
    """c0 of a reply as integers mod q', and q'."""
    n, bits = parameters.ring_degree, parameters.coefficient_bits
    replies = ReplyFormat.of(parameters, ordered_primes(n, bits))
    primes, q = replies.modulus.primes, math.prod(replies.modulus.primes)
    words = lengthen(replies.cut(reply, n)[0], primes, replies.bits.first, n)
    found = np.zeros(n, dtype=object)
    for prime, residues in zip(primes, words, strict=True):
        rest = q // prime
        found = (found + residues.astype(object) * (rest * pow(rest, -1, prime))) % q
    return found.tolist(), q


class ShiftingClient(Client):
    """Adds what it likes to its own share of one layer's input, which it prepares. All else is as it should be."""

    target: str
    shift: Values

    def __init__(self, greeting: bytes, engine: str) -> None:
        super().__init__(greeting, engine)
        honest, t = self._prepared._side, self.program.parameters.plain_modulus

        def shifted(nodes: Any, together: Any, kept: Any, walks: Any, *others: Any) -> Any:
            for source in (node.inputs[0] for node in nodes if node.name == self.target):
                for walk in walks:
                    shift = modular.residues(self.shift.reshape(walk[source].shape), t)
                    walk[source] = modular.add(walk[source], shift, t)
            return honest(nodes, together, kept, walks, *others)

        self._prepared._side = shifted

    def ask(self, session: Session, image: Values) -> Values:
        """The result, whatever the client that it pretends to be would think of it."""
        try:
            return run(self, session, image)[0].reshape(-1)
        except ImpossibleResultError as error:
            return error.values.reshape(-1)


def first_reply(session: Session, parts: list[bytes]) -> bytes:
    """The first part of the reply to a preparation's first ciphertexts."""
    session.handle(wire.frame(wire.PREPARE, [correlated.write_count(1)]))
    return wire.unframe(session.handle(wire.frame(wire.OFFLINE + 1, parts)), wire.OFFLINE + 1)[0]
