"""The random words that SEAL 4.x makes of a 64-byte seed, and the uniform polynomial that it makes of those.

Generator: buffer i of 4096 bytes is BLAKE2Xb of the 8-byte counter i, keyed with the seed: a BLAKE2b hash H of the
counter, then 64 blocks of 64 bytes, block j being BLAKE2b of H with j as its node offset. So a buffer costs 65
compressions, and all but the hash of the seed are independent: they run side by side, one per vector lane.

Every message here (seed, counter, H) has at most 64 bytes, so words 8 to 15 of BLAKE2b's 16-word block are zero.

Sources: RFC 7693 (BLAKE2b), "BLAKE2X" (Aumasson et al., 2016), SEAL's ``sample_poly_uniform``. Cost: 7 ns a word.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.compiled.jit import inline_late, jit
from privcirnet.errors import RuleError
from privcirnet.he.ring.kernels.arithmetic import Word, barrett_lazy, reduce_4p
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES

State = tuple[Word, ...]
"""Words of BLAKE2b."""

_LANES = 64
BUFFER = 512
"""Words of a buffer."""

_ZERO = np.uint64(0)
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_INITIAL = (
    np.uint64(0x6A09E667F3BCC908),
    np.uint64(0xBB67AE8584CAA73B),
    np.uint64(0x3C6EF372FE94F82B),
    np.uint64(0xA54FF53A5F1D36F1),
    np.uint64(0x510E527FADE682D1),
    np.uint64(0x9B05688C2B3E6C1F),
    np.uint64(0x1F83D9ABFB41BD6B),
    np.uint64(0x5BE0CD19137E2179),
)
# BLAKE2's parameter block: digest length, key length, fanout and depth a byte each, then four of leaf length; node
# offset, with the length of the extended output in its upper half; node depth and inner length.
_ROOT = (64 | 64 << 8 | 1 << 16 | 1 << 24, 4096 << 32, 0)
_BLOCK = (64 | 64 << 32, 4096 << 32, 64 << 8)


def stream(seed: bytes, words: int) -> Residues:
    """Return the generator's first words for a seed, in [0, 2^64), shape (words,).

    Args:
        seed: 64 bytes.

    Raises:
        RuleError: a seed of another length.
    """
    return streams([seed], words)[0]


def streams(seeds: Sequence[bytes], words: int) -> Residues:
    """Return :func:`stream` of each seed, shape (seeds, words).

    Args:
        seeds: 64 bytes each.
        words: how many for each seed.

    Raises:
        RuleError: a seed of another length.
    """
    found = roots(seeds, words)
    made = np.empty((*found.shape[:2], BUFFER), dtype=np.uint64)
    for index in range(len(found)):
        blocks(made[index], found[index], START)
    return made.reshape(len(seeds), -1)[:, :words]


def roots(seeds: Sequence[bytes], words: int) -> Residues:
    """Return the hash of each buffer's counter under each seed, shape (seeds, buffers, 8).

    Args:
        seeds: 64 bytes each.
        words: that the buffers hold, for each seed.

    Raises:
        RuleError: a seed of another length.
    """
    for seed in seeds:
        if len(seed) != SEED_BYTES:
            raise RuleError(
                f"a seed must have {SEED_BYTES} bytes", got=len(seed), remedy="use the same version on both sides"
            )
    buffers = -(-words // BUFFER)
    keys = np.frombuffer(b"".join(seeds), dtype=np.uint64).reshape(-1, 8)
    return _roots(keys, buffers).reshape(len(seeds), buffers, 8)


def expand(seeds: Sequence[bytes], primes: tuple[int, ...], ring_degree: int) -> Residues:
    """Return the uniform polynomials that seeds stand for: the same numbers as SEAL's.

    Prime by prime, each word that is not under the largest multiple of the prime that SEAL allows gives way to the
    next word of the stream that is; all are then reduced. SEAL's own primes, just under powers of two, reject no word
    in a lifetime; those that reject often cost a second expansion.

    Args:
        seeds: 64 bytes each.
        primes: of the modulus, each under 2^61.

    Returns:
        residues, shape (seeds, primes, n).

    Raises:
        RuleError: a seed of another length.
    """
    count, spare = len(primes) * ring_degree, 0
    limits = bounds(primes)
    while True:
        words = streams(seeds, count + spare)
        polynomials = np.ascontiguousarray(words[:, :count]).reshape(-1, len(primes), ring_degree)
        if all(reduce(own, limits, rest) for own, rest in zip(polynomials, words[:, count:].copy(), strict=True)):
            return polynomials
        spare = 2 * spare + BUFFER


def _roots(keys: Residues, buffers: int) -> Residues:
    """Return the hash of each buffer's counter under each key: (keys buffers, 8)."""
    count = len(keys) * buffers
    groups = -(-count // _LANES)
    lanes = np.zeros((2, groups * _LANES, 8), dtype=np.uint64)
    lanes[0, :count] = np.repeat(keys, buffers, axis=0)
    lanes[1, :count, 0] = np.tile(np.arange(buffers, dtype=np.uint64), len(keys))
    key, counter = np.ascontiguousarray(lanes.reshape(2, groups, _LANES, 8).swapaxes(2, 3))
    chain = _start(_ROOT, groups)
    _compress(chain, key, np.uint64(128), _ZERO)
    _compress(chain, counter, np.uint64(136), _LAST)
    return np.ascontiguousarray(chain.transpose(0, 2, 1)).reshape(-1, 8)[:count]


def _start(parameters: tuple[int, ...], groups: int) -> Residues:
    """Return the chain values before a first block, (groups, 8, 64), from the parameter block's words 0 to 2."""
    chain = np.empty((groups, 8, _LANES), dtype=np.uint64)
    chain[:] = (np.array(_INITIAL) ^ np.array((*parameters, 0, 0, 0, 0, 0), dtype=np.uint64))[:, None]
    return chain


class Bounds(NamedTuple):
    """How words become residues.

    Attributes:
        primes: p, (primes,).
        ones: floor(2^64 / p), (primes,).
        limits: from which on SEAL rejects a word: 2^64 - 2 - (2^64 - 1 mod p), (primes,).
    """

    primes: Residues
    ones: Residues
    limits: Residues


@lru_cache(maxsize=64)
def bounds(primes: tuple[int, ...]) -> Bounds:
    """Return how words become residues of some primes.

    Args:
        primes: under 2^61.
    """
    limits = [(1 << 64) - 2 - ((1 << 64) - 1) % p for p in primes]
    ones = [(1 << 64) // p for p in primes]
    return Bounds(np.array(primes, np.uint64), np.array(ones, np.uint64), np.array(limits, np.uint64))


@jit
def reduce(words: Residues, bounds: Bounds, spare: Residues) -> bool:
    """Turn words into residues in place; rejected words are replaced by spare ones.

    Args:
        words: shape (primes, n).
        bounds: of the primes.

    Returns:
        False if the spare words are too few; some words are then not reduced.
    """
    used = 0
    for j in range(words.shape[0]):
        row, p, one, limit = words[j], bounds.primes[j], bounds.ones[j], bounds.limits[j]
        for i in range(row.size):
            while row[i] >= limit:
                if used == spare.size:
                    return False
                row[i] = spare[used]
                used += 1
        for i in range(row.size):
            row[i] = reduce_4p(barrett_lazy(row[i], one, p), p)
    return True


@jit
def blocks(made: Residues, roots: Residues, start: Residues) -> None:
    """Compute the 64 output blocks of each buffer, one in a lane: BLAKE2b of the root with the lane as node offset.

    Args:
        made: written, shape (buffers, 512).
        roots: shape (buffers, 8).
        start: :data:`START`.
    """
    h = np.empty(8 * _LANES, dtype=np.uint64)
    for buffer in range(roots.shape[0]):
        m0, m1, m2, m3 = roots[buffer, 0], roots[buffer, 1], roots[buffer, 2], roots[buffer, 3]
        m4, m5, m6, m7 = roots[buffer, 4], roots[buffer, 5], roots[buffer, 6], roots[buffer, 7]
        h0, h2, h3, h4, h5, h6, h7 = start[0], start[2], start[3], start[4], start[5], start[6], start[7]
        for i in range(_LANES):
            h1 = start[1] ^ np.uint64(i)
            chain, message = (h0, h1, h2, h3, h4, h5, h6, h7), (m0, m1, m2, m3, m4, m5, m6, m7)
            c = _compressed(chain, message, np.uint64(64), _LAST)
            h[i], h[64 + i], h[128 + i], h[192 + i] = c[0], c[1], c[2], c[3]
            h[256 + i], h[320 + i], h[384 + i], h[448 + i] = c[4], c[5], c[6], c[7]
        for i in range(_LANES):
            for word in range(8):
                made[buffer, 8 * i + word] = h[_LANES * word + i]


@jit
def _compress(chain: Residues, message: Residues, length: Word, last: Word) -> None:
    """Compress words 0 to 7 of a block in each of 64 lanes of each group, all independent; the others are zero.

    The chain values (groups, 8, 64) are read and written. ``length`` is the bytes hashed with these blocks; ``last`` is
    all ones if they are their messages' last, else zero.
    """
    for group in range(chain.shape[0]):
        h, m = chain[group].reshape(512), message[group].reshape(512)
        for i in range(_LANES):
            h0, h1, h2, h3 = h[i], h[64 + i], h[128 + i], h[192 + i]
            h4, h5, h6, h7 = h[256 + i], h[320 + i], h[384 + i], h[448 + i]
            m0, m1, m2, m3 = m[i], m[64 + i], m[128 + i], m[192 + i]
            m4, m5, m6, m7 = m[256 + i], m[320 + i], m[384 + i], m[448 + i]
            c = _compressed((h0, h1, h2, h3, h4, h5, h6, h7), (m0, m1, m2, m3, m4, m5, m6, m7), length, last)
            h[i], h[64 + i], h[128 + i], h[192 + i] = c[0], c[1], c[2], c[3]
            h[256 + i], h[320 + i], h[384 + i], h[448 + i] = c[4], c[5], c[6], c[7]


@inline_late
def _compressed(h: State, m: State, length: Word, last: Word) -> State:
    """Return the chain value behind h: all twelve rounds on words 0 to 7 of a block; the others are zero."""
    k0, k1, k2, k3, k4, k5, k6, k7 = _INITIAL
    m0, m1, m2, m3, m4, m5, m6, m7 = m
    v = (h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], k0, k1, k2, k3, k4 ^ length, k5, k6 ^ last, k7)
    v = _round(v, (m0, m1, m2, m3, m4, m5, m6, m7, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO))
    v = _round(v, (_ZERO, _ZERO, m4, _ZERO, _ZERO, _ZERO, _ZERO, m6, m1, _ZERO, m0, m2, _ZERO, m7, m5, m3))
    v = _round(v, (_ZERO, _ZERO, _ZERO, m0, m5, m2, _ZERO, _ZERO, _ZERO, _ZERO, m3, m6, m7, m1, _ZERO, m4))
    v = _round(v, (m7, _ZERO, m3, m1, _ZERO, _ZERO, _ZERO, _ZERO, m2, m6, m5, _ZERO, m4, m0, _ZERO, _ZERO))
    v = _round(v, (_ZERO, m0, m5, m7, m2, m4, _ZERO, _ZERO, _ZERO, m1, _ZERO, _ZERO, m6, _ZERO, m3, _ZERO))
    v = _round(v, (m2, _ZERO, m6, _ZERO, m0, _ZERO, _ZERO, m3, m4, _ZERO, m7, m5, _ZERO, _ZERO, m1, _ZERO))
    v = _round(v, (_ZERO, m5, m1, _ZERO, _ZERO, _ZERO, m4, _ZERO, m0, m7, m6, m3, _ZERO, m2, _ZERO, _ZERO))
    v = _round(v, (_ZERO, _ZERO, m7, _ZERO, _ZERO, m1, m3, _ZERO, m5, m0, _ZERO, m4, _ZERO, m6, m2, _ZERO))
    v = _round(v, (m6, _ZERO, _ZERO, _ZERO, _ZERO, m3, m0, _ZERO, _ZERO, m2, _ZERO, m7, m1, m4, _ZERO, m5))
    v = _round(v, (_ZERO, m2, _ZERO, m4, m7, m6, m1, m5, _ZERO, _ZERO, _ZERO, _ZERO, m3, _ZERO, _ZERO, m0))
    v = _round(v, (m0, m1, m2, m3, m4, m5, m6, m7, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO))
    v = _round(v, (_ZERO, _ZERO, m4, _ZERO, _ZERO, _ZERO, _ZERO, m6, m1, _ZERO, m0, m2, _ZERO, m7, m5, m3))
    first = h[0] ^ v[0] ^ v[8], h[1] ^ v[1] ^ v[9], h[2] ^ v[2] ^ v[10], h[3] ^ v[3] ^ v[11]
    return (*first, h[4] ^ v[4] ^ v[12], h[5] ^ v[5] ^ v[13], h[6] ^ v[6] ^ v[14], h[7] ^ v[7] ^ v[15])


@inline_late
def _round(v: State, m: State) -> State:
    """Mix the columns, then the diagonals of the 4 x 4 state; the block's words ``m`` are in the round's order."""
    a0, b0, c0, d0 = _mix(v[0], v[4], v[8], v[12], (m[0], m[1]))
    a1, b1, c1, d1 = _mix(v[1], v[5], v[9], v[13], (m[2], m[3]))
    a2, b2, c2, d2 = _mix(v[2], v[6], v[10], v[14], (m[4], m[5]))
    a3, b3, c3, d3 = _mix(v[3], v[7], v[11], v[15], (m[6], m[7]))
    a0, b1, c2, d3 = _mix(a0, b1, c2, d3, (m[8], m[9]))
    a1, b2, c3, d0 = _mix(a1, b2, c3, d0, (m[10], m[11]))
    a2, b3, c0, d1 = _mix(a2, b3, c0, d1, (m[12], m[13]))
    a3, b0, c1, d2 = _mix(a3, b0, c1, d2, (m[14], m[15]))
    return (a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3)


@inline_late
def _mix(a: Word, b: Word, c: Word, d: Word, words: State) -> State:
    """Add two of the block's words to four of the state's, with rotations to the right by 32, 24, 16 and 63."""
    a = a + b + words[0]
    d = d ^ a
    d = (d >> np.uint64(32)) | (d << np.uint64(32))
    c = c + d
    b = b ^ c
    b = (b >> np.uint64(24)) | (b << np.uint64(40))
    a = a + b + words[1]
    d = d ^ a
    d = (d >> np.uint64(16)) | (d << np.uint64(48))
    c = c + d
    b = b ^ c
    b = (b >> np.uint64(63)) | (b << np.uint64(1))
    return (a, b, c, d)


START = _start(_BLOCK, 1)[0, :, 0].copy()
"""Chain values before an output block but for the node offset, (8,)."""
