"""What hides a reply, by numpy: the same numbers as the kernels' from the same words."""

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import ERROR_BITS, Words, flood_digits, flood_powers


def ternary(count: int, words: Words) -> Residues:
    """Return integers that are uniform in {0, 1, 2}, by rejection: the secret of an encryption, each plus 1.

    Returns:
        shape (count,); of the stream's fields of two bits, lowest first, the first that are not 3.
    """
    kept, shifts = np.empty(0, dtype=np.uint64), np.arange(0, 64, 2, dtype=np.uint64)
    while kept.size < count:
        fields = (words(-(-count // 16))[:, None] >> shifts & np.uint64(3)).reshape(-1)
        kept = np.concatenate([kept, fields[fields < 3]])
    return kept[:count]


def errors(count: int, words: Words) -> Residues:
    """Return errors of a fresh encryption, each plus :data:`ring.sampling.ERROR_BITS`: integers in [0, 42], shape (count,)."""
    drawn, half = words(count), np.uint64((1 << ERROR_BITS) - 1)
    ones = [np.bitwise_count(drawn >> np.uint64(shift) & half) for shift in (0, ERROR_BITS)]
    return ones[0].astype(np.uint64) + np.uint64(ERROR_BITS) - ones[1].astype(np.uint64)


def flood(bits: int, primes: tuple[int, ...], count: int, words: Words) -> Residues:
    """Return sums of three uniform integers of width 2^bits, about zero, as residues.

    Args:
        bits: of the width, at least 1.
        primes: of the modulus, each under 2^61.

    Returns:
        residues of integers under 1.5 2^bits in absolute value, shape (primes, count).
    """
    digits, (powers, offset) = flood_digits(bits, count, words), flood_powers(bits)
    return np.stack([_residues(digits, powers, offset, prime) for prime in primes])


def _residues(digits: Residues, powers: tuple[int, ...], offset: int, prime: int) -> Residues:
    total = np.full(digits.shape[1], -offset % prime, dtype=np.uint64)
    for digit, power in zip(digits, powers, strict=True):
        weight = np.array([power % prime], dtype=np.uint64)
        quotient = modular.constant_quotients(weight, prime)
        total = modular.add(total, modular.multiply_constant(digit, weight, quotient, prime), prime)
    return total
