"""One encrypted square between two parties (he.md section 3), with homomorphic encryption alone.

x = c + s. The client sends Enc(c); the server returns Enc(2 s c + s^2 - r) and keeps r; the client adds c^2.
One product a ciphertext, no rotation, no oblivious transfer.
"""

import numpy as np

from privcirnet.he import modular
from privcirnet.he.engine import ClientEngine, Keys, ServerEngine
from privcirnet.he.modular import Residues
from privcirnet.he.params import noise_bits
from privcirnet.he.protocol import shares


def request(share: Residues, engine: ClientEngine) -> list[bytes]:
    """Client: encrypt its share of x, any shape."""
    return [engine.encrypt(row) for row in _rows(share, engine.parameters.ring_degree)]


def reply(
    share: Residues, messages: list[bytes], engine: ServerEngine, keys: Keys, mask_bound: int | None = None
) -> tuple[list[bytes], Residues]:
    """Server: its part of x^2 from its share of x; returns (replies, its share of x^2)."""
    t, n = engine.parameters.plain_modulus, engine.parameters.ring_degree
    own = shares.uniform(share.shape, t) if mask_bound is None else shares.bounded(share.shape, mask_bound, t)
    mask = shares.uniform((len(messages), n), t)
    mask.reshape(-1)[: share.size] = own.reshape(-1)
    rows = _rows(share, n)
    doubled, constant = modular.add(rows, rows, t), modular.subtract(modular.multiply(rows, rows, t), mask, t)
    noise = noise_bits(n, engine.parameters.plain_bits, 1)
    products = engine.multiply_all(engine.receive_all(messages, None), doubled)
    return engine.reply_all(products, constant, keys, noise), own


def finish(share: Residues, messages: list[bytes], engine: ClientEngine) -> Residues:
    """Client: its share of x^2 from its share of x and the replies."""
    t = engine.parameters.plain_modulus
    cross = np.concatenate([engine.decrypt(message) for message in messages])[: share.size]
    return modular.add(cross.reshape(share.shape), modular.multiply(share, share, t), t)


def ciphertexts(values: int, ring_degree: int) -> int:
    """Ciphertexts each way for that many values."""
    return -(-values // ring_degree)


def _rows(share: Residues, n: int) -> Residues:
    rows = np.zeros((ciphertexts(share.size, n), n), dtype=np.uint64)
    rows.reshape(-1)[: share.size] = share.reshape(-1)
    return rows
