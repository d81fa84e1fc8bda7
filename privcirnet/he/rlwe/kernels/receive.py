"""From a message to a ciphertext or a digit of a key: its bytes, and the polynomial that its seed stands for."""

import numpy as np

from privcirnet.compiled.jit import jit
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import blake2xb, wire_bytes
from privcirnet.he.rlwe.kernels.blake2xb import Bounds
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, Message, Modulus, not_under

_GOOD, _NOT_UNDER, _REJECTED = 0, 1, 2


def receive(target: Residues, message: Message, kept: Integers, roots: Residues, modulus: Modulus) -> None:
    """Read a seeded ciphertext or a key digit.

    Args:
        target: written, residues, shape (2, L, n).
        message: coefficients of the first polynomial in compact bytes, then the seed of the second, of the length that
            the modulus and the kept coefficients fix.
        kept: ascending places of these coefficients; the others are zero.
        roots: of the seed, for L n words (:func:`blake2xb.roots`).
        modulus: L primes.

    Raises:
        RuleError: a residue is not under its prime.
    """
    size = len(message) - SEED_BYTES
    # One more word than the residues fill: unpacking reads two neighbours for each.
    packed, widths = np.frombuffer(message, dtype=np.uint64, count=-(-size // 8) + 1), np.array(modulus.widths)
    result = _receive(target, packed, kept, roots, blake2xb.bounds(modulus.primes), 8 * widths)
    if result == _NOT_UNDER:
        raise not_under()
    if result == _REJECTED:
        target[1] = blake2xb.expand([bytes(message[size:])], modulus.primes, modulus.ring_degree)[0]


def expanded(seed: bytes, modulus: Modulus) -> Residues:
    """Return the uniform polynomial that a seed stands for, shape (L, n).

    Args:
        seed: 64 bytes.
        modulus: L primes.
    """
    found = np.empty((len(modulus.primes), modulus.ring_degree), dtype=np.uint64)
    (roots,) = blake2xb.roots([seed], found.size)
    if uniform(found, roots, blake2xb.bounds(modulus.primes)):
        return found
    return blake2xb.expand([seed], modulus.primes, modulus.ring_degree)[0]


@jit
def _receive(
    target: Residues, packed: Residues, kept: Integers, roots: Residues, bounds: Bounds, bits: Integers
) -> int:
    """:func:`receive` but for the words that SEAL rejects."""
    if not unpack(target[0], packed, kept, bounds.primes, bits):
        return _NOT_UNDER
    return _GOOD if uniform(target[1], roots, bounds) else _REJECTED


@jit
def uniform(target: Residues, roots: Residues, bounds: Bounds) -> bool:
    """Make the uniform polynomial that a seed stands for.

    Args:
        target: written, residues, shape (L, n).
        roots: of the seed, for L n words (:func:`blake2xb.roots`).
        bounds: of the L primes.

    Returns:
        False if more words were rejected than the buffers have to spare: :func:`blake2xb.expand` makes it then.
    """
    made, words = np.empty((roots.shape[0], blake2xb.BUFFER), dtype=np.uint64), target.reshape(-1)
    blake2xb.blocks(made, roots, blake2xb.START)
    flat = made.reshape(-1)
    for i in range(words.size):
        words[i] = flat[i]
    return blake2xb.reduce(target, bounds, flat[words.size :])


@jit
def unpack(polynomial: Residues, packed: Residues, kept: Integers, primes: Residues, bits: Integers) -> bool:
    """Read some coefficients of a polynomial.

    Args:
        polynomial: written, residues, shape (L, n); those that are not there become zero.
        packed: compact bytes in 64-bit words, and one word more.
        kept: ascending places of the coefficients that are there.
        primes: shape (L,).
        bits: of a packed residue of each prime, 8 to 64.

    Returns:
        False if a residue is not under its prime.
    """
    if kept.size == polynomial.shape[1]:
        return wire_bytes.unpack_into(polynomial, packed, primes, bits)
    some = np.empty((primes.size, kept.size), dtype=np.uint64)
    under = wire_bytes.unpack_into(some, packed, primes, bits)
    polynomial[:] = 0
    for limb in range(primes.size):
        for i in range(kept.size):
            polynomial[limb, kept[i]] = some[limb, i]
    return under
