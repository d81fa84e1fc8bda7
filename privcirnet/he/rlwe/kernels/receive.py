"""Reading of a ciphertext or a key digit: its bytes, and the polynomial that its seed stands for."""

import numpy as np

from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import uniform, wire_bytes
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, Message, WireFormat, not_under
from privcirnet.he.system.jit import jit


def receive(target: Residues, message: Message, sent: Integers, modulus: WireFormat) -> None:
    """Read a seeded ciphertext or a key digit.

    Args:
        target: written, residues, shape (2, L, n).
        message: coefficients of the first polynomial in compact bytes, then the seed of the second, of the length that
            the modulus and the kept coefficients fix.
        sent: ascending places of these coefficients; the others are zero.
        modulus: L primes.

    Raises:
        RuleError: a residue is not under its prime.
    """
    size = len(message) - SEED_BYTES
    # One more word than the residues fill: unpacking reads two neighbours for each.
    packed, widths = np.frombuffer(message, dtype=np.uint64, count=-(-size // 8) + 1), np.array(modulus.widths)
    bounds = uniform.bounds(modulus.primes)
    if not unpack(target[0], packed, sent, bounds.primes, 8 * widths):
        raise not_under()
    uniform.fill(target[1], bytes(message[size:]), bounds)


@jit
def unpack(polynomial: Residues, packed: Residues, sent: Integers, primes: Residues, bits: Integers) -> bool:
    """Read some coefficients of a polynomial.

    Args:
        polynomial: written, residues, shape (L, n); those that are not there become zero.
        packed: compact bytes in 64-bit words, and one word more.
        sent: ascending places of the coefficients that are there.
        primes: shape (L,).
        bits: width of a packed residue of each prime, 8 to 64.

    Returns:
        False if a residue is not under its prime.
    """
    if sent.size == polynomial.shape[1]:
        return wire_bytes.unpack_into(polynomial, packed, primes, bits)
    some = np.empty((primes.size, sent.size), dtype=np.uint64)
    under = wire_bytes.unpack_into(some, packed, primes, bits)
    polynomial[:] = 0
    for limb in range(primes.size):
        for i in range(sent.size):
            polynomial[limb, sent[i]] = some[limb, i]
    return under
