"""One encrypted square between two parties (he.md section 3), with homomorphic encryption alone.

x = c + s. The client sends Enc(c); the server returns Enc(2 s c + s^2 - r) and keeps r; the client adds c^2.
One product a ciphertext, no rotation, no oblivious transfer. Values that do not fill a ciphertext live in a subring,
which shortens both messages (:mod:`encodings.subring`).
"""

import numpy as np

from privcirnet.he.encodings import subring
from privcirnet.he.engines.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.params.noise import square_noise_bits
from privcirnet.he.ring import modular, sampling, threads
from privcirnet.he.ring.modular import Residues


def request(share: Residues, engine: ClientEngine) -> list[bytes]:
    """Client: encrypt its share of x, any shape."""
    n = engine.parameters.ring_degree
    rows = zip(subring.spread(share.reshape(-1), n), subring.kept(share.size, n), strict=True)
    return [engine.encrypt(row, kept) for row, kept in rows]


def reply(
    share: Residues, messages: list[bytes], engine: ServerEngine, keys: EvaluationKeys, mask_bound: int | None = None
) -> tuple[list[bytes], Residues]:
    """Server: its part of x^2 from its share of x; returns (replies, its share of x^2)."""
    t, n = engine.parameters.plain_modulus, engine.parameters.ring_degree
    polynomial, kept = threads.beside(lambda: _polynomial(share, n, t, mask_bound)), subring.kept(share.size, n)
    inputs = engine.receive_all(messages, None, kept)
    doubled, constant, own = polynomial()
    products = engine.multiply_all(inputs, doubled)
    return engine.reply_all(products, constant, keys, square_noise_bits(engine.parameters), kept), own


def finish(share: Residues, messages: list[bytes], engine: ClientEngine) -> Residues:
    """Client: its share of x^2 from its share of x and the replies."""
    t, kept = engine.parameters.plain_modulus, subring.kept(share.size, engine.parameters.ring_degree)
    slots = np.stack([engine.decrypt(message, places) for message, places in zip(messages, kept, strict=True)])
    cross = subring.collect(slots, share.size, t)
    return modular.add(cross.reshape(share.shape), modular.multiply(share, share, t), t)


def _polynomial(share: Residues, n: int, t: int, mask_bound: int | None) -> tuple[Residues, Residues, Residues]:
    """Slots of 2 s and of s^2 - r, (ciphertexts, n), and the server's share r."""
    own = sampling.uniform(share.shape, t) if mask_bound is None else sampling.bounded(share.shape, mask_bound, t)
    mask = subring.spread(own.reshape(-1), n, sampling.uniform((sum(subring.sizes(share.size, n)),), t))
    rows = subring.spread(share.reshape(-1), n)
    return modular.add(rows, rows, t), modular.subtract(modular.multiply(rows, rows, t), mask, t), own


def ciphertexts(values: int, ring_degree: int) -> int:
    """Ciphertexts each way for that many values."""
    return len(subring.sizes(values, ring_degree))
