"""From a client's bytes to keys and ciphertexts: lengths and residues are checked before anything computes on them."""

from collections.abc import Collection, Mapping

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.engines import switch_keys
from privcirnet.he.engines.kernels import blake2xb, wire_bytes
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
    level, names = len(context.parameters.data_primes), [RELINEARIZATION, *sorted(steps)]
    size = switch_keys.key_size(context.chain, level)
    if len(message) != size * len(names):
        raise RuleError(
            "evaluation keys must have the length that the parameters and rotations fix",
            got=f"{len(message)} bytes where {size * len(names)} are due",
            remedy="send keys for exactly the circuit's rotations",
        )
    parts = [message[i * size : (i + 1) * size] for i in range(len(names))]
    return dict(zip(names, each(lambda part: switch_keys.load(context.chain, level, bytes(part)), parts), strict=True))


def load(context: Context, message: Message, level: int) -> Residues:
    """Return a seeded ciphertext, checked, shape (2, level + 1, n).

    Args:
        context: of the parameters.
        message: its compact bytes, then the seed.
        level: of the ciphertext.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    modulus = context.modulus(level)
    check_length(message, modulus.compact_size(1) + SEED_BYTES)
    body, seed = message[:-SEED_BYTES], bytes(message[-SEED_BYTES:])
    first = wire_bytes.unpack(body, modulus.primes, modulus.widths)
    return np.stack([first, blake2xb.expand([seed], modulus.primes, modulus.ring_degree)[0]])


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
