"""Reading of a client's keys and ciphertexts: lengths and residues are checked before anything computes on them."""

from collections.abc import Collection, Mapping

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks.context import Context, Names
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.key_names import check_held
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.threads import each

Keys = Mapping[int, Residues]
"""Keys by name (:mod:`rlwe.key_names`): D inputs of products, shape (chunks, D, 2, CHUNK)."""


def load_keys(context: Context, message: Message, names: Names) -> Keys:
    """Return a client's keys, checked.

    Args:
        message: result of :meth:`CkksClient.evaluation_keys`.

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
    tasks = [(*chain, message[first:end]) for chain, first, end in zip(chains.values(), ends, ends[1:], strict=False)]
    loaded = each(lambda task: switch_keys.load(task[0], task[1], bytes(task[2])), tasks)
    return dict(zip(chains, loaded, strict=True))


def check_keys(context: Context, names: Collection[int], level: int, keys: Keys) -> None:
    """Raise unless there is a key of every name for a level.

    Raises:
        RuleError: a key is missing, or is for lower levels.
    """
    rows = level + 1 + context.chain.special
    available = [name for name, key in keys.items() if len(key) >= rows * context.ring.chunks]
    check_held(names, available, f" at level {level}")
