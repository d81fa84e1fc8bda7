"""The encrypted engine: SEAL's evaluator through ``tenseal.sealapi``, and SEAL's files.

This is the only file that imports tenseal.

The library saves and loads through file names only, so messages pass through one file in a private directory (in memory
where the system has /dev/shm). Only ciphertexts and evaluation keys are ever written there, never a secret key.

Randomness: SEAL's generator for encryptions, seeded by the operating system for every one. The noise of a reply comes
from the kernels.

Files: SEAL's (4.x) are taken apart and put together, and turned into compact bytes (:mod:`rlwe.wire_bytes`). Nothing
that comes from the other party is parsed by native code before its length and every residue were checked here. Seeds
are SEAL's, 64 bytes, which SEAL alone expands: parties on SEAL and on the kernels do not read each other.

A file is a 16-byte header ``<HBBBBHQ`` (0xA15E, header size, major, minor, compression 0 none / 2 zstd, 0, total size),
then the payload. Ciphertext payload: parms id 4 x u64, is_ntt u8, size, n, primes (u64 each), scale f64, correction
factor u64; then a nested file with a u64 word count and the residues (polynomial, prime, coefficient), and for a seeded
ciphertext, which stores the first polynomial only, a nested file with the generator's type and its 64-byte seed. Galois
keys: parms id, u64 n; for each of n places a u64 count of digits (0: no key), each a nested ciphertext. Place i holds
the key of Galois element 2 i + 1.
"""

# The library has no type stubs; what its objects may be is checked at run time, by the library and by the tests.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import shutil
import struct
import tempfile
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tenseal.sealapi as seal
import zstandard

from privcirnet.errors import RuleError
from privcirnet.he.bfv.interface import SequentialClient, SequentialServer
from privcirnet.he.bfv.kernel_engine import ClientKeys
from privcirnet.he.bfv.kernels import plaintexts, reply
from privcirnet.he.bfv.noise import flood_bits
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, Parameters, ReplyFormat, key_bytes, message_bytes
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import wire_bytes
from privcirnet.he.rlwe.kernels.rns import ring
from privcirnet.he.rlwe.parameters import RELINEARIZATION
from privcirnet.he.rlwe.switch_keys import KeySwitchingKeys
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
    return wire_bytes.pack(c0 if sent is None else c0[:, sent], level.bits) + seed


def compact_reply(payload: bytes, level: Level, replies: ReplyFormat, sent: Integers | None = None) -> bytes:
    """Return the bytes of a full ciphertext, rounded (:mod:`bfv.parameters`).

    Args:
        sent: ascending coefficients of c0 that the bytes hold; None: all of them.
    """
    c0, c1 = polynomials(payload, level)
    halves = (c0 if sent is None else c0[:, sent]), c1
    forms = [reply.rounding_tables(level.primes, bits) for bits in replies.bits]
    return b"".join(reply.pack(*pair) for pair in zip(halves, forms, strict=True))


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
    words[0][:, places] = wire_bytes.unpack(message[:end], level.primes, level.bits)
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
    words[0][:, places] = reply.unpack(first, reply.rounding_tables(level.primes, replies.bits.first), count)
    words[1] = reply.unpack(second, reply.rounding_tables(level.primes, replies.bits.second), n)
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


class _Context:
    """Objects that both sides derive from the parameters."""

    def __init__(self, parameters: Parameters) -> None:
        n = parameters.ring_degree
        literal = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
        literal.set_poly_modulus_degree(n)
        literal.set_coeff_modulus(seal.CoeffModulus.Create(n, list(parameters.coefficient_bits)))
        literal.set_plain_modulus(parameters.plain_modulus)
        self.seal = seal.SEALContext(literal, True, seal.SEC_LEVEL_TYPE.TC128)
        if not self.seal.parameters_set():
            raise RuleError(
                "SEAL must accept the parameters",
                got=f"{parameters}: {self.seal.parameters_error_message()}",
                remedy="let parameters.choose pick them",
            )
        shm = Path("/dev/shm")
        folder = tempfile.mkdtemp(prefix="privcirnet-", dir=shm if shm.is_dir() else None)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._file = Path(folder) / "object.seal"
        self._version = self._library_version()
        self.encoder = seal.BatchEncoder(self.seal)
        primes = tuple(m.value() for m in literal.coeff_modulus())
        self.replies = ReplyFormat.of(parameters, primes)
        reply_primes = len(self.replies.modulus.primes)
        self.key_level = self._level(self.seal.key_parms_id(), primes)
        self.data_level = self._level(self.seal.first_parms_id(), primes[:-1])
        self.reply_level = self._level(_parms_id_of(self.seal, reply_primes), primes[:reply_primes])

    def _library_version(self) -> Version:
        """Return SEAL's version, as it writes it."""
        seal.Plaintext().save(str(self._file))
        return version_of(self._file.read_bytes())

    def _level(self, parms_id: Any, primes: tuple[int, ...]) -> Level:
        return Level(primes, self.encoder.slot_count(), tuple(parms_id), self._version)

    def encode(self, slots: Residues) -> Any:
        """Return slots as a plaintext in coefficient form."""
        plaintext = seal.Plaintext()
        self.encoder.encode(slots.tolist(), plaintext)
        return plaintext

    def save(self, item: Any) -> bytes:
        """Return the payload of a SEAL object."""
        item.save(str(self._file))
        return unwrap(self._file.read_bytes())

    def load(self, item: Any, payload: bytes) -> Any:
        """Fill a SEAL object from a payload that was checked."""
        self._file.write_bytes(wrap(payload, self._version))
        item.load(self.seal, str(self._file))
        return item


class TensealClient(SequentialClient):
    """The client's side: it makes the keys, encrypts with the secret key (seeded) and decrypts.

    Args:
        parameters: n, q, t.

    Raises:
        RuleError: SEAL does not accept the parameters.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._context = _Context(parameters)
        self._keys: Any = seal.KeyGenerator(self._context.seal)
        secret_key = self._keys.secret_key()
        self._encryptor: Any = seal.Encryptor(self._context.seal, secret_key)
        self._decryptor: Any = seal.Decryptor(self._context.seal, secret_key)

    def keys(self, names: Collection[int]) -> bytes:
        """Return seeded keys, the public one first: an encryption of zero. Galois keys ascend by their elements."""
        context, created, elements = self._context, list[Any](), _elements(names)
        if RELINEARIZATION in names:
            created.append(self._keys.create_relin_keys())
        if elements:
            created.append(self._keys.create_galois_keys(elements))
        digits, public = len(context.data_level.primes), np.zeros(self.parameters.ring_degree, dtype=np.uint64)
        compact = [compact_keys(context.save(key), context.key_level, digits) for key in created]
        return b"".join([self.encrypt(public), *compact])

    def encrypt(self, slots: Residues, sent: Integers | None = None) -> bytes:
        """Return a seeded ciphertext: one polynomial, whole or in part, and a seed."""
        ciphertext = self._encryptor.encrypt_symmetric(self._context.encode(slots))
        return compact(self._context.save(ciphertext), self._context.data_level, sent)

    def decrypt(self, message: bytes, sent: Integers | None = None) -> Residues:
        """Decrypt a reply; coefficients of c0 that were not sent count as zero."""
        payload = expand_reply(message, self._context.reply_level, self._context.replies, sent)
        ciphertext = self._context.load(seal.Ciphertext(self._context.seal), payload)
        plaintext = seal.Plaintext()
        self._decryptor.decrypt(ciphertext, plaintext)
        return np.array(self._context.encoder.decode_uint64(plaintext), dtype=np.uint64)

    def close(self) -> None:
        """Drop the last reference to the secrets, which SEAL then zeroes."""
        self._keys = self._encryptor = self._decryptor = None


class TensealServer(SequentialServer):
    """The server's side: evaluation only.

    Args:
        parameters: n, q, t.

    Raises:
        RuleError: SEAL does not accept the parameters.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._context = _Context(parameters)
        self._evaluator = seal.Evaluator(self._context.seal)
        rlwe, t = parameters.rlwe, parameters.plain_modulus
        self._ring, plain = ring(rlwe.primes, rlwe.ring_degree), plaintexts.plain(t, rlwe.data_primes, rlwe.ring_degree)
        self._form = reply.reply_tables(self._ring, plain, self._context.replies, flood_bits(parameters))

    def load(self, message: bytes, names: Collection[int]) -> ClientKeys:
        level, context, elements = self._context.key_level, self._context, _elements(names)
        digits, relinearizes = len(context.data_level.primes), RELINEARIZATION in names
        public, key_size = (
            message_bytes(self.parameters, SEAL_SEED_BYTES)[0],
            key_bytes(self.parameters, SEAL_SEED_BYTES),
        )
        check_keys_length(message, public + key_size * (relinearizes + len(elements)))
        end = public + key_size * relinearizes
        switches = KeySwitchingKeys()
        if relinearizes:
            payload = expand_relinearization_key(message[public:end], level, digits)
            switches[RELINEARIZATION] = context.load(seal.RelinKeys(), payload)
        if elements:
            galois = context.load(seal.GaloisKeys(), expand_keys(message[end:], level, digits, elements))
            switches.update({element: galois for element in elements})
        zero = polynomials(context.save(self.receive(message[:public])), context.data_level)
        key = reply.PublicKey.build(self._ring, self._ring.values(zero))
        return ClientKeys(switches, key)

    def receive(self, message: bytes, sent: Integers | None = None) -> Any:
        """Return a ciphertext, whose seed SEAL expands."""
        payload = expand(message, self._context.data_level, sent, ntt=False)
        return self._context.load(seal.Ciphertext(self._context.seal), payload)

    def encode(self, slots: Residues, primes: int = 0) -> Any:
        return self._context.encode(slots)

    def encode_factor(self, slots: Residues) -> Any:
        plaintext = self._context.encode(slots)
        self._evaluator.transform_to_ntt_inplace(plaintext, list(self._context.data_level.parms_id))
        return plaintext

    def add_plain(self, ciphertext: Any, plaintext: Any) -> Any:
        return self._apply(self._evaluator.add_plain, ciphertext, plaintext)

    def turn(self, ciphertext: Any, element: int, keys: ClientKeys) -> Any:
        """Apply an automorphism and a key switch."""
        key = keys.switches[element]
        self.counts["rotate"] += 1
        return self._apply(self._evaluator.apply_galois, ciphertext, element, key)

    def to_ntt(self, ciphertext: Any) -> Any:
        self.counts["to_ntt"] += 1
        return self._apply(self._evaluator.transform_to_ntt, ciphertext)

    def from_ntt(self, ciphertext: Any) -> Any:
        self.counts["from_ntt"] += 1
        return self._apply(self._evaluator.transform_from_ntt, ciphertext)

    def multiply(self, ciphertext: Any, plaintext: Any) -> Any:
        self.counts["pmult"] += 1
        return self._apply(self._evaluator.multiply_plain, ciphertext, plaintext)

    def add(self, first: Any, second: Any) -> Any:
        self.counts["add"] += 1
        return self._apply(self._evaluator.add, first, second)

    def square(self, ciphertext: Any, keys: ClientKeys) -> Any:
        self.counts["square"] += 1
        product = self._apply(self._evaluator.square, ciphertext)
        return self._apply(self._evaluator.relinearize, product, keys.switches[RELINEARIZATION])

    def reply(self, ciphertext: Any, keys: ClientKeys, sent: Integers | None = None) -> bytes:
        """Add an encryption of zero and flooding noise, then switch q down."""
        level = self._context.reply_level
        hidden = self._hide(ciphertext, keys)
        switched = self._apply(self._evaluator.mod_switch_to, hidden, list(level.parms_id))
        return compact_reply(self._context.save(switched), level, self._context.replies, sent)

    def zero(self, keys: ClientKeys) -> Any:
        """Return a fresh encryption of zero with flooding noise (:mod:`bfv.kernels.reply`)."""
        payload = addend(reply.hiding(keys.public, self._form), self._context.data_level)
        return self._context.load(seal.Ciphertext(self._context.seal), payload)

    def _hide(self, ciphertext: Any, keys: ClientKeys) -> Any:
        return self._apply(self._evaluator.add, ciphertext, self.zero(keys))

    def _apply(self, operation: Any, *arguments: Any) -> Any:
        result = seal.Ciphertext(self._context.seal)
        operation(*arguments, result)
        return result


def _elements(names: Collection[int]) -> list[int]:
    """Return the Galois elements, ascending: the order of SEAL's file."""
    return sorted({*names} - {RELINEARIZATION})


def _parms_id_of(context: Any, primes: int) -> ParmsId:
    data = context.first_context_data()
    while len(data.parms().coeff_modulus()) > primes:
        data = data.next_context_data()
    return tuple(data.parms_id())
