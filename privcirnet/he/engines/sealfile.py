"""SEAL's files (4.x) taken apart and put together, and the compact bytes that cross the network instead of them.

Nothing that comes from the other party is parsed by native code before its length and every residue were checked here.

SEAL file: a 16-byte header ``<HBBBBHQ`` (0xA15E, header size, major, minor, compression 0 none / 2 zstd, 0, total
size), then the payload. Ciphertext payload: parms id 4 x u64, is_ntt u8, size, n, primes (u64 each), scale f64,
correction factor u64; then a nested file with a u64 word count and the residues (polynomial, prime, coefficient), and
for a seeded ciphertext, which stores the first polynomial only, a nested file with the generator's type and its 64-byte
seed. Galois keys: parms id, u64 n; for each of n places a u64 count of digits (0: no key), each a nested ciphertext.
Place i holds the key of Galois element 2 i + 1.

Compact bytes: each residue in ceil(bits of its prime / 8) bytes, little-endian, in SEAL's order; then the seed if there
is one. A reply of a coefficient encoding leaves out the coefficients of its first polynomial c0 that no output needs:
c0 + c1 s is taken coefficient by coefficient, so the others decrypt without them (Cheetah's "N + n" of 2 N numbers).
So do both messages of values in a subring (:mod:`encodings.subring`).
Both parties know every length from the parameters, so nothing else is sent and any other length is refused.
"""

import struct
from dataclasses import dataclass

import numpy as np
import zstandard

from privcirnet.errors import RuleError
from privcirnet.he.params.sizes import SEED_BYTES
from privcirnet.he.ring.modular import Integers, Residues

_HEADER = struct.Struct("<HBBBBHQ")
_MAGIC, _HEADER_SIZE = 0xA15E, 16
_CIPHERTEXT = struct.Struct("<4QB3QdQ")
_WORD = struct.Struct("<Q")
_SEED_FILE_SIZE = 81
_PRNG_BLAKE2XB = 1

ParmsId = tuple[int, int, int, int]
Version = tuple[int, int]
"""Major and minor version of the library, which every header repeats and the library insists on."""


@dataclass(frozen=True)
class Modulus:
    """What decides how long a ciphertext's compact bytes are."""

    primes: tuple[int, ...]
    ring_degree: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of a residue of each prime."""
        return tuple(-(-prime.bit_length() // 8) for prime in self.primes)

    def compact_size(self, polynomials: int) -> int:
        """Compact bytes of that many polynomials."""
        return self.coefficients_size(polynomials * self.ring_degree)

    def coefficients_size(self, coefficients: int) -> int:
        """Compact bytes of that many coefficients."""
        return coefficients * sum(self.widths)


@dataclass(frozen=True)
class Level(Modulus):
    """A modulus as SEAL's files name it."""

    parms_id: ParmsId
    version: Version


def unwrap(file: bytes) -> bytes:
    """Payload of a SEAL file that this process wrote."""
    compression = _HEADER.unpack_from(file)[4]
    payload = file[_HEADER_SIZE:]
    return zstandard.ZstdDecompressor().decompressobj().decompress(payload) if compression else payload


def version_of(file: bytes) -> Version:
    """SEAL's version in a file that this process wrote."""
    return _HEADER.unpack_from(file)[2:4]


def wrap(payload: bytes, version: Version) -> bytes:
    """A SEAL file without compression."""
    return _HEADER.pack(_MAGIC, _HEADER_SIZE, *version, 0, 0, _HEADER_SIZE + len(payload)) + payload


def compact(payload: bytes, level: Level, kept: Integers | None = None) -> bytes:
    """Compact bytes of a ciphertext's payload, seeded or full: of c0 only the ``kept`` coefficients (None: all)."""
    (c0, *others), seed = _words(payload, level)
    first = c0 if kept is None else c0[:, kept]
    return b"".join(_pack(polynomial, level) for polynomial in (first, *others)) + seed


def expand(message: bytes, level: Level, kept: Integers | None = None, *, seeded: bool, ntt: bool) -> bytes:
    """Payload of the ciphertext whose compact bytes are given, everything checked; zeros where nothing was kept.

    Raises:
        RuleError: wrong length, or a residue that is not under its prime.
    """
    polynomials, places = 1 if seeded else 2, slice(None) if kept is None else kept
    size = level.coefficients_size(level.ring_degree if kept is None else len(kept))
    end = size + (polynomials - 1) * level.compact_size(1)
    check_length(message, end + (SEED_BYTES if seeded else 0))
    words = np.zeros((polynomials, len(level.primes), level.ring_degree), dtype=np.uint64)
    words[0][:, places] = _unpack(message[:size], level)
    if not seeded:
        words[1] = _unpack(message[size:end], level)
    return _payload(words, level, message[end:], ntt=ntt)


def addend(polynomial: Residues, level: Level) -> bytes:
    """Payload of the "ciphertext" (polynomial, 0) in coefficient form: adding it adds to a ciphertext's noise.

    Args:
        polynomial: residues, (primes, n).
        level: of the ciphertext that it will be added to.
    """
    return _payload(np.stack([polynomial, np.zeros_like(polynomial)]), level, b"", ntt=False)


def check_length(message: bytes, expected: int) -> None:
    """Raise unless a message has the expected number of bytes.

    Raises:
        RuleError: it has not.
    """
    if len(message) != expected:
        raise RuleError(
            "a ciphertext must have the length that the parameters fix",
            got=f"{len(message)} bytes where {expected} are due",
            remedy="use the same version and parameters on both sides",
        )


def _words(payload: bytes, level: Level) -> tuple[Residues, bytes]:
    """Residues (polynomial, prime, coefficient) of a ciphertext's payload, and its seed if there is one."""
    prime_words = len(level.primes) * level.ring_degree
    rest = payload[_CIPHERTEXT.size + _HEADER_SIZE + _WORD.size :]
    seeded = len(rest) == 8 * prime_words + _SEED_FILE_SIZE
    polynomials = 1 if seeded else len(rest) // (8 * prime_words)
    words = np.frombuffer(rest[: 8 * prime_words * polynomials], dtype="<u8")
    seed = rest[-SEED_BYTES:] if seeded else b""
    return words.reshape(polynomials, len(level.primes), level.ring_degree), seed


def _payload(words: Residues, level: Level, seed: bytes, *, ntt: bool) -> bytes:
    body = words.astype("<u8").tobytes()
    head = _CIPHERTEXT.pack(*level.parms_id, ntt, 2, level.ring_degree, len(level.primes), 1.0, 1)
    tail = wrap(bytes([_PRNG_BLAKE2XB]) + seed, level.version) if seed else b""
    array_header = _HEADER.pack(_MAGIC, _HEADER_SIZE, *level.version, 0, 0, _HEADER_SIZE + 8 + len(body))
    return head + array_header + _WORD.pack(words.size) + body + tail


def check_keys_length(message: bytes, public: int, galois: int) -> None:
    """Raise unless a client's keys are as long as its public key and its Galois keys together.

    Raises:
        RuleError: they are not.
    """
    if len(message) < public:
        raise RuleError(
            "the client's keys must begin with its public key",
            got=f"{len(message)} bytes",
            remedy="send what Client.keys returns",
        )
    if len(message) != public + galois:
        raise RuleError(
            "Galois keys must have the length that the plan's rotations fix",
            got=f"{len(message) - public} bytes where {galois} are due",
            remedy="send keys for exactly the program's rotations",
        )


def compact_keys(payload: bytes, level: Level, digits: int) -> bytes:
    """Compact bytes of seeded Galois keys, in the order of their elements."""
    position = 4 * 8 + 8
    pieces: list[bytes] = []
    while position < len(payload):
        (count,) = _WORD.unpack_from(payload, position)
        position += 8
        assert count in (0, digits)
        for _ in range(count):
            size = _HEADER.unpack_from(payload, position)[6]
            pieces.append(compact(payload[position + _HEADER_SIZE : position + size], level))
            position += size
    return b"".join(pieces)


def expand_keys(message: bytes, level: Level, digits: int, elements: list[int]) -> bytes:
    """Payload of the Galois keys for these elements (ascending) from their compact bytes.

    Raises:
        RuleError: wrong length, or a residue that is not under its prime.
    """
    size = level.compact_size(1) + SEED_BYTES
    check_keys_length(message, 0, size * digits * len(elements))
    pieces = [_WORD.pack(0)] * level.ring_degree
    for index, element in enumerate(elements):
        start = index * digits * size
        bodies = [message[start + d * size : start + (d + 1) * size] for d in range(digits)]
        files = [wrap(expand(body, level, seeded=True, ntt=True), level.version) for body in bodies]
        pieces[(element - 1) // 2] = _WORD.pack(digits) + b"".join(files)
    return struct.pack("<4Q", *level.parms_id) + _WORD.pack(level.ring_degree) + b"".join(pieces)


def _pack(words: Residues, level: Level) -> bytes:
    """(primes, coefficients) as compact bytes."""
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
    return b"".join(octets[j, :, :width].tobytes() for j, width in enumerate(level.widths))


def _unpack(message: bytes, level: Level) -> Residues:
    """Inverse of :func:`_pack`: (primes, coefficients)."""
    count = len(message) // sum(level.widths)
    octets = np.zeros((len(level.primes), count, 8), dtype=np.uint8)
    position = 0
    for j, width in enumerate(level.widths):
        part = np.frombuffer(message, dtype=np.uint8, count=width * count, offset=position)
        octets[j, :, :width] = part.reshape(count, width)
        position += width * count
    words = octets.view("<u8")[..., 0]
    primes = np.array(level.primes, dtype=np.uint64)[:, None]
    if (words >= primes).any():
        raise RuleError("every residue must be under its prime", got="one that is not", remedy="send it again")
    return words
