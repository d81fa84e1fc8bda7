"""How many messages an image takes and how long they may be: known to both parties from the public description alone.

A length that a peer announces is compared with these before room is made for it. They bound every engine's messages;
the exact lengths are checked where messages are parsed.
"""

from dataclasses import dataclass

import numpy as np

from privcirnet.he.params.parameters import Parameters
from privcirnet.he.params.sizes import key_bytes, message_bytes, public_key_bytes
from privcirnet.he.program.operations import ClientAided, Linear, Product, Square
from privcirnet.he.program.program import Node, Program
from privcirnet.he.protocol import square, wire

_WORD = 8


@dataclass(frozen=True)
class Sizes:
    """Most bytes of a message of each kind."""

    keys: int
    request: int
    reply: int


def ciphertexts(node: Node, parameters: Parameters) -> tuple[int, int] | None:
    """Ciphertexts of a node's exchange, (client to server, back); None if it needs none."""
    match node.operation:
        case Linear(layer):
            return layer.ciphertexts_in, layer.ciphertexts_out
        case Product(left, right):
            return left.ciphertexts_in + right.ciphertexts_in, left.ciphertexts_out + right.ciphertexts_out
        case Square():
            count = square.ciphertexts(int(np.prod(node.shape)), parameters.ring_degree)
            return count, count
        case ClientAided():  # the server's share comes back as it is
            return 0, 0
        case _:
            return None


def exchanged(node: Node, parameters: Parameters) -> tuple[int, int]:
    """:func:`ciphertexts` of a node that needs an exchange."""
    found = ciphertexts(node, parameters)
    assert found is not None, node
    return found


def rounds(program: Program) -> int:
    """Messages each way for one image: one for each node that needs an exchange, and one for the result."""
    return 1 + sum(ciphertexts(node, program.parameters) is not None for node in program.nodes)


def keys_in_memory(program: Program) -> int:
    """Bytes that a server takes for one client's Galois keys: both polynomials of every digit, in whole words."""
    primes, n = len(program.parameters.coefficient_bits), program.parameters.ring_degree
    return len(program.column_steps) * (primes - 1) * 2 * primes * n * _WORD


def largest(program: Program) -> Sizes:
    """The longest messages of a program.

    Seeded ciphertexts, replies and keys may be shorter than the words of the clear-text engine, which count as well. So
    the share of the result, a word a value, is no longer than the reply that its values came out of.
    """
    parameters = program.parameters
    clear = _WORD * parameters.ring_degree
    up, down = (max(size, clear) for size in message_bytes(parameters))
    found = [both for node in program.nodes if (both := ciphertexts(node, parameters))]
    steps = len(program.column_steps)
    return Sizes(
        keys=public_key_bytes(parameters) + steps * max(key_bytes(parameters), _WORD),
        request=max(wire.framed_bytes(sent, up) for sent, _ in found),
        reply=max(wire.framed_bytes(back, down) for _, back in found),
    )
