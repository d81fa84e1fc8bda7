"""Entries of a public table at places that are one in shares."""

import numpy as np

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit


@jit
def entries_into(out: Residues, places: Residues, index: Residues, table: Residues) -> None:
    """Write shares of entries, (values,): bit j is the parity of a share of the places under those that have it.

    Args:
        places: shares of the place of each value's one, a power of two of words each, (values, words).
        index: public number of places that it goes on before, (values,).
        table: bit j of the entries of all places, (bits, words).
    """
    words = places.shape[1]
    moved = np.empty(words, np.uint64)
    for i in range(places.shape[0]):
        whole, by = int(index[i] >> np.uint64(6)), index[i] & np.uint64(63)
        for w in range(words):
            low, high = places[i, (w - whole) & (words - 1)], places[i, (w - whole - 1) & (words - 1)]
            moved[w] = (low << by) | ((high >> np.uint64(1)) >> (np.uint64(63) - by))
        entry = np.uint64(0)
        for j in range(table.shape[0]):
            parity = np.uint64(0)
            for w in range(words):
                parity ^= moved[w] & table[j, w]
            for half in (32, 16, 8, 4, 2, 1):
                parity ^= parity >> np.uint64(half)
            entry |= (parity & np.uint64(1)) << np.uint64(j)
        out[i] = entry
