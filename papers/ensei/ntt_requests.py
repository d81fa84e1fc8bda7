"""Requests in the NTT domain: ENSEI's embedding without redundant transforms, in a form that decrypts and is secure.

A request is a ciphertext in coefficient form: the client transforms a, multiplies by s and transforms back, and the
server transforms both polynomials again. A layer that rotates nothing needs neither. Here an encryption of zero, (z, a)
in NTT form, is made ahead, and a's seed is sent ahead. With the input comes z + NTT(round(q m / t)), to which the
server adds its own share's transform. Transforms modulo a prime of q, for a ciphertext:

| | client, ahead | client, with the input | server, ahead | server, with the input |
|---|---|---|---|---|
| coefficient form | 0 | 2 | 0 | 2, and 0 for its own share |
| here | 3 | 1 | 1 | 0, and 1 for its own share |

One inverse transform modulo t for each share stays: t and the primes of q have no roots in common.

Source: Bian et al., ENSEI (CVPR 2020), section 5.1 and Figure 4. Departure: the paper adds the image's spectrum itself
to a s in the NTT domain. That cannot work: the values of an error with small coefficients are uniform mod q, and an
error with small values is a learning-with-errors problem of dimension 1 for each of them, which gives the key away
(tests/attacks/test_noise_in_the_ntt_domain.py).
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from privcirnet.he.bfv.client import KernelClient
from privcirnet.he.bfv.kernel_engine import KernelCiphertext
from privcirnet.he.bfv.kernels import plaintexts
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.rlwe.kernels import uniform, wire_bytes
from privcirnet.he.rlwe.kernels.rns import ring
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, WireFormat, check_length
from privcirnet.he.system.threads import each


class _Form:
    """What both parties derive from the parameters."""

    def __init__(self, parameters: Parameters) -> None:
        primes, n = parameters.rlwe.data_primes, parameters.ring_degree
        self.ring, self.modulus = ring(primes, n), WireFormat(primes, n)
        self.plain = plaintexts.plain(parameters.plain_modulus, primes, n)
        self._primes = np.array(primes, dtype=np.uint64)[:, None]

    def plaintext(self, slots: Residues) -> Residues:
        """Return NTT(round(q m / t)), shape (L, n), of slots (n,)."""
        polynomial = np.zeros((1, *self._primes.shape[:1], slots.size), dtype=np.uint64)
        plaintexts.add(polynomial[0], np.ascontiguousarray(slots), self.plain)
        return self.ring.values(polynomial)[0]

    def pack(self, values: Residues) -> bytes:
        """Return compact bytes of residues (L, n)."""
        return wire_bytes.pack(values, self.modulus.bits)

    def read(self, packed: bytes) -> Residues:
        """Return residues (L, n), checked."""
        check_length(packed, self.modulus.compact_size(1))
        return wire_bytes.unpack(packed, self.modulus.primes, self.modulus.bits)

    def add(self, a: Residues, b: Residues) -> Residues:
        """Return a sum under every prime, shape (L, n)."""
        total = a + b
        return total - np.where(total >= self._primes, self._primes, np.uint64(0))


class NttClient:
    """The client's part."""

    def __init__(self, client: KernelClient) -> None:
        self._client, self._form = client, _Form(client.parameters)
        self._zeros: deque[Residues] = deque()

    def ahead(self, count: int) -> list[bytes]:
        """Make encryptions of zero for requests to come, each for one.

        Returns:
            the seed of each, for :meth:`NttServer.ahead`.
        """
        n = self._client.parameters.ring_degree
        made = self._client.encrypt_all(np.zeros((count, n), dtype=np.uint64))
        values = each(lambda message: self._form.ring.values(self._form.read(message[:-SEED_BYTES])[None])[0], made)
        self._zeros += values
        return [message[-SEED_BYTES:] for message in made]

    def request(self, slots: Residues) -> list[bytes]:
        """Return encrypted plaintexts, made with what was made ahead, which is used up.

        Args:
            slots: residues mod t, shape (ciphertexts, n).
        """
        zeros = [self._zeros.popleft() for _ in range(len(slots))]

        def one(index: int) -> bytes:
            return self._form.pack(self._form.add(zeros[index], self._form.plaintext(slots[index])))

        messages = each(one, range(len(slots)))
        wipe(zeros)
        return messages


class NttServer:
    """The server's part.

    Args:
        parameters: n, q, t.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._form, self._ahead = _Form(parameters), deque[Residues]()

    def ahead(self, seeds: Sequence[bytes]) -> None:
        """Make the uniform polynomials of requests to come.

        Args:
            seeds: from :meth:`NttClient.ahead`.
        """
        modulus = self._form.modulus
        self._ahead += each(lambda seed: self._form.ring.values(uniform.expanded(seed, modulus)[None])[0], seeds)

    def receive(self, messages: Sequence[bytes], addends: Residues) -> list[KernelCiphertext]:
        """Check and read requests, and add the server's own share.

        Args:
            messages: from :meth:`NttClient.request`, in the order of their seeds.
            addends: the share's slots, shape (ciphertexts, n).

        Returns:
            ciphertexts in NTT form, for circuits without rotations.

        Raises:
            RuleError: a message has another length, or a residue is not under its prime.
        """
        second = [self._ahead.popleft() for _ in messages]

        def one(index: int) -> KernelCiphertext:
            first = self._form.add(self._form.read(messages[index]), self._form.plaintext(addends[index]))
            return KernelCiphertext(np.stack([first, second[index]]), ntt=True)

        return each(one, range(len(messages)))
