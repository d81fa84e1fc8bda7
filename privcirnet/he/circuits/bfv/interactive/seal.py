"""The encrypted engine: SEAL's evaluator through ``tenseal.sealapi``. The only file that imports tenseal.

The library saves and loads through file names only, so messages pass through one file in a private directory (in memory
where the system has /dev/shm). Only ciphertexts and evaluation keys are ever written there, never a secret key.

Randomness: of encryptions SEAL's generator, seeded by the operating system for every one. What hides a reply is made
by the kernels.
"""

# The library has no type stubs; what its objects may be is checked at run time, by the library and by the tests.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.interactive.sequential import Sequential, SequentialClient
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe import wire_bytes
from privcirnet.he.rlwe.kernels.modulus import ring
from privcirnet.he.rlwe.seeded import read_one
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES
from privcirnet.he.schemes.bfv import sealfile
from privcirnet.he.schemes.bfv.kernels import plaintexts, reply
from privcirnet.he.schemes.bfv.kernels.reply import PublicKey
from privcirnet.he.schemes.bfv.noise import flood_bits
from privcirnet.he.schemes.bfv.parameters import Parameters
from privcirnet.he.schemes.bfv.rounding import Replies


class _Context:
    """What both sides derive from the parameters."""

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
        self.replies = Replies.of(parameters, primes)
        kept = len(self.replies.modulus.primes)
        self.key_level = self._level(self.seal.key_parms_id(), primes)
        self.data_level = self._level(self.seal.first_parms_id(), primes[:-1])
        self.reply_level = self._level(_parms_id_of(self.seal, kept), primes[:kept])

    def _library_version(self) -> sealfile.Version:
        """Return SEAL's version, as it writes it."""
        seal.Plaintext().save(str(self._file))
        return sealfile.version_of(self._file.read_bytes())

    def _level(self, parms_id: Any, primes: tuple[int, ...]) -> sealfile.Level:
        return sealfile.Level(primes, self.encoder.slot_count(), tuple(parms_id), self._version)

    def encode(self, slots: Residues) -> Any:
        """Return slots as a plaintext in coefficient form."""
        plaintext = seal.Plaintext()
        self.encoder.encode(slots.tolist(), plaintext)
        return plaintext

    def save(self, item: Any) -> bytes:
        """Return the payload of a SEAL object."""
        item.save(str(self._file))
        return sealfile.unwrap(self._file.read_bytes())

    def load(self, item: Any, payload: bytes) -> Any:
        """Fill a SEAL object from a payload that was checked."""
        self._file.write_bytes(sealfile.wrap(payload, self._version))
        item.load(self.seal, str(self._file))
        return item


@dataclass(frozen=True)
class TensealKeys:
    """The client's evaluation keys and its public key."""

    galois: Any
    public: PublicKey


class TensealClient(SequentialClient):
    """The client's side: it makes the keys, encrypts with the secret key (seeded) and decrypts.

    Args:
        parameters: n, q, t.

    Raises:
        RuleError: SEAL does not accept the parameters.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._context = _Context(parameters)
        self._keys: Any = seal.KeyGenerator(self._context.seal)
        secret_key = self._keys.secret_key()
        self._encryptor: Any = seal.Encryptor(self._context.seal, secret_key)
        self._decryptor: Any = seal.Decryptor(self._context.seal, secret_key)

    def public_keys(self, steps: Collection[int]) -> bytes:
        """The public key is an encryption of zero, and all of them are seeded."""
        public_key = self.encrypt(np.zeros(self.parameters.ring_degree, dtype=np.uint64))
        elements = _elements(steps, self.parameters.ring_degree)
        if not elements:
            return public_key
        payload, digits = self._context.save(self._keys.create_galois_keys(elements)), self._context.data_level.primes
        return public_key + sealfile.compact_keys(payload, self._context.key_level, len(digits))

    def encrypt(self, slots: Residues, kept: Integers | None = None) -> bytes:
        """The ciphertext is seeded: one polynomial, whole or in part, and a seed."""
        ciphertext = self._encryptor.encrypt_symmetric(self._context.encode(slots))
        return sealfile.compact(self._context.save(ciphertext), self._context.data_level, kept)

    def decrypt(self, message: bytes, kept: Integers | None = None) -> Residues:
        """Coefficients of c0 that were not sent count as zero."""
        payload = sealfile.expand_reply(message, self._context.reply_level, self._context.replies, kept)
        ciphertext = self._context.load(seal.Ciphertext(self._context.seal), payload)
        plaintext = seal.Plaintext()
        self._decryptor.decrypt(ciphertext, plaintext)
        return np.array(self._context.encoder.decode_uint64(plaintext), dtype=np.uint64)

    def close(self) -> None:
        """SEAL zeroes its secrets when the last reference to them ends: here."""
        self._keys = self._encryptor = self._decryptor = None


class TensealServer(Sequential):
    """The server's side: evaluation only.

    Args:
        parameters: n, q, t.

    Raises:
        RuleError: SEAL does not accept the parameters.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.counts: Counter[str] = Counter()
        self._context = _Context(parameters)
        self._evaluator = seal.Evaluator(self._context.seal)
        rlwe, t = parameters.rlwe, parameters.plain_modulus
        self._ring, plain = ring(rlwe.primes, rlwe.ring_degree), plaintexts.plain(t, rlwe.data_primes, rlwe.ring_degree)
        self._form = reply.form(self._ring, plain, self._context.replies, flood_bits(parameters))

    def load_keys(self, message: bytes, steps: Collection[int]) -> TensealKeys:
        level, context = self._context.key_level, self._context
        elements, digits = _elements(steps, self.parameters.ring_degree), len(context.data_level.primes)
        size, each = (one.compact_size(1) + SEED_BYTES for one in (context.data_level, level))
        wire_bytes.check_keys_length(message, size, each * digits * len(elements))
        payload = sealfile.expand_keys(message[size:], level, digits, elements)
        galois = context.load(seal.GaloisKeys(), payload)
        return TensealKeys(galois, self._public_key(message[:size]))

    def _public_key(self, message: bytes) -> PublicKey:
        return PublicKey.build(self._ring, self._ring.values(read_one(message, self._context.data_level)))

    def receive(self, message: bytes, kept: Integers | None = None) -> Any:
        """SEAL expands the seed."""
        payload = sealfile.expand(message, self._context.data_level, kept, ntt=False)
        return self._context.load(seal.Ciphertext(self._context.seal), payload)

    def encode(self, slots: Residues) -> Any:
        return self._context.encode(slots)

    def encode_factor(self, slots: Residues) -> Any:
        plaintext = self._context.encode(slots)
        self._evaluator.transform_to_ntt_inplace(plaintext, list(self._context.data_level.parms_id))
        return plaintext

    def add_plain(self, ciphertext: Any, plaintext: Any) -> Any:
        return self._apply(self._evaluator.add_plain, ciphertext, plaintext)

    def rotate(self, ciphertext: Any, step: int, keys: TensealKeys) -> Any:
        """The automorphism X -> X^(3^step) and a key switch."""
        self.counts["rotate"] += 1
        element = pow(3, step, 2 * self.parameters.ring_degree)
        return self._apply(self._evaluator.apply_galois, ciphertext, element, keys.galois)

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

    def reply(self, ciphertext: Any, keys: TensealKeys, kept: Integers | None = None) -> bytes:
        """An encryption of zero and flooding noise are added, then q is switched down."""
        level = self._context.reply_level
        hidden = self._hide(ciphertext, keys)
        switched = self._apply(self._evaluator.mod_switch_to, hidden, list(level.parms_id))
        return sealfile.compact_reply(self._context.save(switched), level, self._context.replies, kept)

    def _hide(self, ciphertext: Any, keys: TensealKeys) -> Any:
        """Add a fresh encryption of zero with flooding noise (:mod:`schemes.bfv.kernels.reply`)."""
        hidden = sealfile.addend(reply.hiding(keys.public, self._form), self._context.data_level)
        return self._apply(
            self._evaluator.add, ciphertext, self._context.load(seal.Ciphertext(self._context.seal), hidden)
        )

    def _apply(self, operation: Any, *arguments: Any) -> Any:
        result = seal.Ciphertext(self._context.seal)
        operation(*arguments, result)
        return result


def _elements(steps: Collection[int], ring_degree: int) -> list[int]:
    """Return the Galois elements 3^step mod 2n, ascending: the order of SEAL's file."""
    return sorted(pow(3, step, 2 * ring_degree) for step in steps)


def _parms_id_of(context: Any, primes: int) -> sealfile.ParmsId:
    data = context.first_context_data()
    while len(data.parms().coeff_modulus()) > primes:
        data = data.next_context_data()
    return tuple(data.parms_id())
