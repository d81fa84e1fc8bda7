"""Additive shares modulo t: x = x_client + x_server mod t. What each party does alone with its share.

Truncation by f bits (he.md section 3): with y_server = r and y_client = y - r + t as integers, the server takes
floor(r / 2^f) and the client ceil((y_client - t) / 2^f). The sum is floor(y / 2^f), plus 1 with probability
(y mod 2^f) / 2^f: a stochastic rounding, within 1 of the exact quotient. It is wrong only if y - r + t is not in
[0, t): never for masks in [B + 1, t - B] with |y| <= B, with probability at most (|y| + 1) / t for uniform masks.
"""

import numpy as np

from privcirnet.he.program.operations import (
    Add,
    ClientAided,
    Input,
    Linear,
    Operation,
    Product,
    Square,
    SumPool,
    Truncate,
)
from privcirnet.he.program.rearrangement import rearrange
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


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
        case Input() | Linear() | Truncate() | Square() | Product() | ClientAided():
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
