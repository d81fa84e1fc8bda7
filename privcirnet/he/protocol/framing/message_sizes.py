"""How many messages an image takes and how long they may be, prepared or not.

Both parties know it from the public description alone. A length that a peer announces is compared with these before
room is made for it. They bound every engine's messages; the exact lengths are checked where messages are parsed.
"""

from dataclasses import dataclass
from math import prod

from privcirnet.he.layers.stacking import MOST_IMAGES
from privcirnet.he.mpc.local.packing import packed_size
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.offline.correlated import MAX_HELD
from privcirnet.he.protocol.offline.store_files import SERIAL_BYTES
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.protocol.rounds.waves import bundles
from privcirnet.he.schemes.bfv.sizes import SHARE_BYTES, key_bytes, message_bytes

_TOGETHER_BYTES, _CORRELATED_BYTES = 1 << 24, 1 << 27
"""Of a message about several of them, and of their prepared work while it is made."""
_WORD = 8
"""Bytes of a residue in the clear-text engine's messages and in a server's memory."""


@dataclass(frozen=True)
class Sizes:
    """The most bytes of a message of each kind.

    Attributes:
        keys: the client's public key, which is a fresh ciphertext, and its Galois keys.
    """

    keys: int
    request: int
    reply: int


def rounds(program: Program) -> int:
    """Return the number of messages each way for one image: one for each exchange, and those for the result."""
    return answer.rounds(program) + len(exchanges_of(program))


def rounds_online(program: Program) -> int:
    """Return the number of messages each way for a prepared image: its first, those that ask, a rounded result's."""
    return answer.rounds(program) + sum(exchange.online.asked > 0 for exchange in exchanges_of(program).values())


def keys_in_memory(program: Program) -> int:
    """Return the bytes that one client's Galois keys take at the server: both polynomials of every digit, in words."""
    primes, n = len(program.parameters.coefficient_bits), program.parameters.ring_degree
    return len(program.column_steps) * (primes - 1) * 2 * primes * n * _WORD


def together(program: Program) -> int:
    """Return how many images can be prepared at once: what either party has of them in memory stays under a limit."""
    most = min(MOST_IMAGES, _CORRELATED_BYTES // (_WORD * max(_kept(program), 1)))
    return next((count for count in range(most, 1, -1) if max(_ahead(program, count)) <= _TOGETHER_BYTES), 1)


def largest(program: Program) -> Sizes:
    """Return the sizes of a program's longest messages.

    Seeded ciphertexts, replies and keys may be shorter than the words of the clear-text engine, which count as well.
    """
    parameters = program.parameters
    counts = range(1, together(program) + 1)  # layers may take more images in fewer ciphertexts
    request, reply = (max(sizes) for sizes in zip(*(_ahead(program, count) for count in counts), strict=True))
    requests, replies = _online(program)
    plans = [exchange.plan for exchange in exchanges_of(program).values()]
    numbers = wire.framed_bytes([SERIAL_BYTES * MAX_HELD])
    return Sizes(
        keys=message_bytes(parameters)[0] + len(program.column_steps) * max(key_bytes(parameters), _WORD),
        request=max(request, numbers, *requests),
        reply=max(reply, *(wire.framed_bytes([SHARE_BYTES * plan.shares_down]) for plan in plans), numbers, *replies),
    )


def _kept(program: Program) -> int:
    """Values that a server keeps of an image."""
    return sum(sum(exchange.online.server.values()) for exchange in exchanges_of(program).values())


def _ahead(program: Program, count: int) -> tuple[int, int]:
    """Bytes of the longest request and reply with ciphertexts, where so many images are prepared at once."""
    clear = _WORD * program.parameters.ring_degree
    up, down = (max(size, clear) for size in message_bytes(program.parameters))
    rounds = [bundle.together for bundle in bundles(program, exchanges_of(program), count)]
    return (
        max((wire.framed_bytes([up] * one.ciphertexts_up) for one in rounds), default=0),
        max((wire.framed_bytes([down] * one.ciphertexts_down) for one in rounds), default=0),
    )


def _online(program: Program) -> tuple[list[int], list[int]]:
    """Bytes of every request and reply of a prepared image."""
    t, online = program.parameters.plain_modulus, [exchange.online for exchange in exchanges_of(program).values()]
    asking = [part for part in online if part.asked]
    first = wire.framed_bytes([SERIAL_BYTES, packed_size(prod(program.nodes[0].shape), t)])
    requests = [first, *(wire.framed_bytes([packed_size(part.answered, t)]) for part in asking)]
    replies = [wire.framed_bytes([packed_size(part.asked, t)]) for part in asking]
    (_, share), *questions = answer.part_bytes(program)
    requests += [wire.framed_bytes([asked]) for asked, _ in questions]
    return requests, [*replies, *(wire.framed_bytes([size]) for size in (share, *(told for _, told in questions)))]
