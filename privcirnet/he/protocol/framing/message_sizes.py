"""The number of messages that an image takes, and their largest sizes.

Both parties know them from the public description alone. A length that a peer announces is compared with these before
room is made for it. They bound every engine's messages; the exact lengths are checked where messages are parsed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, key_bytes, message_bytes
from privcirnet.he.layers.layer import MOST_IMAGES
from privcirnet.he.mpc.local.packing import packed_size
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.offline.correlated import MAX_HELD
from privcirnet.he.protocol.offline.store_files import SERIAL_BYTES
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.rounds.exchange import Exchange
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.protocol.rounds.message_batches import offline_batches, online_batches
from privcirnet.he.protocol.rounds.message_specs import MessageSpec
from privcirnet.he.protocol.rounds.transfers import refill_trips, setup_trips, takes_transfers

_TOGETHER_BYTES, _CORRELATED_BYTES = 1 << 24, 1 << 27
"""Bytes of a message about several images, and of their prepared work while it is made."""
_AROUND = 3
"""Messages each way around what an image's preparation exchanges: AGREE, PREPARE, PREPARED."""
_WORD = 8
"""Bytes of a residue in the clear-text engine's messages and in a server's memory."""


@dataclass(frozen=True)
class MessageSizes:
    """The most bytes of a message of each kind.

    Attributes:
        keys: the client's public key, which is a fresh ciphertext, and its Galois keys.
    """

    keys: int
    request: int
    reply: int


def rounds(program: Program) -> int:
    """Return the number of messages each way for the first image of a session, which is prepared first."""
    return rounds_ahead(program, 1) + rounds_online(program)


def rounds_ahead(program: Program, count: int) -> int:
    """Return the number of messages each way that prepare some images at once, the first ones of their session."""
    exchanges = exchanges_of(program)
    ahead = sum(len(bundle.trips) for bundle in offline_batches(program, exchanges, count))
    return _AROUND + len(_setup(program, exchanges)) + ahead


def rounds_online(program: Program) -> int:
    """Return the number of messages each way for a prepared image: its first, and those that ask."""
    return 1 + sum(len(pairs) for pairs in _online(program))


def bytes_online(program: Program) -> int:
    """Return the bytes that are sent for a prepared image both ways, without what frames them."""
    turns = [turn for pairs in _online(program) for pair in pairs for turn in pair]
    first = packed_size(prod(program.nodes[0].shape), program.parameters.plain_modulus)
    return first + answer.part_bytes(program) + sum(sum(turn.octets) for turn in turns)


def keys_in_memory(program: Program) -> int:
    """Return the bytes that one client's Galois keys take at the server: both polynomials of every digit, in words."""
    primes, n = len(program.parameters.coefficient_bits), program.parameters.ring_degree
    return len(program.column_steps) * (primes - 1) * 2 * primes * n * _WORD


def rotation_key_bytes(program: Program) -> int:
    """Return the bytes of a client's Galois keys on the wire."""
    return len(program.column_steps) * key_bytes(program.parameters)


def max_batch(program: Program) -> int:
    """Return how many images can be prepared at once: what either party has of them in memory stays under a limit."""
    exchanges = exchanges_of(program)
    limit = min(MOST_IMAGES, _CORRELATED_BYTES // (_WORD * max(_kept(exchanges), 1)))
    return next(
        (count for count in range(limit, 1, -1) if max(_ahead(program, exchanges, count)) <= _TOGETHER_BYTES), 1
    )


def largest(program: Program) -> MessageSizes:
    """Return the sizes of a program's longest messages.

    Seeded ciphertexts, replies and keys may be shorter than the words of the clear-text engine, which count as well.
    """
    parameters, exchanges = program.parameters, exchanges_of(program)
    pairs = (_ahead(program, exchanges, count) for count in range(1, max_batch(program) + 1))
    request, reply = (
        max(sizes) for sizes in zip(*pairs, strict=True)
    )  # layers may take more images in fewer ciphertexts
    requests, replies = _images(program)
    numbers = wire.framed_bytes([SERIAL_BYTES * MAX_HELD])
    return MessageSizes(
        keys=message_bytes(parameters, SEAL_SEED_BYTES)[0]
        + len(program.column_steps) * max(key_bytes(parameters, SEAL_SEED_BYTES), _WORD),
        request=max(request, numbers, *requests),
        reply=max(reply, numbers, *replies),
    )


def _kept(exchanges: Mapping[str, Exchange]) -> int:
    """Return the number of values that a server keeps of an image."""
    return sum(sum(exchange.online.server_keeps.values()) for exchange in exchanges.values())


def _ahead(program: Program, exchanges: Mapping[str, Exchange], count: int) -> tuple[int, int]:
    """Return the bytes of the longest request and reply with ciphertexts to prepare ``count`` images at once."""
    pairs = [pair for bundle in offline_batches(program, exchanges, count) for pair in bundle.trips]
    return _longest(program, [*pairs, *_setup(program, exchanges)])


def _setup(program: Program, exchanges: Mapping[str, Exchange]) -> list[tuple[MessageSpec, MessageSpec]]:
    """Return the messages with which oblivious transfers begin, if there are any, and a first stock is made."""
    if not takes_transfers(exchanges):
        return []
    return setup_trips(program.transfers) + (refill_trips(True, True) if program.transfers == "silent" else [])


def _longest(program: Program, pairs: Iterable[tuple[MessageSpec, MessageSpec]]) -> tuple[int, int]:
    """Return the bytes of the longest request and reply."""
    clear = _WORD * program.parameters.ring_degree
    sizes = [max(size, clear) for size in message_bytes(program.parameters, SEAL_SEED_BYTES)]
    framed = [[wire.framed_bytes(turn.sizes(size)) for turn, size in zip(pair, sizes, strict=True)] for pair in pairs]
    request, reply = (max(way, default=0) for way in zip(*framed, strict=True)) if framed else (0, 0)
    return request, reply


def _online(program: Program) -> list[list[tuple[MessageSpec, MessageSpec]]]:
    """Return the server's questions about a prepared image and the client's answers, by stage."""
    return [stage.trips for stage in online_batches(program, exchanges_of(program))]


def _images(program: Program) -> tuple[list[int], list[int]]:
    """Return the bytes of requests and replies of images."""
    t = program.parameters.plain_modulus
    first = wire.framed_bytes([SERIAL_BYTES, packed_size(prod(program.nodes[0].shape), t)])
    asking = [pair for pairs in _online(program) for pair in pairs]
    requests = [first, *(wire.framed_bytes(turn.sizes(0)) for _, turn in asking)]
    replies = [
        *(wire.framed_bytes(turn.sizes(0)) for turn, _ in asking),
        wire.framed_bytes([answer.part_bytes(program)]),
    ]
    return requests, replies
