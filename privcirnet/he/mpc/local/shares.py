"""Additive shares modulo t: x = x_client + x_server mod t. What each party does alone with its share.

The server's share of the image is zero, and so is its share of what follows from the image by sums and rearrangement
alone or was computed by the client. It is written None.

Truncation by f bits (docs/mathematics.md, "Truncation"): with y_server = r and y_client = y - r + t as integers, the
server takes floor(r / 2^f) and the client ceil((y_client - t) / 2^f). The sum is floor(y / 2^f), plus 1 with
probability (y mod 2^f) / 2^f: a stochastic rounding, within 1 of the exact quotient. It is wrong only if y - r + t is
not in [0, t). For masks in [B + 1, t - B] with |y| <= B that never happens; for uniform masks its probability is at
most (|y| + 1) / t.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.mpc.local.elementwise import add, scale, truncate_client, truncate_server
from privcirnet.he.program import operations as op
from privcirnet.he.program.interpreter import spread
from privcirnet.he.program.program import Node, Program
from privcirnet.he.program.rearrangement import rearrange
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.schemes.bfv.sizes import SHARE_BYTES


def present(share: Residues | None) -> Residues:
    """Return the server's share of a value of which it must have one.

    Args:
        share: residues, or None.
    """
    assert share is not None, "validate.check lets no other operation work on a share of the bare image"
    return share


def to_bytes(share: Residues) -> bytes:
    """Return a share as it is handed to the client, :data:`SHARE_BYTES` a value.

    Args:
        share: residues of any shape.
    """
    return share.astype("<u8").tobytes()


def reveal(share: Residues, message: bytes, t: int) -> Values:
    """Return the values of which the client has a share and is sent the other.

    Args:
        share: the client's, residues of any shape.
        message: the server's, as :func:`to_bytes` made it.

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

    Raises:
        RuleError: the message is not such a share.
    """
    if len(message) != SHARE_BYTES * math.prod(shape):
        raise RuleError("a share must hold one word a value", got=f"{len(message)} bytes", remedy="send it again")
    share = np.frombuffer(message, dtype="<u8").astype(np.uint64).reshape(shape)
    if (share >= limit).any():
        raise RuleError("a share must be under its modulus", got=int(share.max()), remedy="send it again")
    return share


def local_client(operation: op.Operation, shares: Sequence[Residues], t: int) -> Residues:
    """Return the client's share of a local operation's result."""
    if isinstance(operation, op.Truncate):
        return truncate_client(shares[0], operation.bits, t)
    return local(operation, shares, t)


def local_server(
    operation: op.Operation, shares: Sequence[Residues | None], constants: Integers | None, t: int
) -> Residues | None:
    """Return the server's share of a local operation's result.

    Args:
        constants: int64, (C,) or (C, T), added to the result by the server alone; None without.
    """
    if isinstance(operation, op.Truncate):
        return truncate_server(present(shares[0]), operation.bits)
    known = [share for share in shares if share is not None]
    if not known:
        assert constants is None, "constants are added to a share"
        return None
    zero = np.zeros_like(known[0])
    result = local(operation, [zero if share is None else share for share in shares], t)
    return result if constants is None else modular.add(result, modular.residues(spread(constants), t), t)


def step_server(program: Program, node: Node, held: Mapping[str, Residues | None]) -> Residues | None:
    """Return the server's share of a local node.

    Args:
        node: one of its nodes that takes no round.
    """
    constants = program.weights[node.name].bias if op.has_weights(node.operation) else None
    arguments = [held[name] for name in node.inputs]
    return local_server(node.operation, arguments, constants, program.parameters.plain_modulus)


def local(operation: op.Operation, shares: Sequence[Residues], t: int) -> Residues:
    """Return a share of a sum, a power of two or a rearrangement, which both parties compute alike.

    Args:
        shares: of the inputs, residues (C, H, W) each.
    """
    match operation:
        case op.Add():
            return add(shares[0], shares[1], t)
        case op.Scale(bits):
            return scale(shares[0], bits, t)
        case op.Concat():
            return np.concatenate(shares)
        case op.SumPool(kernel):
            return _sum_pool(shares[0], kernel, t)
        case op.Flatten() | op.Tokens() | op.Take() | op.Channels() | op.Transpose() | op.Gather():
            return rearrange(operation, shares[0])
        case _:
            raise AssertionError(f"{operation} is not local")


def _sum_pool(share: Residues, kernel: int, t: int) -> Residues:
    """Sums over windows mod t: :func:`layers.integer.sum_pool` would overflow, as residues have up to 60 of 64 bits."""
    height, width = share.shape[1] // kernel * kernel, share.shape[2] // kernel * kernel
    total = np.zeros((share.shape[0], height // kernel, width // kernel), dtype=np.uint64)
    for i in range(kernel):
        for j in range(kernel):
            total = modular.add(total, share[:, i:height:kernel, j:width:kernel], t)
    return total
