"""Key switching with several special primes, and products of ciphertexts, row by row: a row is one prime's.

Maths (Han and Ki, 2020; the gadget of Gentry, Halevi and Smart, 2012, in residues): the data primes are cut into D
digits with products Q_1, ..., Q_D, and P is the product of the special primes. Key digit d encrypts P s' under the
primes of digit d, and 0 under all others, special ones included:

    (-(a s + e) + [under primes of digit d: P s'], a).

Of a polynomial x, digit d is x mod Q_d, lifted to all primes (:mod:`ring.kernels.conversion`). The sum of digits
times key digits encrypts P x s'; divided by P and rounded it encrypts x s'.

Order of rows: the special primes come first, so that a ciphertext that has lost data primes has the first rows of all.
An *extended* polynomial has the special rows, k of them, and those of its data primes; any other has the latter alone.

Cost of one switch with l data primes: l + 2 k inverse transforms, D (l + k) - l + 2 l forward ones, 2 D (l + k) rows of
products.
"""

import numpy as np

from privcirnet.compiled.jit import inline, jit
from privcirnet.he.ring.kernels import inner_products, ntt, operands, sampling
from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.kernels.conversion import Conversion, convert, lifted
from privcirnet.he.ring.kernels.inner_products import Moduli
from privcirnet.he.ring.kernels.ntt import Tables
from privcirnet.he.ring.modular import Integers, Residues


@inline
def product(x: Word, y: Word, moduli: Moduli, limb: int) -> Word:
    """Return x y mod p, reduced, of two words that vary.

    Args:
        x: under p.
        y: under p.
        moduli: of the primes.
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
        moduli: of the primes.
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
        moduli: of the primes.
    """
    for half in range(target.shape[0]):
        for i in range(factor.size):
            target[half, i] = product(source[half, i], factor[i], moduli, limb)


@jit
def multiply_constant(target: Residues, factor: Word, quotient: Word, p: Word) -> None:
    """Multiply rows by a constant, in place.

    Args:
        target: shape (polynomials, n).
        factor: under p.
        quotient: floor(factor 2^64 / p).
        p: prime.
    """
    for half in range(target.shape[0]):
        for i in range(target.shape[1]):
            target[half, i] = reduce_4p(mul_shoup_lazy(target[half, i], factor, quotient, p), p)


@jit
def add_multiple(target: Residues, source: Residues, factor: Word, quotient: Word, p: Word) -> None:
    """Add a constant times rows to others, in place.

    Args:
        target: reduced, shape (polynomials, n).
        source: shape (polynomials, n).
        factor: under p.
        quotient: floor(factor 2^64 / p).
        p: prime.
    """
    for half in range(target.shape[0]):
        for i in range(target.shape[1]):
            term = reduce_4p(mul_shoup_lazy(source[half, i], factor, quotient, p), p)
            target[half, i] = sub_if_ge(target[half, i] + term, p)


@jit
def transformed(target: Residues, integers: Integers, tables: Tables, limb: int) -> None:
    """Compute a row of a polynomial with signed coefficients, in the kernel's order.

    Args:
        target: written, shape (1, n).
        integers: coefficients, shape (n,).
        tables: of the primes.
    """
    one, p = tables.ones[limb], tables.primes[limb]
    for i in range(integers.size):
        target[0, i] = lifted(integers[i], one, p)
    ntt.forward(target, tables, limb)


@jit
def digit_row(  # noqa: PLR0913, PLR0917
    target: Residues,
    scaled: Residues,
    multiples: Integers,
    constants: Conversion,
    tables: Tables,
    half: Word,
    limb: int,
) -> None:
    """Compute one digit's row under a prime that is not its own, transformed and split.

    Args:
        target: written, shape (1, n).
        scaled: of the digit (:func:`ring.kernels.conversion.scale`), shape (S, n).
        multiples: of the digit, shape (n,).
        constants: of the conversion to all primes.
        tables: of all primes.
        half: bits of the lower half of a split word of the prime.
        limb: which of the primes.
    """
    convert(target[0], scaled, multiples, constants, limb)
    ntt.forward(target, tables, limb)
    operands.split_words(target[0], half)


@jit
def switch_row(switched: Residues, digits: Residues, key: Residues, moduli: Moduli, limb: int) -> None:
    """Compute one row of the sum of digits times key digits.

    Args:
        switched: [0, :, limb] is written, shape (1, 2, R, n).
        digits: split, shape (D', R, n) for D' <= D.
        key: D inputs of products, shape (chunks, D, 2, CHUNK).
        moduli: of all primes.
        limb: which of the first R.
    """
    each = switched.shape[3] // key.shape[3]
    terms = inner_products.successive(0, digits.shape[0])
    inner_products.multiply_accumulate(switched, key, digits, terms, moduli, (limb * each, (limb + 1) * each))


@jit
def lower_row(  # noqa: PLR0913, PLR0917
    target: Residues,
    scaled: Residues,
    multiples: Integers,
    constants: Conversion,
    division: Residues,
    tables: Tables,
    limb: int,
) -> None:
    """Divide a row by P and round, in place: (x - (x mod P)) / P.

    Args:
        target: shape (n,).
        scaled: of the special rows (:func:`ring.kernels.conversion.scale`), shape (k, n).
        multiples: of the special rows, shape (n,).
        constants: of the conversion from the special primes to all.
        division: 1 / P mod the prime and its quotient, shape (2,).
        tables: of all primes.
    """
    p, rest = tables.primes[limb], np.empty((1, target.size), dtype=np.uint64)
    convert(rest[0], scaled, multiples, constants, limb)
    ntt.forward(rest, tables, limb)
    for i in range(target.size):
        target[i] = reduce_4p(mul_shoup_lazy(target[i] + p - rest[0, i], division[0], division[1], p), p)


@jit
def permute(target: Residues, source: Residues, order: Integers) -> None:
    """Compute rows of a polynomial under an automorphism.

    Args:
        target: written, shape (polynomials, n).
        source: shape (polynomials, n).
        order: of the automorphism (:func:`keyswitch.automorphism`), shape (n,).
    """
    for half in range(target.shape[0]):
        for i in range(order.size):
            target[half, i] = source[half, order[i]]


@jit
def encrypt_row(target: Residues, key: Residues, error: Residues, message: Integers, tables: Tables, limb: int) -> None:
    """Turn a row of the uniform polynomial a into one of m + e - a s, in place.

    Args:
        target: a, shape (n,).
        key: the secret's row and its quotients, shape (2, n).
        error: random words, shape (n,).
        message: signed coefficients, shape (n,).
        tables: of the primes.
    """
    p, one, noise = tables.primes[limb], tables.ones[limb], np.empty((1, target.size), dtype=np.uint64)
    offset = np.uint64(p - np.uint64(sampling.BINOMIAL))
    for i in range(target.size):
        noise[0, i] = sub_if_ge(lifted(message[i], one, p) + sub_if_ge(sampling.binomial(error[i]) + offset, p), p)
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
        tables: of the primes.
    """
    p = tables.primes[limb]
    for i in range(target.shape[1]):
        shared = reduce_4p(mul_shoup_lazy(ciphertext[1, i], key[0, i], key[1, i], p), p)
        target[0, i] = sub_if_ge(ciphertext[0, i] + shared, p)
    ntt.inverse(target, tables, limb)
