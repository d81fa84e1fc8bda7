"""Switch keys under a chain of primes: what the client makes of its secret key, and how the server reads it.

Digit d of a key from s' to s is (e - a s + [under the primes of digit d: P s'], a) for the special primes and the data
primes of a level, in the kernel's NTT order, with a from a seed that is sent in its place. A key serves its own level
and all shorter ones. Compact bytes are those of :mod:`rlwe.wire_bytes`.
"""

from math import prod

import numpy as np

from privcirnet.he.ring.kernels import operands
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.rlwe.chain import Chain
from privcirnet.he.rlwe.kernels import blake2xb, hybrid, receive, secret_key, wire_bytes
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, check_length
from privcirnet.he.system.threads import each


def key_size(chain: Chain, level: int) -> int:
    """Return the bytes of a switch key.

    Args:
        chain: of primes.
        level: data primes of what is switched with it.
    """
    return len(chain.digit_rows(level)) * (chain.key_modulus(level).compact_size(1) + SEED_BYTES)


def make(chain: Chain, level: int, source: Residues, target: Residues) -> bytes:
    """Return a switch key.

    Args:
        chain: of primes.
        level: data primes of what is switched with it.
        source: s' under all primes, secret, shape (R, n).
        target: s and its quotients under all primes, secret, shape (2, R, n).
    """
    return b"".join(each(lambda rows: _digit(chain, level, rows, source, target), chain.digit_rows(level)))


def load(chain: Chain, level: int, message: bytes) -> Residues:
    """Return a switch key ready for products: inputs, shape (chunks, D, 2, CHUNK).

    Args:
        chain: of primes.
        level: that it was made for.
        message: from :func:`make`.

    Raises:
        RuleError: the bytes are not such a key.
    """
    check_length(message, key_size(chain, level))
    modulus, n = chain.key_modulus(level), chain.ring_degree
    count, size = len(modulus.primes), modulus.compact_size(1) + SEED_BYTES
    words = min(operands.CHUNK, n)
    parts = [message[first : first + size] for first in range(0, len(message), size)]
    inputs = np.empty((count * n // words, len(parts), 2, words), dtype=np.uint64)
    roots = blake2xb.roots([part[-SEED_BYTES:] for part in parts], count * n)

    def digit(d: int) -> None:
        residues = np.empty((2, count, n), dtype=np.uint64)
        receive.receive(residues, parts[d], np.arange(n), roots[d], modulus)
        chain.ring.place(inputs, d, residues)

    each(digit, range(len(parts)))
    return inputs


def _digit(chain: Chain, level: int, rows: range, source: Residues, target: Residues) -> bytes:
    modulus, n, tables = chain.key_modulus(level), chain.ring_degree, chain.ring.tables
    bits, zero = 8 * np.array(modulus.widths, dtype=np.uint64), np.zeros(n, dtype=np.int64)
    drawn = secret_key.draw(n)
    words = blake2xb.expand([drawn.seed], modulus.primes, n)[0]  # long primes reject more than kernels have to spare
    for limb, p in enumerate(modulus.primes):
        own = target[:, limb].copy()
        hybrid.encrypt_row(words[limb], own, drawn.error, zero, tables, limb)
        wipe([own])
        if limb - chain.special in rows:
            term = source[limb : limb + 1].copy()
            factor, quotient = with_quotient(prod(chain.special_primes) % p, p)
            hybrid.multiply_constant(term, factor, quotient, tables.primes[limb])
            total = words[limb] + term[0]
            words[limb] = np.minimum(total, total - np.uint64(p))
            wipe([term, total])
    wipe([drawn.error])
    made = wire_bytes.packed(n, bits)
    wire_bytes.pack_into(made, words, bits)
    return wire_bytes.octets(made, n, bits) + drawn.seed
