"""Numbers mod m from keys."""

from privcirnet.he.ring.kernels.arithmetic import Word, barrett_lazy, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit


@jit
def residues_into(out: Residues, keys: Residues, m: Word, word: Residues, unit: Residues) -> None:
    """Write keys of 128 bits mod m, (values,) of (values, 2).

    Args:
        word: 2^64 mod m with its quotient.
        unit: 1 with its quotient.
    """
    for i in range(out.shape[0]):
        high = reduce_4p(mul_shoup_lazy(keys[i, 1], word[0], word[1], m), m)
        low = reduce_4p(barrett_lazy(keys[i, 0], unit[1], m), m)
        out[i] = sub_if_ge(high + low, m)
