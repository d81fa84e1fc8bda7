"""ModRaise: a ciphertext of level 0 read modulo the whole chain."""

import numpy as np

from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.received import Keys, check_keys
from privcirnet.he.ring.kernels import base_conversion as conversion
from privcirnet.he.ring.kernels import ntt
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.chain import ModulusChain
from privcirnet.he.rlwe.key_names import FROM_EPHEMERAL, TO_EPHEMERAL, check_held
from privcirnet.he.system.threads import each


def raised(context: Context, low: Residues, keys: Keys) -> Residues:
    """Return a ciphertext at the top level, whose polynomial is that of level 0 plus a multiple of q_0.

    Args:
        low: shape (2, 1, n).

    Returns:
        shape (2, L + 1, n).

    Raises:
        RuleError: the parameters have an ephemeral secret, and there are no keys to it and from it.
    """
    if not context.parameters.ephemeral_weight:
        return _lifted(context, low)
    check_keys(context, {FROM_EPHEMERAL}, context.parameters.levels, keys)
    check_held({TO_EPHEMERAL}, keys)
    lifted = _lifted(context, _switched(context.ephemeral, low, keys[TO_EPHEMERAL]))
    return _switched(context.chain, lifted, keys[FROM_EPHEMERAL])


def _lifted(context: Context, low: Residues) -> Residues:
    """Lift polynomials mod q_0, as numbers in [-q_0/2, q_0/2), to all data primes, shape (polynomials, L + 1, n)."""
    (count, _, n), primes = low.shape, context.parameters.data_primes
    constants = conversion.base_conversion(primes[:1], primes)
    lifted, low = np.empty((count, len(primes), n), dtype=np.uint64), low.copy()
    scaled, multiples = np.empty_like(low), np.empty((count, n), dtype=np.int64)

    def row(task: tuple[int, int]) -> None:
        half, i = task
        conversion.convert(lifted[half, i], scaled[half], multiples[half], constants, i)
        ntt.forward(lifted[half, i : i + 1], context.ring.tables, i)

    for half in range(count):
        ntt.inverse(low[half], context.ring.tables, 0)
        conversion.scale(scaled[half], multiples[half], low[half], constants)
    each(row, [(half, i) for half in range(count) for i in range(len(primes))])
    return lifted


def _switched(chain: ModulusChain, residues: Residues, key: Residues) -> Residues:
    """Switch a ciphertext to another secret."""
    switched = chain.switched(chain.digits(residues[1]), key)
    switched[0] = chain.added(switched[0], residues[0])
    return switched
