"""The client on compiled kernels: a secret key, the keys that it gives away, requests and decryption.

Secrets, errors and rounding are SEAL's, whose decryptor is an oracle. Randomness comes from the operating system: a
seed of its own for each uniform polynomial, which is sent, and a stream of its own for each error
(:func:`ring.sampling.stream`).
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from privcirnet.he.bfv.kernels import encryption, plaintexts
from privcirnet.he.bfv.parameters import Parameters, ReplyFormat
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.kernels import secret_key, wire_bytes
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.rlwe.parameters import RlweParameters, galois_element
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES
from privcirnet.he.system.threads import each


class BfvClient:
    """A secret key for one or several plain moduli, and everything that is made with it.

    A request for several t is encrypted mod T, their product: q m / T is the sum of q m_t / t over all t, with
    m_t = m (T / t)^-1 mod t.

    Args:
        rlwe: all primes.
        replies: parameters of replies, for each plain modulus.
    """

    def __init__(self, rlwe: RlweParameters, replies: Sequence[Parameters]) -> None:
        self.chain, self._moduli = ModulusChain(rlwe), [parameters.plain_modulus for parameters in replies]
        data, n, whole = rlwe.data_primes, rlwe.ring_degree, math.prod(self._moduli)
        self._plain = [plaintexts.plain(t, data, n) for t in self._moduli]
        self._parts = [np.array([pow(whole // t, -1, t)], dtype=np.uint64) for t in self._moduli]
        formats = [ReplyFormat.of(parameters, data) for parameters in replies]
        tables = self.chain.ring.tables
        self._replies = [
            (encryption.decryption_tables(tables, *pair), pair[1]) for pair in zip(self._plain, formats, strict=True)
        ]
        self._requests = self._form(len(data))
        self._secret: Residues | None = secret_key.generate(self.chain.ring)

    def public_key(self, count: int) -> bytes:
        """Return a seeded encryption of zero.

        Args:
            count: data primes.
        """
        zero = np.zeros(self.chain.parameters.ring_degree, dtype=np.uint64)
        return encryption.encrypt(self._key(), zero, self._form(count))

    def switch_key(self, count: int, name: int) -> bytes:
        """Return a switch key.

        Args:
            count: data primes of what is switched with it.
            name: see :mod:`rlwe.parameters`.
        """
        return switch_keys.make_named(self.chain, count, self._key(), name)

    def request(self, slots: Sequence[Residues], sent: Integers | None = None) -> bytes:
        """Return a seeded ciphertext: one polynomial, whole or in part, and a seed.

        Args:
            slots: residues of shape (n,), for each plain modulus.
            sent: coefficients of the first polynomial that are sent; None: all of them.
        """
        if len(slots) == 1:
            return encryption.encrypt(self._key(), slots[0], self._requests, sent)
        terms = zip(slots, self._parts, self._moduli, strict=True)
        parts = [modular.multiply(values, factor, t) for values, factor, t in terms]
        message, modulus = encryption.encrypt(self._key(), parts[0], self._requests), self.chain.parameters.modulus
        primes, bits = (whole := modulus(len(self.chain.parameters.data_primes))).primes, whole.bits
        words = wire_bytes.unpack(message[:-SEED_BYTES], primes, bits)
        for part, plain in zip(parts[1:], self._plain[1:], strict=True):
            plaintexts.add(words, part, plain)
        return wire_bytes.pack(words, bits) + message[-SEED_BYTES:]

    def answer(self, number: int, message: bytes, sent: Integers | None = None) -> Residues:
        """Return the slots of a reply, shape (n,).

        Args:
            number: index of the plain modulus.
            sent: coefficients of the first polynomial that the reply holds, the others being zero; None: all of them.

        Raises:
            RuleError: the bytes are not such a reply.
        """
        form, replies = self._replies[number]
        return encryption.decrypt(self._key(), message, form, replies, sent)

    def close(self) -> None:
        """Forget the secret key; its memory is zeroed."""
        wipe([self._secret])
        self._secret = None

    def _form(self, count: int) -> encryption.EncryptionTables:
        return encryption.encryption_tables(
            self.chain.ring.tables, self._plain[0], self.chain.parameters.modulus(count)
        )

    def _key(self) -> Residues:
        if self._secret is None:
            raise RuntimeError("a closed client has no keys")
        return self._secret


class KernelClient(BfvClient):
    """The client's side of interactive inference; see :class:`ClientEngine`.

    Args:
        parameters: n, q, t.
    """

    concurrent = True

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters.rlwe, [parameters])
        self.parameters = parameters

    def public_keys(self, steps: Collection[int]) -> bytes:
        """Return the public keys, all seeded; the one for encryption is an encryption of zero."""
        elements = sorted(galois_element(step, self.parameters.ring_degree) for step in steps)
        count = len(self.parameters.rlwe.data_primes)
        galois = each(lambda element: self.switch_key(count, element), elements)
        return b"".join([self.public_key(count), *galois])

    def encrypt(self, slots: Residues, sent: Integers | None = None) -> bytes:
        return self.request([slots], sent)

    def encrypt_all(self, slots: Residues, sent: Sequence[Integers] | None = None) -> list[bytes]:
        """Encrypt plaintexts on all threads."""
        return each(lambda i: self.encrypt(slots[i], None if sent is None else sent[i]), range(len(slots)))

    def decrypt(self, message: bytes, sent: Integers | None = None) -> Residues:
        """Decrypt a reply; coefficients of c0 that were not sent count as zero."""
        return self.answer(0, message, sent)

    def decrypt_all(self, messages: Sequence[bytes], sent: Sequence[Integers] | None = None) -> Residues:
        """Decrypt replies on all threads."""
        return np.stack(
            each(lambda i: self.decrypt(messages[i], None if sent is None else sent[i]), range(len(messages)))
        )
