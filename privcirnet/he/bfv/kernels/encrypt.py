"""Encryption of slots to a request, under the secret key, with a seed in place of the second polynomial.

Maths, SEAL's: c1 = a is uniform, c0 = -(a s + e) + round(q m / t), with e the difference of two sums of 21 random bits.
The rounding is that of :func:`bfv.kernels.plaintexts.add`.
"""

from typing import NamedTuple

import numpy as np

from privcirnet.he.bfv.kernels import plaintexts
from privcirnet.he.ring.kernels import ntt, sampling
from privcirnet.he.ring.kernels.arithmetic import mul_shoup_lazy, sub_if_ge
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.rlwe.kernels import secret_key, uniform, wire_bytes
from privcirnet.he.rlwe.wire_bytes import WireFormat
from privcirnet.he.system.jit import jit


class EncryptionTables(NamedTuple):
    """Tables for the encryption of requests.

    Attributes:
        tables: tables of the transforms; the L data primes come first.
        bounds: constants of the L data primes.
        bits: width of a packed residue of each data prime.
    """

    tables: ntt.Tables
    bounds: uniform.Bounds
    plain: plaintexts.Plain
    bits: Residues


def encryption_tables(tables: ntt.Tables, plain: plaintexts.Plain, modulus: WireFormat) -> EncryptionTables:
    """Return the tables that requests are encrypted with.

    Args:
        tables: tables of the transforms; the data primes come first.
        modulus: the data primes.
    """
    return EncryptionTables(
        tables, uniform.bounds(modulus.primes), plain, 8 * np.array(modulus.widths, dtype=np.uint64)
    )


def encrypt(key: Residues, slots: Residues, form: EncryptionTables, sent: Integers | None = None) -> bytes:
    """Encrypt a plaintext.

    Args:
        key: secret, shape (2, L', n) for L' >= L primes (:func:`rlwe.kernels.secret_key.generate`).
        slots: residues mod t, shape (n,).
        sent: coefficients of the first polynomial that are sent; None: all of them.

    Returns:
        compact bytes (:mod:`rlwe.wire_bytes`), then the seed.
    """
    places = np.arange(slots.size) if sent is None else sent
    packed, words = wire_bytes.packed(places.size, form.bits), np.empty((form.bits.size, slots.size), dtype=np.uint64)
    drawn = secret_key.draw(slots.size)
    uniform.fill(words, drawn.seed, form.bounds)
    _encrypt(packed, words, key, np.ascontiguousarray(slots), drawn.error, form, places)
    wipe([drawn.error])
    return wire_bytes.octets(packed, places.size, form.bits) + drawn.seed


@jit
def _encrypt(  # noqa: PLR0913, PLR0917
    packed: Residues,
    words: Residues,
    key: Residues,
    slots: Residues,
    error: Residues,
    form: EncryptionTables,
    sent: Integers,
) -> None:
    """Run :func:`encrypt` into packed words; ``words``, the uniform polynomial, are overwritten."""
    for limb in range(words.shape[0]):
        p, row, secret, quotient = form.tables.primes[limb], words[limb], key[0, limb], key[1, limb]
        ntt.forward(words[limb : limb + 1], form.tables, limb)
        for i in range(row.size):
            row[i] = mul_shoup_lazy(row[i], secret[i], quotient[i], p)
        ntt.inverse(words[limb : limb + 1], form.tables, limb)
        offset = p + p + np.uint64(sampling.BINOMIAL)
        for i in range(row.size):  # at most 2 p + 21
            row[i] = sub_if_ge(sub_if_ge(offset - row[i] - sampling.binomial(error[i]), p), p)
    plaintexts.add(words, slots, form.plain)
    if sent.size == slots.size:
        wire_bytes.pack_into(packed, words, form.bits)
        return
    some = np.empty((words.shape[0], sent.size), dtype=np.uint64)
    for limb in range(words.shape[0]):
        for i in range(sent.size):
            some[limb, i] = words[limb, sent[i]]
    wire_bytes.pack_into(packed, some, form.bits)
