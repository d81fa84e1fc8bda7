"""Replies of the compiled engine taken apart, and replies that nothing hides."""

import numpy as np

from privcirnet.he.engines import kernel
from privcirnet.he.engines.kernels import reply, sampling, wire_bytes
from privcirnet.he.engines.kernels.reply import Draws
from privcirnet.he.engines.kernels.ring import Ring
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.stream import stream

NO_SECRET = 0x5555555555555555
"""Fields of 1, which stand for 0."""


def nothing(flood_bits: int, extended: Ring) -> Draws:
    """Draws in place of :func:`hiding.draw`: all randomness of a reply is zero."""
    n = extended.degree
    secret = np.full(sampling.ternary_words(n), NO_SECRET, dtype=np.uint64)
    return Draws(secret, np.zeros(n, dtype=np.uint64), no_flood(flood_bits, extended.primes[:-1], n))


def no_flood(bits: int, primes: tuple[int, ...], count: int) -> sampling.Flood:
    """In place of :func:`sampling.flooding`: zeros."""
    flood = sampling.flooding(bits, primes, count, stream())
    return flood._replace(digits=np.zeros_like(flood.digits), starts=np.zeros_like(flood.starts))


def keep_all_primes(server: kernel.KernelServer) -> None:
    """From now on replies are not switched down."""
    server._form = reply.form(server._extended, server._plain, server._modulus.widths, server._form.flood)


def polynomials(server: kernel.KernelServer, reply: bytes) -> Residues:
    """Of a reply that was not switched down, (2, L, n)."""
    modulus, half = server._modulus, len(reply) // 2
    parts = [wire_bytes.unpack(part, modulus.primes, modulus.widths) for part in (reply[:half], reply[half:])]
    return np.stack(parts)
