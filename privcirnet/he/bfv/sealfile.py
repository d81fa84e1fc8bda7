"""SEAL's files (4.x) taken apart and put together, and turned into compact bytes (:mod:`rlwe.wire_bytes`).

Seeds are SEAL's, 64 bytes, which SEAL alone expands: parties on SEAL and on the kernels do not read each other.

Nothing that comes from the other party is parsed by native code before its length and every residue were checked here.

SEAL file: a 16-byte header ``<HBBBBHQ`` (0xA15E, header size, major, minor, compression 0 none / 2 zstd, 0, total
size), then the payload. Ciphertext payload: parms id 4 x u64, is_ntt u8, size, n, primes (u64 each), scale f64,
correction factor u64; then a nested file with a u64 word count and the residues (polynomial, prime, coefficient), and
for a seeded ciphertext, which stores the first polynomial only, a nested file with the generator's type and its 64-byte
seed. Galois keys: parms id, u64 n; for each of n places a u64 count of digits (0: no key), each a nested ciphertext.
Place i holds the key of Galois element 2 i + 1.
"""

import struct
from dataclasses import dataclass

import numpy as np
import zstandard

from privcirnet.he.bfv.kernels import rounding
from privcirnet.he.bfv.rounding import ReplyFormat
from privcirnet.he.bfv.sizes import SEAL_SEED_BYTES
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import wire_bytes
from privcirnet.he.rlwe.wire_bytes import WireFormat, check_keys_length, check_length

_HEADER = struct.Struct("<HBBBBHQ")
_MAGIC, _HEADER_SIZE = 0xA15E, 16
_CIPHERTEXT = struct.Struct("<4QB3QdQ")
_WORD = struct.Struct("<Q")
_SEED_FILE_SIZE = 81
_GENERATOR = 1

ParmsId = tuple[int, int, int, int]
Version = tuple[int, int]
"""Major and minor version of the library, which every header repeats and the library insists on."""


@dataclass(frozen=True)
class Level(WireFormat):
    """A modulus as SEAL's files name it.

    Attributes:
        parms_id: SEAL's hash of the parameters at this level.
    """

    parms_id: ParmsId
    version: Version


def unwrap(file: bytes) -> bytes:
    """Return the payload of a SEAL file.

    Args:
        file: bytes that this process wrote, compressed or not.
    """
    compression = _HEADER.unpack_from(file)[4]
    payload = file[_HEADER_SIZE:]
    return zstandard.ZstdDecompressor().decompressobj().decompress(payload) if compression else payload


def version_of(file: bytes) -> Version:
    """Return SEAL's version in a file."""
    return _HEADER.unpack_from(file)[2:4]


def wrap(payload: bytes, version: Version) -> bytes:
    """Return a SEAL file without compression."""
    return _HEADER.pack(_MAGIC, _HEADER_SIZE, *version, 0, 0, _HEADER_SIZE + len(payload)) + payload


def compact(payload: bytes, level: Level, sent: Integers | None = None) -> bytes:
    """Return the compact bytes of a seeded ciphertext.

    Args:
        sent: ascending coefficients of c0 that the bytes hold; None: all of them.
    """
    (c0,), seed = _words(payload, level)
    return wire_bytes.pack(c0 if sent is None else c0[:, sent], level.widths) + seed


def compact_reply(payload: bytes, level: Level, replies: ReplyFormat, sent: Integers | None = None) -> bytes:
    """Return the bytes of a full ciphertext, rounded (:mod:`bfv.rounding`).

    Args:
        sent: ascending coefficients of c0 that the bytes hold; None: all of them.
    """
    c0, c1 = polynomials(payload, level)
    halves = (c0 if sent is None else c0[:, sent]), c1
    forms = [rounding.rounding_tables(level.primes, bits) for bits in replies.bits]
    return b"".join(rounding.pack(*pair) for pair in zip(halves, forms, strict=True))


def expand(message: bytes, level: Level, sent: Integers | None = None, *, ntt: bool) -> bytes:
    """Check compact bytes and make the payload of SEAL's file for their ciphertext, seeded.

    Args:
        message: compact bytes.
        sent: ascending coefficients of c0 that the bytes hold; the others become zero. None: all of them.
        ntt: whether the ciphertext is in NTT form.

    Returns:
        the payload.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    places = slice(None) if sent is None else sent
    end = level.coefficients_size(level.ring_degree if sent is None else len(sent))
    check_length(message, end + SEAL_SEED_BYTES)
    words = np.zeros((1, len(level.primes), level.ring_degree), dtype=np.uint64)
    words[0][:, places] = wire_bytes.unpack(message[:end], level.primes, level.widths)
    return _payload(words, level, message[end:], ntt=ntt)


def expand_reply(message: bytes, level: Level, replies: ReplyFormat, sent: Integers | None = None) -> bytes:
    """Check a reply and make the payload of SEAL's file for its ciphertext.

    Args:
        message: result of :func:`compact_reply`.
        sent: ascending coefficients of c0 that the bytes hold; the others become zero. None: all of them.

    Returns:
        the payload.

    Raises:
        RuleError: the length is wrong.
    """
    n, places = level.ring_degree, slice(None) if sent is None else sent
    count = n if sent is None else len(sent)
    first, second = replies.cut(message, count)
    words = np.zeros((2, len(level.primes), n), dtype=np.uint64)
    words[0][:, places] = rounding.unpack(first, rounding.rounding_tables(level.primes, replies.bits.first), count)
    words[1] = rounding.unpack(second, rounding.rounding_tables(level.primes, replies.bits.second), n)
    return _payload(words, level, b"", ntt=False)


def polynomials(payload: bytes, level: Level) -> Residues:
    """Return the residues of a full ciphertext, shape (2, primes, n)."""
    return _words(payload, level)[0]


def addend(polynomials: Residues, level: Level) -> bytes:
    """Return the payload of a "ciphertext" in coefficient form, which adds to another one's noise.

    Args:
        polynomials: residues, shape (2, primes, n).
        level: level of the ciphertext that it will be added to.
    """
    return _payload(polynomials, level, b"", ntt=False)


def _words(payload: bytes, level: Level) -> tuple[Residues, bytes]:
    """Return the residues (polynomial, prime, coefficient) of a ciphertext's payload, and its seed if there is one."""
    prime_words = len(level.primes) * level.ring_degree
    rest = payload[_CIPHERTEXT.size + _HEADER_SIZE + _WORD.size :]
    seeded = len(rest) == 8 * prime_words + _SEED_FILE_SIZE
    polynomials = 1 if seeded else len(rest) // (8 * prime_words)
    words = np.frombuffer(rest[: 8 * prime_words * polynomials], dtype="<u8")
    seed = rest[-SEAL_SEED_BYTES:] if seeded else b""
    return words.reshape(polynomials, len(level.primes), level.ring_degree), seed


def _payload(words: Residues, level: Level, seed: bytes, *, ntt: bool) -> bytes:
    body = words.astype("<u8").tobytes()
    head = _CIPHERTEXT.pack(*level.parms_id, ntt, 2, level.ring_degree, len(level.primes), 1.0, 1)
    tail = wrap(bytes([_GENERATOR]) + seed, level.version) if seed else b""
    array_header = _HEADER.pack(_MAGIC, _HEADER_SIZE, *level.version, 0, 0, _HEADER_SIZE + 8 + len(body))
    return head + array_header + _WORD.pack(words.size) + body + tail


def compact_keys(payload: bytes, level: Level, digits: int) -> bytes:
    """Return the compact bytes of Galois keys, in the order of their elements, or of a relinearisation key.

    Args:
        level: level of keys: all primes.
        digits: number of digits of each key, one for each data prime.
    """
    position = 4 * 8 + 8
    pieces: list[bytes] = []
    while position < len(payload):
        (count,) = _WORD.unpack_from(payload, position)
        position += 8
        if count not in (0, digits):
            raise ValueError(f"a Galois key must have {digits} digits, or none: got {count}")
        for _ in range(count):
            size = _HEADER.unpack_from(payload, position)[6]
            pieces.append(compact(payload[position + _HEADER_SIZE : position + size], level))
            position += size
    return b"".join(pieces)


def expand_keys(message: bytes, level: Level, digits: int, elements: list[int]) -> bytes:
    """Check compact bytes and make the payload of SEAL's file for their Galois keys.

    Args:
        message: compact bytes.
        level: level of keys: all primes.
        digits: number of digits of each key, one for each data prime.

    Returns:
        the payload.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    return _keys_payload(message, level, digits, [(element - 1) // 2 for element in elements], level.ring_degree)


def expand_relinearization_key(message: bytes, level: Level, digits: int) -> bytes:
    """Check compact bytes and make the payload of SEAL's file for their relinearisation key, of products of two.

    Args:
        message: compact bytes.
        level: level of keys: all primes.
        digits: number of digits of the key, one for each data prime.

    Returns:
        the payload.

    Raises:
        RuleError: the length is wrong, or a residue is not under its prime.
    """
    return _keys_payload(message, level, digits, [0], 1)


def _keys_payload(message: bytes, level: Level, digits: int, places: list[int], count: int) -> bytes:
    """Return key switching keys at some of a number of places; the others are empty."""
    size = level.compact_size(1) + SEAL_SEED_BYTES
    check_keys_length(message, size * digits * len(places))
    pieces = [_WORD.pack(0)] * count
    for index, place in enumerate(places):
        start = index * digits * size
        bodies = [message[start + d * size : start + (d + 1) * size] for d in range(digits)]
        files = [wrap(expand(body, level, ntt=True), level.version) for body in bodies]
        pieces[place] = _WORD.pack(digits) + b"".join(files)
    return struct.pack("<4Q", *level.parms_id) + _WORD.pack(count) + b"".join(pieces)
