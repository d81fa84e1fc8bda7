"""Noise that hides a reply of level 0 from the client that decrypts it, as far as its precision allows.

A fresh encryption of zero under the client's public key hides the second polynomial, in which weights are linear, as in
BFV (:mod:`ring.sampling`). Flooding hides less: the error of a circuit is a part of its values, 2^-20 of them or so,
and noise of 2^40 times that would leave nothing of them. So there is as much as leaves :data:`ANSWER_BITS`.
SECURITY.md says what that is worth.
"""

import math

import numpy as np

from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ring import sampling
from privcirnet.he.ring.stream import stream
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.rlwe.ciphertext import Ciphertext
from privcirnet.he.rlwe.kernels import rows, secret_key

ANSWER_BITS = 8
"""Bits of a slot that flooding leaves: six deviations of its noise are at most 2^-8."""


def flood_bits(parameters: CkksParameters) -> int:
    """Return log2 of the width of each of the three parts of flooding noise, as integers.

    Their sum has a deviation of half of a width in a coefficient, and sqrt(n) times as much in a slot.
    """
    return math.floor(math.log2(parameters.scales[0] / (3 * math.sqrt(parameters.ring_degree))) - ANSWER_BITS)


def flood_reply(context: Context, reply: Ciphertext, public: Ciphertext) -> Ciphertext:
    """Return a reply with a fresh encryption of zero, and flooding noise.

    Args:
        reply: ciphertext of level 0.
        public: the client's public key, an encryption of zero of level 0 whose second polynomial a seed stands for.
    """
    ring, bits = context.ephemeral.ring, flood_bits(context.parameters)
    n, ternary, zero = ring.degree, secret_key.generate(ring), np.empty_like(reply.residues)
    digits, (powers, offset) = sampling.flood_digits(bits, n, stream()), sampling.flood_powers(bits)
    if len(powers) > 1:
        raise ValueError(f"flooding noise of {bits} bits does not fit a word")
    noise = digits[0].astype(np.int64) - offset
    secret = ternary[:, 0].copy()
    for half, message in enumerate((noise, np.zeros_like(noise))):
        zero[half], error = public.residues[half], stream()(n)
        rows.encrypt_row(zero[half, 0], secret, error, message, ring.tables, 0)  # message + error - ternary x public
        wipe([error])
    wipe([ternary, secret, digits, noise.view(np.uint64)])
    return Ciphertext(reply.chain, reply.chain.added(zero, reply.residues), reply.primes)
