"""Products, encryption and decryption row by row: a row is one prime's, and rows of a polynomial are independent."""

import numpy as np

from privcirnet.he.ring.kernels import inner_products, ntt, sampling
from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.kernels.base_conversion import lifted
from privcirnet.he.ring.kernels.inner_products import Moduli
from privcirnet.he.ring.kernels.ntt import Tables
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system.jit import inline, jit


@inline
def product(x: Word, y: Word, moduli: Moduli, limb: int) -> Word:
    """Return x y mod p, reduced, of two words that vary.

    Args:
        x: residues under p.
        y: residues under p.
        moduli: constants of the primes.
    """
    p, half, powers = moduli.primes[limb], moduli.half[limb], moduli.powers[limb]
    mask = (np.uint64(1) << half) - np.uint64(1)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    return inner_products.joined(x0 * y0, x0 * y1 + x1 * y0, x1 * y1, powers[0], powers[1], powers[2], half, p)


@jit
def tensor(target: Residues, first: Residues, second: Residues, moduli: Moduli, limb: int) -> None:
    """Compute a row of the product of two ciphertexts: (a0 b0, a0 b1 + a1 b0, a1 b1).

    Args:
        target: written, shape (3, n).
        first: a, shape (2, n).
        second: b, shape (2, n).
        moduli: constants of the primes.
    """
    p = moduli.primes[limb]
    for i in range(target.shape[1]):
        a0, a1, b0, b1 = first[0, i], first[1, i], second[0, i], second[1, i]
        target[0, i] = product(a0, b0, moduli, limb)
        target[1, i] = sub_if_ge(product(a0, b1, moduli, limb) + product(a1, b0, moduli, limb), p)
        target[2, i] = product(a1, b1, moduli, limb)


@jit
def multiply(target: Residues, source: Residues, factor: Residues, moduli: Moduli, limb: int) -> None:
    """Compute a row of the product of polynomials and one other.

    Args:
        target: written, shape (polynomials, n); may be the source.
        source: shape (polynomials, n).
        factor: shape (n,).
        moduli: constants of the primes.
    """
    for half in range(target.shape[0]):
        for i in range(factor.size):
            target[half, i] = product(source[half, i], factor[i], moduli, limb)


@jit
def multiply_constant(target: Residues, factor: Word, quotient: Word, p: Word) -> None:
    """Multiply rows by a constant, in place.

    Args:
        target: shape (polynomials, n).
        factor: number under p.
        quotient: floor(factor 2^64 / p).
        p: prime.
    """
    for half in range(target.shape[0]):
        for i in range(target.shape[1]):
            target[half, i] = reduce_4p(mul_shoup_lazy(target[half, i], factor, quotient, p), p)


@jit
def multiply_rows(target: Residues, factors: Residues, primes: Residues) -> None:
    """Multiply the first rows of polynomials by constants, in place.

    Args:
        target: shape (polynomials, l or more, n), contiguous: words with a stride take LoLa a tenth longer.
        factors: numbers under each prime, and their quotients, shape (l, 2) or longer.
        primes: moduli of the l rows.
    """
    for polynomial in range(target.shape[0]):
        for row in range(primes.size):
            factor, quotient, p = factors[row, 0], factors[row, 1], primes[row]
            for i in range(target.shape[2]):
                product = mul_shoup_lazy(target[polynomial, row, i], factor, quotient, p)
                target[polynomial, row, i] = reduce_4p(product, p)


@jit
def add_multiple(target: Residues, source: Residues, factor: Word, quotient: Word, p: Word) -> None:
    """Add a constant times a row to another, in place.

    Args:
        target: reduced, shape (n,).
        source: shape (n,).
        factor: number under p.
        quotient: floor(factor 2^64 / p).
        p: prime.
    """
    for i in range(target.size):
        target[i] = sub_if_ge(target[i] + reduce_4p(mul_shoup_lazy(source[i], factor, quotient, p), p), p)


@jit
def transformed(target: Residues, integers: Integers, tables: Tables, limb: int) -> None:
    """Compute a row of a polynomial with signed coefficients, in the kernel's order.

    Args:
        target: written, shape (1, n).
        integers: coefficients, shape (n,).
        tables: NTT tables of the primes.
    """
    ratio, p = tables.ones[limb], tables.primes[limb]
    for i in range(integers.size):
        target[0, i] = lifted(integers[i], ratio, p)
    ntt.forward(target, tables, limb)


@jit
def encrypt_row(target: Residues, key: Residues, error: Residues, message: Integers, tables: Tables, limb: int) -> None:
    """Turn a row of the uniform polynomial a into one of m + e - a s, in place.

    Args:
        target: a, shape (n,).
        key: the secret's row and its quotients, shape (2, n).
        error: random words, shape (n,).
        message: signed coefficients, shape (n,).
        tables: NTT tables of the primes.
    """
    p, ratio, noise = tables.primes[limb], tables.ones[limb], np.empty((1, target.size), dtype=np.uint64)
    offset = np.uint64(p - np.uint64(sampling.BINOMIAL))
    for i in range(target.size):
        noise[0, i] = sub_if_ge(lifted(message[i], ratio, p) + sub_if_ge(sampling.binomial(error[i]) + offset, p), p)
    ntt.forward(noise, tables, limb)
    for i in range(target.size):
        hidden = reduce_4p(mul_shoup_lazy(target[i], key[0, i], key[1, i], p), p)
        target[i] = sub_if_ge(noise[0, i] + p - hidden, p)
    noise[:] = 0


@jit
def decrypt_row(target: Residues, ciphertext: Residues, key: Residues, tables: Tables, limb: int) -> None:
    """Compute a row of c0 + c1 s in coefficient form.

    Args:
        target: written, shape (1, n).
        ciphertext: shape (2, n).
        key: the secret's row and its quotients, shape (2, n).
        tables: NTT tables of the primes.
    """
    p = tables.primes[limb]
    for i in range(target.shape[1]):
        shared = reduce_4p(mul_shoup_lazy(ciphertext[1, i], key[0, i], key[1, i], p), p)
        target[0, i] = sub_if_ge(ciphertext[0, i] + shared, p)
    ntt.inverse(target, tables, limb)
