"""The memory that a session takes at either party, from the public description alone, and the most that a client gives.

A party has in memory what it keeps of the images that it prepares; what it works on at a time
(:meth:`protocol.rounds.exchange.Exchange.working_bytes`), with the pieces of one node, or later one image's as bytes;
and meanwhile an image, with what was kept of it and the messages of a stage. What a server computes one reply with is
the process's, and not a session's.
"""

from collections.abc import Mapping
from math import prod

from privcirnet.errors import RuleError
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing.message_sizes import keys_in_memory, max_batch, rotation_key_bytes
from privcirnet.he.protocol.rounds.exchange import Exchange
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.protocol.rounds.message_batches import OnlineBatch, offline_batches, online_batches
from privcirnet.he.protocol.rounds.transfers import transfers_bytes
from privcirnet.he.system.process import machine_bytes

_WORD = 8
_MAKING_KEYS = 6
"""Times their bytes that a client has in memory while it makes Galois keys."""
_ONLINE_BYTES = 160
"""Bytes for a value that an exact step takes with an image, and more than other nodes need."""
_PART = 2
"""A server's description may ask a client for this part of its memory: half of it."""


def session_in_memory(program: Program) -> int:
    """Return the most bytes that one client's session takes at the server: its keys, and what images take."""
    exchanges = exchanges_of(program)
    value_counts = {name: sum(exchange.online.server_keeps.values()) for name, exchange in exchanges.items()}
    return keys_in_memory(program) + _images(program, exchanges, value_counts)


def client_in_memory(program: Program) -> int:
    """Return the most bytes that a session takes at the client, beside its process."""
    exchanges = exchanges_of(program)
    value_counts = {name: sum(exchange.online.client_keeps.values()) for name, exchange in exchanges.items()}
    return max(_MAKING_KEYS * rotation_key_bytes(program), _images(program, exchanges, value_counts))


def check_description(program: Program) -> None:
    """Raise unless a client has the memory that another party's description asks it for.

    Raises:
        RuleError: it is more than half of what this process may take.
    """
    needed, limit = client_in_memory(program), machine_bytes() // _PART
    if needed > limit:
        rule = "a server's program must leave its client half of the memory"
        remedy = "do not use this server, or use a machine or a container with more memory"
        raise RuleError(rule, got=f"{needed / 1e9:.1f} GB where {limit / 1e9:.1f} GB are half", remedy=remedy)


def _images(program: Program, exchanges: Mapping[str, Exchange], value_counts: Mapping[str, int]) -> int:
    """Return the bytes that images take at a party, and what they are prepared with.

    Args:
        value_counts: values that the party keeps of an image, by node.
    """
    count, image = max_batch(program), _WORD * sum(value_counts.values())
    shares = _WORD * sum(prod(node.shape) for node in program.nodes)
    working = max(
        (batch.working_bytes(program.parameters) for batch in offline_batches(program, exchanges, count)), default=0
    )
    answering = max((_answering(stage) for stage in online_batches(program, exchanges) if stage.nodes), default=0)
    written, in_pieces = image, _WORD * max(value_counts.values(), default=0)
    preparing = count * (image + shares) + max(written, in_pieces + working)
    return transfers_bytes(program, exchanges, count) + preparing + image + shares + answering


def _answering(stage: OnlineBatch) -> int:
    """Return the bytes that a party works on in the turns of a stage with an image, its messages included."""
    sizes = [sum(turn.octets) for trip in stage.trips for turn in trip]
    return _ONLINE_BYTES * sum(prod(node.shape) for node in stage.nodes) + 2 * sum(sizes)
