"""Additive shares modulo t: x = x_client + x_server mod t, and each party's work alone on its share.

The server's share of the image is zero, and so is its share of what follows from the image by sums and rearrangement
alone. It is written None.

Truncation by f bits (docs/mathematics.md, "Truncation"): with y_server = r and y_client = y - r + t as integers, the
server takes floor(r / 2^f) and the client ceil((y_client - t) / 2^f). The sum is floor(y / 2^f), plus 1 with
probability (y mod 2^f) / 2^f: a stochastic rounding, within 1 of the exact quotient. It is wrong only if y - r + t is
not in [0, t). For masks in [B + 1, t - B] with |y| <= B that never happens; for uniform masks its probability is at
most (|y| + 1) / t.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.mpc.local.parallel import add, times, truncate_client, truncate_server
from privcirnet.he.program.operation import NO_ROWS, Domain, Node, Weights
from privcirnet.he.program.program import Program
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import SHARE_BYTES, Residues

_LOW_HALF = np.uint64((1 << 32) - 1)


def present(share: Residues | None) -> Residues:
    """Return the server's share of a value of which it must have one; ``share``: residues, or None."""
    if share is None:
        rule, remedy = "an operation must have a share to work on", "export the program again with this version"
        raise RuleError(rule, got="the bare image", remedy=remedy)
    return share


def to_bytes(share: Residues) -> bytes:
    """Return a share as it is handed to the client, :data:`SHARE_BYTES` a value; ``share``: residues of any shape."""
    return share.astype("<u8").tobytes()


def reveal(share: Residues, message: bytes, t: int) -> Values:
    """Return the values of which the client has a share and is sent the other.

    Args:
        share: share of the client, residues of any shape.
        message: message of the server, as :func:`to_bytes` made it.

    Returns:
        integers in (-t / 2, t / 2), of the share's shape.

    Raises:
        RuleError: the message is not a share of that many values.
    """
    return modular.centered(modular.add(share, from_bytes(message, share.shape, t), t), t)


def from_bytes(message: bytes, shape: tuple[int, ...], limit: int) -> Residues:
    """Return the share that :func:`to_bytes` made a message of.

    Args:
        limit: all words must be under it: t, or less where less was sent.
    """
    if len(message) != SHARE_BYTES * math.prod(shape):
        raise RuleError("a share must hold one word a value", got=f"{len(message)} bytes", remedy="send it again")
    share = np.frombuffer(message, dtype="<u8").astype(np.uint64).reshape(shape)
    if (share >= limit).any():
        raise RuleError("a share must be under its modulus", got=int(share.max()), remedy="send it again")
    return share


class _Shares(Domain[Residues | None]):
    """A party's operations on its shares, residues (C, H, W); a server's None is zero."""

    name, remedy = "a party's share", "give the operation an exchange (protocol.schedule)"

    def __init__(self, t: int, *, server: bool) -> None:
        self._t, self._server = t, server

    def move(self, places: Callable[..., np.ndarray], *values: Residues | None) -> Residues | None:
        return places(*map(present, values)) if any(value is not None for value in values) else None

    def add(self, x: Residues | None, y: Residues | None) -> Residues | None:
        if x is None or y is None:
            return y if x is None else x
        return add(x, y, self._t)

    def times(self, x: Residues | None, factor: int) -> Residues | None:
        return None if x is None else times(x, factor, self._t)

    def pool(self, x: Residues | None, window: tuple[int, int]) -> Residues | None:
        return None if x is None else _sum_pool(x, window, self._t)

    def plus(self, x: Residues | None, constants: np.ndarray) -> Residues | None:
        """Return the server alone adds them."""
        share = present(x)
        if not self._server:
            return share
        return modular.add(share, modular.residues(np.broadcast_to(constants, share.shape), self._t), self._t)

    def truncate(self, x: Residues | None, bits: int) -> Residues | None:
        return truncate_server(present(x), bits) if self._server else truncate_client(present(x), bits, self._t)


def local_client(program: Program, node: Node, shares: Sequence[Residues]) -> Residues:
    """Return the client's share of a local node."""
    return present(_Shares(program.parameters.plain_modulus, server=False).visit(node, shares, _UNKNOWN))


def local_server(program: Program, node: Node, server_shares: Mapping[str, Residues | None]) -> Residues | None:
    """Return the server's share of a local node; ``server_shares``: by node."""
    shares, weights = [server_shares[name] for name in node.inputs], program.weights.get(node.name)
    return _Shares(program.parameters.plain_modulus, server=True).visit(node, shares, weights)


_UNKNOWN = Weights(NO_ROWS, np.zeros(1, dtype=np.int64))
"""Weights of any node, for the client."""


def _sum_pool(share: Residues, window: tuple[int, int], t: int) -> Residues:
    """Return sums over windows mod t; :func:`layers.integer.sum_pool` would overflow on residues of up to 60 bits."""
    rows, columns = window
    height, width = share.shape[1] // rows, share.shape[2] // columns
    tiles = share[:, : height * rows, : width * columns].reshape(-1, height, rows, width, columns)
    low, high = (half.sum(axis=(2, 4)) % np.uint64(t) for half in (tiles & _LOW_HALF, tiles >> np.uint64(32)))
    return modular.add(low, modular.multiply(high, np.array((1 << 32) % t, dtype=np.uint64), t), t)
