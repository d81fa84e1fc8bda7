"""Replies of the compiled engine taken apart, and replies that nothing hides."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privcirnet.he.bfv.kernels import plaintexts, reply
from privcirnet.he.bfv.kernels.reply import ReplyRandomness
from privcirnet.he.ring.kernels import sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import stream
from privcirnet.he.rlwe.kernels.rns import RnsRing

NO_SECRET = 0x5555555555555555
"""Fields of 1, which stand for 0."""


def nothing(flood_bits: int, extended: RnsRing) -> ReplyRandomness:
    """Draws in place of :func:`bfv.kernels.reply.draw`: all randomness of a reply is zero."""
    n = extended.degree
    secret = np.full(sampling.ternary_words(n), NO_SECRET, dtype=np.uint64)
    return ReplyRandomness(secret, np.zeros(n, dtype=np.uint64), no_flood(flood_bits, extended.primes[:-1], n))


def no_flood(bits: int, primes: tuple[int, ...], count: int) -> sampling.FloodingNoise:
    """In place of :func:`sampling.flooding`: zeros."""
    flood = sampling.flooding(bits, primes, count, stream())
    return flood._replace(digits=np.zeros_like(flood.digits), starts=np.zeros_like(flood.starts))


def unswitched(make: Callable[[], object]) -> list[Residues]:
    """The polynomials, (2, L, n), of the replies that a call makes one after the other, neither switched nor rounded."""
    found: list[Residues] = []

    def keep(
        _first: Residues, _second: Residues, values: Residues, addend: Residues, form: reply.ReplyTables, _: Any
    ) -> None:
        plaintexts.add(values[0], addend, form.plain)
        found.append(values.copy())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reply, "_send", keep)
        make()
    return found
