"""The sparse code of silent transfers: rows of a seed at public random places, added to each row."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from privcirnet.he.mpc.kernels import aes
from privcirnet.he.mpc.kernels.blocks import swapped
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit

# Numba has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportCallIssue=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false

LOCALITY = 10
"""Rows of the seed in each row of the code."""


@jit
def encode(rows: Residues, seed: Residues, first: int, cipher: aes.Aes) -> None:
    """Add ten rows of a seed to each row.

    The places are a stream of AES in counter mode, 32 bits each, of which the lowest count.

    Args:
        rows: changed, (rows, 2).
        seed: (a power of two, 2).
        first: number of the first row, even.
        cipher: its key is that of the code.
    """
    size = aes.room(cipher)
    counters, step, last = np.empty(2 * size, np.uint64), 4 * size // LOCALITY, np.uint64(seed.shape[0] - 1)
    places = counters.view(np.uint32)
    for start in range(0, rows.shape[0], step):
        some, block = rows[start : start + step], (first + start) * LOCALITY // 4
        for i in range(size):
            counters[2 * i], counters[2 * i + 1] = np.uint64(0), swapped(np.uint64(block + i))
        aes.encrypt(cipher, counters, size)
        for i in range(some.shape[0]):
            _add(some, i, seed, places, last)


@intrinsic
def _add(typing, rows, i, seed, places, last):
    """Add rows of a seed to a row, both words of one at once; ``last``: a mask."""

    def emit(context, builder, signature, arguments):
        _, row, _, _, mask = arguments
        block, word = ir.VectorType(ir.IntType(64), 2), ir.IntType(64)
        arrays = {j: context.make_array(signature.args[j])(context, builder, arguments[j]).data for j in (0, 2, 3)}
        target, table = (builder.bitcast(arrays[j], block.as_pointer()) for j in (0, 2))
        place = builder.gep(arrays[3], [builder.mul(row, word(LOCALITY))])
        target = builder.gep(target, [row])
        total = builder.load(target, align=8)
        for j in range(LOCALITY):
            index = builder.zext(builder.load(builder.gep(place, [word(j)])), word)
            total = builder.xor(total, builder.load(builder.gep(table, [builder.and_(index, mask)]), align=8))
        builder.store(total, target, align=8)
        return context.get_dummy_value()

    return types.void(rows, types.intp, seed, places, types.uint64), emit
