"""Squares of BFV ciphertexts in residues.

Maths: with c = (c0, c1) modulo Q, the square is round(t/Q (c0^2, 2 c0 c1, c1^2)), a product of integers and not of
residues. Everything is centred, in [-Q/2, Q/2):

1. c is brought to auxiliary primes whose product R carries t n Q / 2, the largest result;
2. products are made under the primes of Q and of R;
3. x = t c c is divided by Q and rounded under the primes of R: (x - [x]_Q) / Q;
4. the results come back to the primes of Q.

Source: Halevi, Polyakov and Shoup, An Improved RNS Variant of the BFV Homomorphic Encryption Scheme (CT-RSA 2019,
eprint 2018/117), sections 2.2 to 2.4: its conversions, with the division as BEHZ (eprint 2016/510) order it.

Cost for l data primes: 16 l + 8 transforms, and 8 l (l + 1) rows of products in conversions.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels import base_conversion as conversion
from privcirnet.he.ring.kernels import ntt
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.kernels import gadget
from privcirnet.he.rlwe.kernels import rns as kernel_rows
from privcirnet.he.rlwe.kernels.rns import RnsRing, ring
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.system.threads import each

_AUXILIARY_BITS = 60


@dataclass(frozen=True)
class BfvSquare:
    """Squares for one plain modulus.

    Attributes:
        chain: of the ciphertexts' primes.
    """

    chain: ModulusChain
    plain_modulus: int

    @cached_property
    def _auxiliary(self) -> RnsRing:
        """As many primes as the longest modulus needs."""
        own = self.chain.parameters
        primes = _auxiliary_primes(own.data_primes, self.plain_modulus * own.ring_degree, own.ring_degree)
        return ring(primes, own.ring_degree)

    def square(self, values: Residues) -> Residues:
        """Return the square before it is relinearised, shape (3, l, n).

        Args:
            values: of a ciphertext, shape (2, l, n).
        """
        chain, t, auxiliary = self.chain, self.plain_modulus, self._auxiliary
        count, n = values.shape[1:]
        data, rows = chain.parameters.data_primes[:count], self._rows(count)
        lifted = self._converted(chain.coefficients(values), data, auxiliary.primes[:rows])
        products = np.empty((count, 3, n), dtype=np.uint64)
        others = np.empty((rows, 3, n), dtype=np.uint64)

        def own(i: int) -> None:
            _times(products[i], np.ascontiguousarray(values[:, i]), t, chain.ring, i)
            for half in range(3):
                ntt.inverse(products[i, half : half + 1], chain.ring.tables, i)

        def other(r: int) -> None:
            for half in range(2):
                ntt.forward(lifted[r, half : half + 1], auxiliary.tables, r)
            _times(others[r], lifted[r], t, auxiliary, r)

        each(own, range(count))
        each(other, range(rows))
        self._divide(others, products)
        for r in range(rows):
            ntt.inverse(others[r], auxiliary.tables, r)
        found = self._converted(others.swapaxes(0, 1), auxiliary.primes[:rows], data)
        each(lambda i: ntt.forward(found[i], chain.ring.tables, i), range(count))
        return np.ascontiguousarray(found.swapaxes(0, 1))

    def _rows(self, count: int) -> int:
        """Auxiliary primes for so many data primes: the fewest whose product is over t n Q."""
        own = self.chain.parameters
        needed = prod(own.data_primes[:count]) * self.plain_modulus * own.ring_degree
        return next(r for r in range(len(self._auxiliary.primes) + 1) if prod(self._auxiliary.primes[:r]) > needed)

    def _converted(self, polynomials: Residues, sources: tuple[int, ...], targets: tuple[int, ...]) -> Residues:
        """Return polynomials (polynomials, S, n) under other primes, (T, polynomials, n); coefficients."""
        count, _, n = polynomials.shape
        constants, found = (
            conversion.base_conversion(sources, targets),
            np.empty((len(targets), count, n), dtype=np.uint64),
        )

        def one(half: int) -> None:
            own = np.ascontiguousarray(polynomials[half])
            multiples = np.empty(n, dtype=np.int64)
            conversion.scale(own, multiples, own, constants)
            for r in range(len(targets)):
                conversion.convert(found[r, half], own, multiples, constants, r)

        each(one, range(count))
        return found

    def _divide(self, others: Residues, products: Residues) -> None:
        """Divide t c c by Q: under auxiliary primes in the NTT order, in place, from its coefficients under Q."""
        count, rows, ring_ = len(products), len(others), self._auxiliary
        division = conversion.mod_down_constants(self.chain.parameters.data_primes[:count], ring_.primes)

        def one(half: int) -> None:
            own, multiples = np.ascontiguousarray(products[:, half]), np.empty(products.shape[2], dtype=np.int64)
            conversion.scale(own, multiples, own, division.conversion)
            for r in range(rows):
                gadget.mod_down_limb(others[r, half], own, multiples, division, ring_.tables, r)

        each(one, range(3))


def _times(target: Residues, values: Residues, t: int, ring_: RnsRing, limb: int) -> None:
    """Compute a row of t c c, (3, n), of a ciphertext's (2, n)."""
    p = ring_.tables.primes[limb]
    scaled = values.copy()
    factor, quotient = with_quotient(t % int(p), int(p))
    kernel_rows.multiply_constant(scaled, factor, quotient, p)
    kernel_rows.tensor(target, scaled, values, ring_.moduli, limb)


@lru_cache(maxsize=16)
def _auxiliary_primes(data: tuple[int, ...], room: int, n: int) -> tuple[int, ...]:
    found: tuple[int, ...] = ()
    while prod(found) <= prod(data) * room:
        found += (modular.largest_prime(_AUXILIARY_BITS, 2 * n, frozenset({*found, *data})),)
    return found
