"""From a message to a ciphertext: its bytes, the polynomial that its seed stands for, the server's own share."""

import numpy as np

from privcirnet.he.kernels import plain, seeds, words
from privcirnet.he.kernels.jit import jit
from privcirnet.he.kernels.plain import Plain
from privcirnet.he.kernels.seeds import Bounds
from privcirnet.he.modular import Integers, Residues
from privcirnet.he.params import SEED_BYTES
from privcirnet.he.sealfile import Modulus

_GOOD, _NOT_UNDER, _REJECTED = 0, 1, 2


def receive(target: Residues, message: bytes, roots: Residues, modulus: Modulus, addend: Residues, form: Plain) -> None:
    """A seeded ciphertext, plus a plaintext, or a key digit.

    Args:
        target: written, residues (2, L, n).
        message: the first polynomial in compact bytes, then the seed of the second.
        roots: of the seed, for L n words.
        modulus: L primes.
        addend: the plaintext's slots, (n,), or none, (0,).
        form: of the plaintext.

    Raises:
        RuleError: a residue is not under its prime.
    """
    size = len(message) - SEED_BYTES
    # One more word than the residues fill: unpacking reads two neighbours for each.
    packed, widths = np.frombuffer(message, dtype=np.uint64, count=size // 8 + 1), np.array(modulus.widths)
    result = _receive(target, packed, roots, seeds.bounds(modulus.primes), 8 * widths, addend, form)
    if result == _NOT_UNDER:
        raise words.not_under()
    if result == _REJECTED:
        target[1] = seeds.expand([message[size:]], modulus.primes, modulus.ring_degree)[0]


@jit
def _receive(  # noqa: PLR0913, PLR0917
    target: Residues, packed: Residues, roots: Residues, bounds: Bounds, bits: Integers, addend: Residues, form: Plain
) -> int:
    """:func:`receive` but for the words that SEAL rejects."""
    if not words.unpack_into(target[0], packed, bounds.primes, bits):
        return _NOT_UNDER
    if addend.size:
        plain.add(target[0], addend, form)
    made, uniform = np.empty((roots.shape[0], seeds.BUFFER), dtype=np.uint64), target[1].reshape(-1)
    seeds.blocks(made, roots, seeds.START)
    flat = made.reshape(-1)
    for i in range(uniform.size):
        uniform[i] = flat[i]
    return _GOOD if seeds.reduce(target[1], bounds, flat[uniform.size :]) else _REJECTED
