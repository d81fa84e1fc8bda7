"""The format of ciphertexts and keys on the wire: residues one bit after another, and the lengths that follow from it.

Format: polynomial by polynomial and prime by prime, the residues of all coefficients in ascending order, each in as
many bits as its prime has, the lowest first; zeros fill the last byte. If the second polynomial is pseudorandom, the
32-byte seed that it comes from stands at the end in its place (:mod:`rlwe.kernels.uniform`).

Both parties know every length from the parameters, so nothing else is sent and any other length is refused. No residue
is used before it was checked to be under its prime.

Kept coefficients: a reply of a coefficient encoding leaves out the coefficients of its first polynomial c0 that no
output needs. c0 + c1 s is taken coefficient by coefficient, so the others decrypt without them (Cheetah's "N + n" of
2 N numbers). Both messages of values in a subring do the same (:mod:`layers.subring`).

:mod:`rlwe.kernels.wire_bytes` packs and unpacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from privcirnet.errors import RuleError

Message = bytes | bytearray | memoryview
SEED_BYTES = 32
"""Bytes of the seed that stands for the uniform half of a fresh ciphertext or of a key's digit."""


def packed_bytes(coefficients: int, bits: Iterable[int]) -> int:
    """Return the bytes of some coefficients under all primes.

    Args:
        bits: bits of each prime.
    """
    return -(-coefficients * sum(bits) // 8)


@dataclass(frozen=True)
class WireFormat:
    """Format of a ciphertext's compact bytes.

    Attributes:
        primes: primes of the modulus, in the order of rows.
    """

    primes: tuple[int, ...]
    ring_degree: int

    @property
    def bits(self) -> tuple[int, ...]:
        """Bits of a residue of each prime."""
        return tuple(prime.bit_length() for prime in self.primes)

    def compact_size(self, polynomials: int) -> int:
        """Return the bytes of whole polynomials."""
        return self.coefficients_size(polynomials * self.ring_degree)

    def coefficients_size(self, coefficients: int) -> int:
        """Return the bytes of some coefficients under all primes."""
        return packed_bytes(coefficients, self.bits)

    def seeded_size(self, coefficients: int | None = None) -> int:
        """Return the bytes of two polynomials, the second of which is a seed.

        Args:
            coefficients: number of coefficients of the first that are there; None: all of them.
        """
        return self.coefficients_size(self.ring_degree if coefficients is None else coefficients) + SEED_BYTES


def coefficients(message: Message, bits: tuple[int, ...]) -> int:
    """Return the number of coefficients that are packed in a message.

    Args:
        message: residues in this format.
        bits: bits of a residue of each prime, at least 8 in all.

    Raises:
        RuleError: the length is no whole number of coefficients.
    """
    count = 8 * len(message) // sum(bits)
    if len(message) != packed_bytes(count, bits):
        raise RuleError(
            f"a message must hold {sum(bits)} bits for each coefficient",
            got=f"{len(message)} bytes",
            remedy="use the same parameters on both sides",
        )
    return count


def not_under() -> RuleError:
    """Return the error for a message with a residue that is too large."""
    return RuleError("every residue must be under its prime", got="one that is not", remedy="send it again")


def check_length(message: Message, expected: int, what: str = "a ciphertext") -> None:
    """Raise unless a message has the length that the parameters fix.

    Args:
        expected: bytes.
        what: the message, for the error.

    Raises:
        RuleError: it has another length.
    """
    if len(message) != expected:
        raise RuleError(
            f"{what} must have the length that the parameters fix",
            got=f"{len(message)} bytes where {expected} are due",
            remedy="use the same version and parameters on both sides",
        )


def check_keys_length(message: Message, expected: int) -> None:
    """Raise unless a client's keys are as long as its public key and its switch keys together.

    Args:
        expected: bytes.

    Raises:
        RuleError: they have another length: they are for other rotations, or another engine.
    """
    if len(message) != expected:
        raise RuleError(
            "a client's keys must have the length that the engine and the plan's rotations fix",
            got=f"{len(message)} bytes where {expected} are due",
            remedy="use the same version and engine on both sides, and keys for exactly the program's rotations",
        )
