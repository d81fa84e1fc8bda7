"""Parameters that BFV and CKKS share: a ring, data primes, special primes, digits; and the sizes that follow from them.

Order of rows, in memory and on the wire: data primes first, of which the last are dropped first, then special primes.
"""

from dataclasses import dataclass
from functools import cached_property

from privcirnet.he.rlwe.wire_bytes import WireFormat


@dataclass(frozen=True)
class RlweParameters:
    """Parameters of ring learning with errors; each scheme checks that its own are secure (:mod:`rlwe.security`).

    Attributes:
        ring_degree: n, a power of two.
        data_primes: primes of ciphertexts; those that are dropped first stand last.
        special_primes: primes whose product P is about as large as that of any digit, or larger.
        digit_primes: data primes in a digit of key switching.
    """

    ring_degree: int
    data_primes: tuple[int, ...]
    special_primes: tuple[int, ...]
    digit_primes: int = 1

    @cached_property
    def primes(self) -> tuple[int, ...]:
        """All primes in the order of rows."""
        return self.data_primes + self.special_primes

    def modulus(self, count: int) -> WireFormat:
        """Return the modulus of ciphertexts.

        Args:
            count: data primes.
        """
        return WireFormat(self.data_primes[:count], self.ring_degree)

    def key_modulus(self, count: int) -> WireFormat:
        """Return the modulus of the keys that switch ciphertexts.

        Args:
            count: data primes of a ciphertext.
        """
        return WireFormat(self.data_primes[:count] + self.special_primes, self.ring_degree)

    def digits(self, count: int) -> list[range]:
        """Return the data primes of each digit, by their numbers; the last digit may have fewer.

        Args:
            count: data primes of what is switched.
        """
        a = self.digit_primes
        return [range(first, min(first + a, count)) for first in range(0, count, a)]

    def key_bytes(self, count: int) -> int:
        """Return the bytes of a switch key on the wire: for every digit a polynomial under all primes, and a seed.

        Args:
            count: data primes of what is switched with it.
        """
        return len(self.digits(count)) * self.key_modulus(count).seeded_size()

    def loaded_key_bytes(self, count: int) -> int:
        """Return the bytes of a switch key in memory, where both polynomials are there in whole words.

        Args:
            count: data primes of what is switched with it.
        """
        return len(self.digits(count)) * 2 * (count + len(self.special_primes)) * self.ring_degree * 8
