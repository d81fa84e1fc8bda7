"""What a reply is added to before it is sent (:mod:`privcirnet.he.flooding`), and its switch to a shorter modulus.

With u ternary and e1 of SEAL's error distribution, pk u + (0, e1) is a fresh encryption of zero under the client's
public key. The error e0 that SEAL adds to the first polynomial is left out: flooding noise covers it. pk is used modulo
the data primes, which is as uniform as modulo all of them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcirnet.he.flooding import FLOODING_BITS
from privcirnet.he.kernels import keyswitch, ntt, sampling
from privcirnet.he.kernels.arithmetic import once, reduced, times
from privcirnet.he.kernels.jit import jit
from privcirnet.he.kernels.ring import Ring, add_scaled, to_coefficients
from privcirnet.he.modular import Residues


@dataclass(frozen=True)
class PublicKey:
    """The client's public key in the kernel's order, each word with its quotient: (2, 2, L, n), [word or quotient].

    Attributes:
        plain: for results as they are.
        scaled: P times the key, for results that are still to be divided by P.
    """

    plain: Residues
    scaled: Residues

    @staticmethod
    def build(extended: Ring, key: Residues) -> "PublicKey":
        """From residues in SEAL's order, (2, L, n)."""
        ordered = np.ascontiguousarray(key[..., ntt.kernel_order(extended.degree)])
        scaled = np.zeros_like(ordered)
        add_scaled(scaled, ordered, extended.division)
        return PublicKey(_with_quotients(ordered, extended), _with_quotients(scaled, extended))


class Draws(NamedTuple):
    """What hides some replies, side by side.

    Attributes:
        secret: ternary u, (L, replies n).
        flood: flooding noise, (L, replies n).
        error: e1, (L, replies n).
    """

    secret: Residues
    flood: Residues
    error: Residues


def draw(noise_bits: int, ring: Ring, replies: int) -> Draws:
    """Fresh ones for results whose noise is at most 2^noise_bits."""
    primes, count = ring.primes, replies * ring.degree
    flood = sampling.flooding(noise_bits + FLOODING_BITS, primes, count)
    return Draws(sampling.ternary(primes, count), flood, sampling.centered_binomial(primes, count))


@jit
def hide(values: Residues, key: Residues, extended: Ring, draws: Draws, index: int) -> Residues:
    """A result plus an encryption of zero and flooding noise, in coefficient form, (2, L, n).

    Args:
        values: the result in the kernel's order, (2, L, n), or times P with the special prime, (2, L + 1, n); lost.
        key: the client's, plain or scaled as the result is.
        extended: the ring of all L + 1 primes.
        draws: fresh.
        index: which of the draws.
    """
    limbs, n = draws.secret.shape[0], values.shape[2]
    secret = np.empty((1, n), dtype=np.uint64)
    for limb in range(limbs):
        p = extended.tables.primes[limb]
        secret[0] = draws.secret[limb, index * n : (index + 1) * n]
        ntt.forward(secret, extended.tables, limb)
        for half in range(2):
            for i in range(n):
                product = times(secret[0, i], key[0, half, limb, i], key[1, half, limb, i], p)
                values[half, limb, i] = once(values[half, limb, i] + reduced(product, p), p)
    to_coefficients(values, extended.tables)
    if values.shape[1] > limbs:
        for half in range(2):
            keyswitch.divide_coefficients(values[half], extended.division)
    hidden = np.empty((2, limbs, n), dtype=np.uint64)
    for limb in range(limbs):
        p = extended.tables.primes[limb]
        for i in range(n):
            hidden[0, limb, i] = once(values[0, limb, i] + draws.flood[limb, index * n + i], p)
            hidden[1, limb, i] = once(values[1, limb, i] + draws.error[limb, index * n + i], p)
    return hidden


@jit
def switch(polynomials: Residues, divisions: tuple[keyswitch.Division, ...]) -> None:
    """Divide polynomials (2, L, n) in coefficient form by their last primes, one after the other, in place."""
    limbs = polynomials.shape[1]
    for index in range(len(divisions)):
        for half in range(polynomials.shape[0]):
            keyswitch.divide_coefficients(polynomials[half, : limbs - index], divisions[index])


def divisions(primes: tuple[int, ...], count: int) -> tuple[keyswitch.Division, ...]:
    """Of :func:`switch` down to the first ``count`` primes."""
    return tuple(keyswitch.division(primes[:last]) for last in range(len(primes), count, -1))


def _with_quotients(key: Residues, ring: Ring) -> Residues:
    quotients = np.empty_like(key)
    _quotients(quotients, key, ring.tables.primes)
    return np.stack([key, quotients])


@jit
def _quotients(target: Residues, words: Residues, primes: Residues) -> None:
    """floor(word 2^64 / p) by long division, a bit at a time, for (2, L, n)."""
    for half in range(words.shape[0]):
        for limb in range(words.shape[1]):
            p = primes[limb]
            for i in range(words.shape[2]):
                rest, quotient = words[half, limb, i], np.uint64(0)
                for _ in range(64):
                    rest = rest + rest
                    bit = np.uint64(rest >= p)
                    rest = rest - bit * p
                    quotient = quotient + quotient + bit
                target[half, limb, i] = quotient
