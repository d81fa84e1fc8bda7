"""What a reply is added to before it is sent (:mod:`privcirnet.he.flooding`), and its switch to a shorter modulus.

With u ternary and e1 of SEAL's error distribution, pk u + (0, e1) is a fresh encryption of zero under the client's
public key. The error e0 that SEAL adds to the first polynomial is left out: flooding noise covers it. pk is used modulo
the data primes, which is as uniform as modulo all of them.
"""

from dataclasses import dataclass

import numpy as np

from privcirnet.he.flooding import FLOODING_BITS
from privcirnet.he.kernels import keyswitch, ntt, products, sampling
from privcirnet.he.kernels.ring import Ring, ring
from privcirnet.he.modular import Residues


@dataclass(frozen=True)
class PublicKey:
    """The client's public key.

    Attributes:
        ring: of the data primes.
        inputs: the key as the one input of products.
    """

    ring: Ring
    inputs: Residues

    @staticmethod
    def build(ring: Ring, key: Residues) -> "PublicKey":
        """From residues in SEAL's order, (2, L, n)."""
        inputs = ring.inputs(1)
        ring.place(inputs, 0, np.ascontiguousarray(key[..., ntt.kernel_order(ring.degree)]))
        return PublicKey(ring, inputs)

    def times_ternary(self) -> Residues:
        """The key times a fresh ternary polynomial, in the kernel's order, (2, L, n)."""
        secret = sampling.ternary(self.ring.primes, self.ring.degree)[None]
        return products.inner_product(self.inputs, 0, self.ring.cut(self.ring.values(secret)), self.ring.moduli)


def hide(values: Residues, extended: Ring, key: PublicKey, noise_bits: int) -> Residues:
    """A result plus an encryption of zero and flooding noise, in coefficient form, (2, L, n).

    Args:
        values: the result in the kernel's order, (2, L, n), or times P with the special prime, (2, L + 1, n); lost.
        extended: the ring of all L + 1 primes.
        key: the client's.
        noise_bits: log2 of a bound on the result's noise.
    """
    zero, primes, n = key.times_ternary(), key.ring.primes, key.ring.degree
    is_extended = values.shape[1] > len(primes)
    if is_extended:
        for half in range(2):
            keyswitch.add_scaled(values[half], zero[half], extended.division)
    else:
        products.add(values, zero, key.ring.moduli)
    extended.to_coefficients(values)
    if is_extended:
        for polynomial in values:
            keyswitch.divide_coefficients(polynomial, extended.division)
    hidden = np.ascontiguousarray(values[:, : len(primes)])
    errors = sampling.flooding(noise_bits + FLOODING_BITS, primes, n), sampling.centered_binomial(primes, n)
    products.add(hidden, np.stack(errors), key.ring.moduli)
    return hidden


def switch(polynomial: Residues, primes: tuple[int, ...], count: int) -> Residues:
    """A polynomial (L, n) in coefficient form under the first ``count`` primes, divided by the others; it is lost."""
    for last in range(len(primes), count, -1):
        keyswitch.divide_coefficients(polynomial[:last], ring(primes[:last], polynomial.shape[1]).division)
    return polynomial[:count]
