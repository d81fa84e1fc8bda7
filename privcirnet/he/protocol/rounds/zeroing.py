"""Zeroes shares after their last use: on a server that nobody audits, while a cache still has them.

Their memory serves the next node's share. All shares of an image together are many times a cache.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from privcirnet.he.program.operation import Node
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.wipe import wipe


def last_uses(nodes: Iterable[Node]) -> Mapping[str, Sequence[str]]:
    """Return by node whose results are not needed after it; ``nodes``: a program's, in the order of their turns."""
    last = {name: node.name for node in nodes for name in node.inputs}
    found = dict[str, list[str]]()
    for name, node in last.items():
        found.setdefault(node, []).append(name)
    return found


def forget(held: dict[str, Residues | None], names: Iterable[str]) -> None:
    """Zero shares and remove them, but for those that others are views of."""
    for name in names:
        share = held.pop(name)
        if share is not None and any(np.may_share_memory(share, other) for other in held.values() if other is not None):
            held[name] = share
        else:
            wipe([share])
