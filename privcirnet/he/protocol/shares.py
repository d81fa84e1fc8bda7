"""Additive shares modulo t: x = x_client + x_server mod t. What each party does alone with its share.

Truncation by f bits (he.md section 3): with y_server = r and y_client = y - r + t as integers, the server takes
floor(r / 2^f) and the client ceil((y_client - t) / 2^f). The sum is floor(y / 2^f), plus 1 with probability
(y mod 2^f) / 2^f: a stochastic rounding, within 1 of the exact quotient. It is wrong only if y - r + t is not in
[0, t): never for masks in [B + 1, t - B] with |y| <= B, with probability at most (|y| + 1) / t for uniform masks.
"""

import os

import numpy as np

from privcirnet.he.program.program import (
    Add,
    Input,
    Linear,
    Operation,
    Product,
    Revealed,
    Square,
    SumPool,
    Truncate,
    rearrange,
)
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.threads import each, ranges

_AT_ONCE = 1 << 14
"""Values that a thread draws at a time."""


def uniform(shape: tuple[int, ...], t: int) -> Residues:
    """Uniform residues mod t from the operating system's generator, by rejection: no modulo bias."""
    count = int(np.prod(shape, dtype=np.int64))
    found = np.empty(count, dtype=np.uint64)

    def fill(part: range) -> None:
        found[part.start : part.stop] = _uniform(len(part), t)

    each(fill, ranges(count, _AT_ONCE))
    return found.reshape(shape)


def _uniform(count: int, t: int) -> Residues:
    limit, width = np.uint64((1 << t.bit_length()) - 1), -(-t.bit_length() // 8)
    kept = np.empty(0, dtype=np.uint64)
    while kept.size < count:
        wanted = count - kept.size + 64
        octets = np.zeros((wanted, 8), dtype=np.uint8)
        octets[:, :width] = np.frombuffer(os.urandom(wanted * width), dtype=np.uint8).reshape(wanted, width)
        drawn = octets.view("<u8")[:, 0].astype(np.uint64) & limit
        kept = np.concatenate([kept, drawn[drawn < t]])
    return kept[:count]


def bounded(shape: tuple[int, ...], bound: int, t: int) -> Residues:
    """Uniform in [bound + 1, t - bound], bound at least 1: as a mask of |y| <= bound it cannot wrap."""
    bound = max(bound, 1)
    return uniform(shape, t - 2 * bound) + np.uint64(bound + 1)


def truncate_server(share: Residues, bits: int) -> Residues:
    """The server's part of a truncation: floor(share / 2^bits)."""
    return share >> np.uint64(bits)


def truncate_client(share: Residues, bits: int, t: int) -> Residues:
    """The client's part: ceil((share - t) / 2^bits) = -floor((t - share) / 2^bits), mod t."""
    return modular.subtract(np.zeros_like(share), (np.uint64(t) - share) >> np.uint64(bits), t)


def local(operation: Operation, arguments: list[Residues], t: int) -> Residues:
    """Sums and new places, which both parties do alike, without communication."""
    match operation:
        case Add():
            return modular.add(arguments[0], arguments[1], t)
        case SumPool(kernel):
            return _sum_pool(arguments[0], kernel, t)
        case Input() | Linear() | Truncate() | Square() | Product() | Revealed():
            raise AssertionError(f"{operation} is not local")
        case _:
            return rearrange(operation, arguments[0])


def _sum_pool(share: Residues, kernel: int, t: int) -> Residues:
    height, width = share.shape[1] // kernel * kernel, share.shape[2] // kernel * kernel
    total = np.zeros((share.shape[0], height // kernel, width // kernel), dtype=np.uint64)
    for i in range(kernel):
        for j in range(kernel):
            total = modular.add(total, share[:, i:height:kernel, j:width:kernel], t)
    return total
