"""From a client's bytes to keys and ciphertexts: lengths and residues are checked before anything computes on them."""

from collections.abc import Collection, Mapping

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.schemes.ckks.context import Context, Names
from privcirnet.he.system.threads import each

Keys = Mapping[int, Residues]
"""Name of a key (:mod:`schemes.ckks.context`) -> D inputs of products, shape (chunks, D, 2, CHUNK)."""


def load_keys(context: Context, message: Message, names: Names) -> Keys:
    """Return a client's keys, checked.

    Args:
        message: what :meth:`CkksClient.evaluation_keys` returned.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    chains = {name: context.key_chain(name, level) for name, level in context.named(names).items()}
    sizes = [chain.parameters.key_bytes(count) for chain, count in chains.values()]
    if len(message) != sum(sizes):
        raise RuleError(
            "evaluation keys must have the length that the parameters and rotations fix",
            got=f"{len(message)} bytes where {sum(sizes)} are due",
            remedy="send keys for exactly the circuit's rotations",
        )
    ends = np.cumsum([0, *sizes]).tolist()
    tasks = [(*each, message[first:end]) for each, first, end in zip(chains.values(), ends, ends[1:], strict=False)]
    loaded = each(lambda task: switch_keys.load(task[0], task[1], bytes(task[2])), tasks)
    return dict(zip(chains, loaded, strict=True))


def check_keys(context: Context, names: Collection[int], level: int, keys: Keys) -> None:
    """Raise unless there is a key of every name for a level.

    Raises:
        RuleError: one is missing, or is for lower levels.
    """
    rows = level + 1 + context.chain.special
    check_held(names, {name: key for name, key in keys.items() if len(key) >= rows * context.ring.chunks}, level)


def check_held(names: Collection[int], keys: Collection[int], level: int = 0) -> None:
    """Raise unless there is a key of every name.

    Args:
        keys: that there are, by name.
        level: that they are to be used at, for the message.

    Raises:
        RuleError: one is missing.
    """
    if missing := sorted(set(names) - set(keys)):
        remedy = "make keys for the circuit's steps"
        got = f"none for steps {missing} at level {level}"
        raise RuleError("every rotation must have a key", got=got, remedy=remedy)
