"""Names of switch keys, the same in both schemes.

The key of an automorphism X -> X^g is named by its Galois element g, which is odd and under 2n; other keys have even
names. A key for the first data primes alone, with fewer special primes, is named :data:`LOW` more.
"""

from collections.abc import Collection, Sequence

from privcirnet.errors import RuleError

RELINEARIZATION = 0
"""Name of the key for products of ciphertexts."""

EPHEMERAL = FROM_EPHEMERAL, TO_EPHEMERAL = 2, 4
"""Names of the keys from the sparse secret of bootstrapping, and to it."""

LOW = 1 << 20


def is_low(name: int) -> bool:
    """Return whether a key is one for the first data primes alone."""
    return name >= LOW


def galois_element(step: int, ring_degree: int, base: int = 3) -> int:
    """Return the Galois element of a rotation to the left.

    Args:
        step: columns of BFV's rows, or slots of CKKS.
        base: number whose powers are the exponents of neighbouring slots: 3 in BFV, 5 in CKKS.
    """
    return pow(base, step, 2 * ring_degree)


def conjugation_element(ring_degree: int) -> int:
    """Return the Galois element of X -> 1 / X: it exchanges BFV's rows, and conjugates the slots of CKKS."""
    return 2 * ring_degree - 1


def check_held(names: Collection[int], available: Collection[int], where: str = "") -> None:
    """Raise unless there is a key of every name.

    Args:
        available: names of the keys that there are.
        where: place where they are needed, for the message.

    Raises:
        RuleError: a key is missing.
    """
    if missing := sorted(set(names) - set(available)):
        raise missing_key(missing, where)


def missing_key(names: Sequence[int], where: str = "") -> RuleError:
    """Return the error for keys that are not there."""
    got, remedy = f"none for the Galois elements {[*names]}{where}", "make keys for the circuit's rotations"
    return RuleError("every rotation must have a key", got=got, remedy=remedy)
