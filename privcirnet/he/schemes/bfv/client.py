"""The client's engine on compiled kernels: keys, requests and decryption, all ciphertexts of a layer at once.

Keys and ciphertexts are SEAL's, in its distributions and with its rounding, so that either server takes either client's
and SEAL's decryptor is an oracle. Randomness comes from the operating system: a seed of its own for each uniform
polynomial, which is sent, and a stream of its own (:mod:`ring.stream`) for each error.
"""

from collections.abc import Collection, Sequence

import numpy as np

from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.rlwe.kernels import secret_key
from privcirnet.he.rlwe.kernels.modulus import ring
from privcirnet.he.rlwe.wire_bytes import Modulus
from privcirnet.he.schemes.bfv.kernels import decrypt, encrypt, plaintexts
from privcirnet.he.schemes.bfv.parameters import Parameters, ordered_primes
from privcirnet.he.schemes.bfv.rounding import Replies
from privcirnet.he.system.threads import each


class KernelClient:
    """The client's side: it makes the keys, encrypts with the secret key (seeded) and decrypts.

    Args:
        parameters: n, q, t.
    """

    concurrent = True

    def __init__(self, parameters: Parameters) -> None:
        n = parameters.ring_degree
        primes = ordered_primes(n, parameters.coefficient_bits)
        self.parameters = parameters
        self._ring, self._reply = ring(primes, n), Replies.of(parameters, primes)
        plain, data = plaintexts.plain(parameters.plain_modulus, primes[:-1], n), Modulus(primes[:-1], n)
        self._requests = encrypt.form(self._ring.tables, plain, data)
        self._replies = decrypt.form(self._ring.tables, plain, self._reply)
        self._bits = 8 * np.array(Modulus(primes, n).widths, dtype=np.uint64)
        self._secret: Residues | None = secret_key.generate(self._ring)

    def public_keys(self, steps: Collection[int]) -> bytes:
        """See :meth:`ClientEngine.public_keys`; the public key is an encryption of zero, and all of them are seeded."""
        n, secret = self.parameters.ring_degree, self._key()
        by_element = sorted(steps, key=lambda step: pow(3, step, 2 * n))
        digits = range(len(self._ring.primes) - 1)

        def digit(task: tuple[int, int]) -> bytes:
            return secret_key.galois_digit(secret, *task, self._ring, self._bits)

        galois = each(digit, [(step, number) for step in by_element for number in digits])
        return b"".join([self.encrypt(np.zeros(n, dtype=np.uint64)), *galois])

    def encrypt(self, slots: Residues, kept: Integers | None = None) -> bytes:
        """See :meth:`ClientEngine.encrypt`; the ciphertext is seeded: one polynomial, whole or in part, and a seed."""
        return encrypt.encrypt(self._key(), slots, self._requests, kept)

    def encrypt_all(self, slots: Residues, kept: Sequence[Integers] | None = None) -> list[bytes]:
        """See :meth:`ClientEngine.encrypt_all`; on all threads."""
        return each(lambda i: self.encrypt(slots[i], None if kept is None else kept[i]), range(len(slots)))

    def decrypt(self, message: bytes, kept: Integers | None = None) -> Residues:
        """See :meth:`ClientEngine.decrypt`; coefficients of c0 that were not sent count as zero."""
        return decrypt.decrypt(self._key(), message, self._replies, self._reply, kept)

    def decrypt_all(self, messages: Sequence[bytes], kept: Sequence[Integers] | None = None) -> Residues:
        """See :meth:`ClientEngine.decrypt_all`; on all threads."""
        return np.stack(
            each(lambda i: self.decrypt(messages[i], None if kept is None else kept[i]), range(len(messages)))
        )

    def close(self) -> None:
        """See :meth:`ClientEngine.close`; the key's memory is zeroed."""
        wipe([self._secret])
        self._secret = None

    def _key(self) -> Residues:
        assert self._secret is not None, "a closed client has no keys"
        return self._secret
