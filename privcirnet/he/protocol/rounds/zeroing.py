"""Zeroing of shares after their last use: on a server that nobody audits, while a cache still has them.

Their memory serves the next node's share. All shares of an image together are many times a cache.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from privcirnet.he.program.operation import Node
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe


def last_uses(nodes: Iterable[Node]) -> Mapping[str, Sequence[str]]:
    """Return the results whose last use each node is; ``nodes``: a program's nodes, in the order of their turns."""
    last = {name: node.name for node in nodes for name in node.inputs}
    names_by_node = dict[str, list[str]]()
    for name, node in last.items():
        names_by_node.setdefault(node, []).append(name)
    return names_by_node


def forget(shares: dict[str, Residues | None], names: Iterable[str]) -> None:
    """Zero shares and remove them, except those that remaining shares are views of."""
    for name in names:
        share = shares.pop(name)
        if share is not None and any(
            np.may_share_memory(share, remaining) for remaining in shares.values() if remaining is not None
        ):
            shares[name] = share
        else:
            wipe([share])
