"""Decryption against Python's integers, up to where the rounding turns."""

from math import prod

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.bfv.kernels import encryption, plaintexts
from privcirnet.he.bfv.parameters import ReplyBits, ReplyFormat
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.kernels import secret_key
from privcirnet.he.rlwe.kernels.rns import ring
from privcirnet.he.rlwe.wire_bytes import WireFormat
from tests.he.kernel_oracles import integers, negacyclic, primes_of, random_residues
from tests.he.wire_oracles import shorten

N = 1024
SETS = pytest.mark.parametrize(
    ("bits", "plain_bits"),
    [((54,), 41), ((54, 53), 46), ((48, 47), 60), ((60, 60), 60), ((30, 30, 29), 60), ((41,), 28)],
)
"""One to three primes, longer and shorter than t."""


class Setting:
    """A key, and the form of replies that are sent whole."""

    def __init__(self, bits: tuple[int, ...], plain_bits: int) -> None:
        self.primes = primes_of(bits, N)
        special = modular.largest_prime(52, 2 * N, frozenset(self.primes))
        self.t = modular.largest_prime(plain_bits, 2 * N, frozenset({*self.primes, special}))
        extended, self.modulus = ring((*self.primes, special), N), WireFormat(self.primes, N)
        self.q = prod(self.primes)
        whole = ReplyBits(self.q.bit_length() + 1, self.q.bit_length() + 1)  # with so many bits nothing is rounded away
        self.replies = ReplyFormat(self.modulus, whole)
        self.form = encryption.decryption_tables(
            extended.tables, plaintexts.plain(self.t, self.primes, N), self.replies
        )
        ternary = np.random.default_rng(1).integers(0, 3, N, dtype=np.uint64)
        self.key, self.secret = secret_key.prepared(ternary, extended), [int(x) - 1 for x in ternary]

    def decrypt(self, first: Residues, second: Residues, kept: np.ndarray | None = None) -> list[int]:
        """Coefficients of the plaintext."""
        places = slice(None) if kept is None else kept
        parts = zip((first[:, places], second), self.replies.bits, strict=True)
        message = b"".join(shorten(words, self.primes, bits) for words, bits in parts)
        slots = encryption.decrypt(self.key, message, self.form, self.replies, kept)
        return batching.slots_to_coefficients(slots, self.t).tolist()

    def product(self, second: Residues) -> Residues:
        """c1 s."""
        rows = [negacyclic(row, self.secret, p) for row, p in zip(second.tolist(), self.primes, strict=True)]
        return np.array(rows, dtype=np.uint64)

    def rounded(self, x: int) -> int:
        """round(t x / q) mod t."""
        return (2 * self.t * x + self.q) // (2 * self.q) % self.t


@SETS
@pytest.mark.parametrize("kept", [None, np.array([0, 7, 600, N - 1])], ids=["whole", "kept"])
def test_a_reply_is_scaled_and_rounded(bits: tuple[int, ...], plain_bits: int, kept: np.ndarray | None) -> None:
    """Any polynomials, so that the phase is uniform; c0 counts as zero where it was not sent."""
    own = Setting(bits, plain_bits)
    first, second = random_residues(own.primes, 2, N)
    held = first.copy()
    if kept is not None:
        held[:] = 0
        held[:, kept] = first[:, kept]
    primes = np.array(own.primes, dtype=np.uint64)[:, None]
    phase = (held + own.product(second)) % primes
    assert own.decrypt(first, second, kept) == [own.rounded(x % own.q) for x in integers(phase, own.primes)]


@SETS
def test_noise_decrypts_up_to_half_of_a_plaintext_s_unit(bits: tuple[int, ...], plain_bits: int) -> None:
    """q (m + 1/2) / t less and plus 2^-40 of a unit, or one, for the smallest, the largest and any m."""
    own = Setting(bits, plain_bits)
    random = np.random.default_rng(4).integers(0, own.t, N // 2).tolist()
    values = [0, own.t - 1, own.t // 2, *random[3:]]
    near = max(own.q // own.t >> 40, 1)
    phases = [(2 * m + 1) * own.q // (2 * own.t) + side for m in values for side in (-near, near)]
    wanted = [x % own.t for m in values for x in (m, m + 1)]
    assert [own.rounded(x) for x in phases] == wanted
    second = random_residues(own.primes, N, seed=5)
    primes = np.array(own.primes, dtype=np.uint64)[:, None]
    target = np.array([[x % p for x in phases] for p in own.primes], dtype=np.uint64)
    assert own.decrypt((target + primes - own.product(second)) % primes, second) == wanted


@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b"", lambda m: m[7:]])
def test_a_reply_of_another_length_is_refused(change) -> None:
    own = Setting((54, 53), 46)
    message = change(bytes(own.replies.bits.octets(N, N)))
    with pytest.raises(RuleError, match="the length that the parameters fix"):
        encryption.decrypt(own.key, message, own.form, own.replies)
