"""SEAL with a secret key of ours, and with our requests: only tests move them from one engine to another."""

from typing import Any

import numpy as np
import tenseal.sealapi as seal

from privcirnet.he.bfv import client as kernel_client
from privcirnet.he.bfv import seal as tenseal
from privcirnet.he.ring.kernels import ntt
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.switch_keys import read


def values_of(client: kernel_client.KernelClient) -> Residues:
    """The secret key in the kernel's order, (L + 1, n)."""
    return client._key()[0]


def twin(client: kernel_client.KernelClient) -> tenseal.TensealClient:
    """SEAL's client with the same secret key."""
    found = tenseal.TensealClient(client.parameters)
    context, values = found._context, values_of(client)
    words = np.empty_like(values)
    words[:, ntt.kernel_order(values.shape[1])] = values
    payload = context.save(found._keys.secret_key())[: -words.nbytes] + words.astype("<u8").tobytes()
    secret = context.load(seal.SecretKey(), payload)
    found._keys = seal.KeyGenerator(context.seal, secret)
    found._encryptor = seal.Encryptor(context.seal, secret)
    found._decryptor = seal.Decryptor(context.seal, secret)
    return found


def fresh(client: tenseal.TensealClient, words: Residues) -> Any:
    """A ciphertext under the data primes, in coefficient form (2, L, n), as SEAL's."""
    return _loaded(client._context, words)


class Reader(tenseal.TensealServer):
    """SEAL's server, which also takes the kernels' requests: SEAL loads them with both polynomials written out."""

    def receive(self, message: bytes, kept: Integers | None = None) -> Any:
        context, level = self._context, self._context.data_level
        if len(message) != level.seeded_size(None if kept is None else len(kept)):
            return super().receive(message, kept)
        (words,) = read([message], level, lambda _, residues: residues, None if kept is None else [kept])
        return _loaded(context, words)

    def words(self, message: bytes) -> Residues:
        """Both polynomials of either engine's request, (2, L, n)."""
        return tenseal.polynomials(self._context.save(self.receive(message)), self._context.data_level)


def _loaded(context: Any, words: Residues) -> Any:
    payload = tenseal._payload(words, context.data_level, b"", ntt=False)
    return context.load(seal.Ciphertext(context.seal), payload)
