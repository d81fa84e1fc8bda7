"""The client on compiled kernels: one secret, one set of keys and one request for all plain moduli.

Keys on the wire: the public key (an encryption of zero), then the switch keys in the order of the plan's ``keys``; all
are seeded, and each has no more data primes than what it switches. A request is encrypted mod T, the product of all t:
q m / T is the sum of q m_t / t over all t, m_t = m (T / t)^-1 mod t (:mod:`schemes.bfv.plain_moduli`).
"""

import math
from collections.abc import Sequence

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.circuits.network_circuit import RELINEARIZE, KeyPlan, element_of
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.kernels import hybrid, secret_key, wire_bytes
from privcirnet.he.rlwe.kernels.modulus import ring
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, Modulus
from privcirnet.he.schemes.bfv.kernels import decrypt, encrypt, plaintexts
from privcirnet.he.schemes.bfv.plain_moduli import LeveledParameters
from privcirnet.he.schemes.bfv.rounding import Replies
from privcirnet.he.system.threads import each


class KernelClient:
    """The client's side for all plain moduli; see :class:`circuits.bfv.noninteractive.interface.LeveledClient`.

    Args:
        parameters: n, q, and all t.
    """

    def __init__(self, parameters: LeveledParameters, plan: KeyPlan) -> None:
        self._parameters, self._plan, self._chain = parameters, plan, parameters.chain
        n, data = parameters.ring_degree, self._chain.data_primes
        self._requests = Modulus(data, n)
        tables, whole = ring(data, n).tables, parameters.product
        self._plain = [plaintexts.plain(each.plain_modulus, data, n) for each in parameters.moduli]
        self._parts = [pow(whole // m.plain_modulus, -1, m.plain_modulus) for m in parameters.moduli]
        self._form = encrypt.form(tables, self._plain[0], self._requests)
        self._replies: list[tuple[decrypt.Form, Replies]] = []
        for number, own in enumerate(self._plain):
            replies = Replies.of(parameters.at(number, plan.level), data)
            self._replies.append((decrypt.form(tables, own, replies), replies))
        self._secret: Residues | None = secret_key.generate(self._chain.ring)
        self._under_data: Residues | None = self._secret[:, self._chain.special :].copy()

    def evaluation_keys(self) -> list[bytes]:
        """Return the public key and all switch keys, in one message."""
        secret, chain, n = self._key(), self._chain, self._parameters.ring_degree
        zero = np.zeros(n, dtype=np.uint64)
        modulus = Modulus(chain.data_primes[: self._plan.level], n)
        form = encrypt.form(self._form.tables, self._plain[0], modulus)
        made = [encrypt.encrypt(self._data(), zero, form)]
        for kind, level in self._plan.keys:
            if kind == RELINEARIZE:
                square = _squared(secret, self._parameters)
                made.append(switch_keys.make(chain, level, square, secret))
                wipe([square])
            else:
                back = np.ascontiguousarray(secret[..., chain.order(pow(element_of(kind, n), -1, 2 * n))])
                made.append(switch_keys.make(chain, level, secret[0], back))
                wipe([back])
        return [b"".join(made)]

    def encrypt_all(self, slots: Sequence[Residues]) -> list[list[bytes]]:
        """Return one row of seeded ciphertexts.

        Args:
            slots: for each plain modulus, residues of shape (inputs, n).
        """
        return [each(lambda number: self._encrypt([own[number] for own in slots]), range(len(slots[0])))]

    def decrypt(self, number: int, message: bytes) -> Residues:
        """Return the slots of an answer, shape (n,).

        Args:
            message: what the server's ``answer`` returned.

        Raises:
            RuleError: the bytes are not such a ciphertext.
        """
        form, replies = self._replies[number]
        return decrypt.decrypt(self._data(), message, form, replies)

    def export_secret(self) -> bytes:
        """Return the secret key as bytes."""
        return self._key().tobytes()

    def restore_secret(self, content: bytes) -> None:
        """Take another secret key in place of the own one.

        Args:
            content: from :meth:`export_secret`, of a client with the same parameters.

        Raises:
            RuleError: it has another length.
        """
        shape = self._key().shape
        if len(content) != 8 * math.prod(shape):
            rule, remedy = f"a secret key must have {8 * math.prod(shape)} bytes", "use the same program"
            raise RuleError(rule, got=f"{len(content)}", remedy=remedy)
        self.close()
        self._secret = np.frombuffer(content, np.uint64).reshape(shape).copy()
        self._under_data = self._secret[:, self._chain.special :].copy()

    def close(self) -> None:
        """Forget the secret key; its memory is zeroed."""
        wipe([self._secret, self._under_data])
        self._secret = self._under_data = None

    def _encrypt(self, slots: Sequence[Residues]) -> bytes:
        parts = [
            modular.multiply(own, np.array([factor], dtype=np.uint64), m.plain_modulus)
            for own, factor, m in zip(slots, self._parts, self._parameters.moduli, strict=True)
        ]
        message = encrypt.encrypt(self._data(), parts[0], self._form)
        if len(parts) == 1:
            return message
        modulus = self._requests
        words = wire_bytes.unpack(message[:-SEED_BYTES], modulus.primes, modulus.widths)
        for own, plain in zip(parts[1:], self._plain[1:], strict=True):
            plaintexts.add(words, own, plain)
        bits = 8 * np.array(modulus.widths, dtype=np.uint64)
        made = wire_bytes.packed(modulus.ring_degree, bits)
        wire_bytes.pack_into(made, words, bits)
        return wire_bytes.octets(made, modulus.ring_degree, bits) + message[-SEED_BYTES:]

    def _data(self) -> Residues:
        """The secret key under the data primes alone."""
        assert self._under_data is not None, "a closed client has no keys"
        return self._under_data

    def _key(self) -> Residues:
        assert self._secret is not None, "a closed client has no keys"
        return self._secret


def _squared(secret: Residues, parameters: LeveledParameters) -> Residues:
    """The secret key's square, (R, n)."""
    ring_, found = parameters.chain.ring, np.empty_like(secret[0])
    for limb in range(len(found)):
        own = secret[0, limb : limb + 1]
        hybrid.multiply(found[limb : limb + 1], own, own[0], ring_.moduli, limb)
    return found


def key_bytes(parameters: LeveledParameters, plan: KeyPlan) -> int:
    """Return the bytes of a client's keys.

    Args:
        parameters: n, q, and all t.
    """
    chain = parameters.chain
    public = Modulus(chain.data_primes[: plan.level], parameters.ring_degree).compact_size(1) + SEED_BYTES
    return public + sum(switch_keys.key_size(chain, level) for _, level in plan.keys)
