"""From a client's bytes to keys and ciphertexts: lengths and residues are checked before anything computes on them."""

from collections.abc import Collection, Mapping

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.engines.kernels import blake2xb, operands, wire_bytes
from privcirnet.he.engines.wire_bytes import Message, check_length
from privcirnet.he.leveled.ckks.context import Context
from privcirnet.he.params.sizes import SEED_BYTES
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.threads import each

RELINEARIZATION = None
"""Among the keys: the one for products of ciphertexts."""

Keys = Mapping[int | None, Residues]
"""Rotation step, or :data:`RELINEARIZATION`, -> D inputs of products, shape (chunks, D, 2, CHUNK)."""


def load_keys(context: Context, message: Message, steps: Collection[int]) -> Keys:
    """Return a client's keys, checked.

    Args:
        context: of the parameters.
        message: what :meth:`CkksClient.evaluation_keys` returned.
        steps: that it was made with.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    size, names = context.parameters.key_message_bytes, [RELINEARIZATION, *sorted(steps)]
    if len(message) != size * len(names):
        raise RuleError(
            "evaluation keys must have the length that the parameters and rotations fix",
            got=f"{len(message)} bytes where {size * len(names)} are due",
            remedy="send keys for exactly the circuit's rotations",
        )
    parts = [message[i * size : (i + 1) * size] for i in range(len(names))]
    return dict(zip(names, each(lambda part: _key(context, part), parts), strict=True))


def load(context: Context, message: Message, first: int, rows: int) -> Residues:
    """Return a seeded ciphertext under some of the primes, checked, shape (2, rows, n).

    Args:
        context: of the parameters.
        message: its compact bytes, then the seed.
        first: prime, by its row.
        rows: how many primes.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    primes, n = context.ring.primes[first : first + rows], context.parameters.ring_degree
    widths = context.modulus().widths[first : first + rows]
    check_length(message, n * sum(widths) + SEED_BYTES)
    body, seed = message[:-SEED_BYTES], bytes(message[-SEED_BYTES:])
    return np.stack([wire_bytes.unpack(body, primes, widths), blake2xb.expand([seed], primes, n)[0]])


def check_keys(steps: Collection[int], keys: Keys) -> None:
    """Raise unless there is a key for every step.

    Args:
        steps: rotations, 0 for the conjugation.
        keys: the client's.

    Raises:
        RuleError: one is missing.
    """
    if missing := sorted(set(steps) - set(keys)):
        remedy = "make keys for the circuit's steps"
        raise RuleError("every rotation must have a key", got=f"none for steps {missing}", remedy=remedy)


def _key(context: Context, message: Message) -> Residues:
    """A key's digits as inputs of products, (chunks, D, 2, CHUNK)."""
    digits = len(context.parameters.digits(context.parameters.levels))
    size, found = len(message) // digits, context.ring.inputs(digits)
    for digit in range(digits):
        residues = load(context, message[digit * size : (digit + 1) * size], 0, len(context.ring.primes))
        operands.place(found, digit, context.ring.split(residues))
    return found
