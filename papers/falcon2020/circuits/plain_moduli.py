"""The moduli of leveled inference: q and its digits, and several plain moduli with one secret, one set of keys.

Chinese remainders serve the request too: with T the product of all t, an encryption of m mod T times T / t is one of
m mod t, because q m / T times T / t is q m / t, and what belongs to the other t is a multiple of q. Its noise is T / t
times as large, which the first modulus switches take away. So one request serves all plain moduli, and its modulus is
longer by the bits of T / t: primes that are dropped before anything is switched by a key, so that they need not share
the 128 bits with special primes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import Parameters, ordered_primes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.parameters import RlweParameters, check_modulus


@dataclass(frozen=True)
class LeveledParameters:
    """Parameters for every plain modulus; all share n and q.

    Attributes:
        moduli: one for each t: data primes that key switching works under, and one special prime.
        special_bits: of the further special primes.
        digit_primes: data primes in a digit of key switching.
        request_bits: of the further data primes of a request that serves all plain moduli. SEAL's engine and clear text
            have no use for them: they take a request for each.

    Raises:
        RuleError: q with all special primes is too long for 128 bits, or a plain modulus is one of its primes.
    """

    moduli: tuple[Parameters, ...]
    special_bits: tuple[int, ...] = ()
    digit_primes: int = 1
    request_bits: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_modulus(self.ring_degree, sum(self.coefficient_bits) + sum(self.special_bits))
        check_modulus(self.ring_degree, sum(self.data_bits))
        if taken := {each.plain_modulus for each in self.moduli} & {*self.rlwe.primes}:
            rule, remedy = "a plain modulus must not be a prime of q", "let plan_for find another"
            raise RuleError(rule, got=min(taken), remedy=remedy)

    @property
    def ring_degree(self) -> int:
        """The ring degree n."""
        return self.moduli[0].ring_degree

    @property
    def coefficient_bits(self) -> tuple[int, ...]:
        """Bits of each data prime of q, and of the first special prime."""
        return self.moduli[0].coefficient_bits

    @property
    def data_bits(self) -> tuple[int, ...]:
        """Bits of each data prime, those of requests alone last."""
        return self.coefficient_bits[:-1] + self.request_bits

    @property
    def key_primes(self) -> int:
        """Data primes under which keys switch, at most."""
        return len(self.coefficient_bits) - 1

    @property
    def product(self) -> int:
        """The product T of all plain moduli."""
        return math.prod(each.plain_modulus for each in self.moduli)

    @property
    def plain_bits(self) -> int:
        """Bits that values may have, sign included: those of T, rounded down."""
        return self.product.bit_length() - 1

    @property
    def log_lift(self) -> float:
        """log2 of the largest T / t: what it costs that one request serves all plain moduli; 0 if each has its own."""
        least = min(each.plain_modulus for each in self.moduli)
        return math.log2(self.product // least) if self.request_bits else 0.0

    @cached_property
    def rlwe(self) -> RlweParameters:
        """All primes."""
        data, special = self.data_bits, self.coefficient_bits[-1:] + self.special_bits
        primes = ordered_primes(self.ring_degree, data + special)
        return RlweParameters(self.ring_degree, primes[: len(data)], primes[len(data) :], self.digit_primes)

    @property
    def request_bytes(self) -> int:
        """Bytes of a ciphertext that serves all plain moduli."""
        return self.rlwe.modulus(len(self.data_bits)).seeded_size()

    def key_bytes(self, primes: int, keys: Iterable[tuple[int, int]]) -> int:
        """Return the bytes of a client's keys: the public key and all switch keys.

        Args:
            primes: data primes of an answer.
            keys: of each switch key its name and the data primes of what it switches.
        """
        return self.rlwe.modulus(primes).seeded_size() + sum(self.rlwe.key_bytes(count) for _, count in keys)

    def at(self, number: int, primes: int) -> Parameters:
        """Return the parameters of one plain modulus for shorter ciphertexts.

        Args:
            primes: data primes that are left.
        """
        bits = (*self.data_bits[:primes], self.coefficient_bits[-1])
        return Parameters(self.ring_degree, bits, self.moduli[number].plain_modulus)

    def combined(self, residues: Sequence[Residues]) -> np.ndarray:
        """Return signed integers from their residues: Python integers of least absolute value.

        Args:
            residues: for each t, of the same shape.
        """
        whole = self.product
        total = np.zeros(residues[0].shape, dtype=object)
        for each, values in zip(self.moduli, residues, strict=True):
            t = each.plain_modulus
            total = total + values.astype(object) * (whole // t * pow(whole // t, -1, t))
        total = total % whole
        return np.where(2 * total > whole, total - whole, total)
