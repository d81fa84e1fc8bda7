"""Whether two parties have the same bytes. One asks, for one guess, and learns whether it is right; the other nothing.

Diffie-Hellman on Curve25519. P makes a point of bytes, as a random function would. Who asks has x, draws a scalar a
and sends a P(x), which is as good as uniform whatever x is. Who answers has y, draws b, and returns b a P(x) and b
P(y). If x and y are equal, a b P(y) is the former. For another guess z one would have to know b P(z), which takes b
(the problem of Diffie and Hellman). A hash of y would tell as much to whoever has y, and y to whoever tries all that
there can be.
"""

import hashlib
import os
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from privcirnet.errors import RuleError

POINT_BYTES = 32
_PRIME, _A = 2**255 - 19, 486662


@dataclass(frozen=True)
class Question:
    """One party's, about its bytes."""

    message: bytes
    _scalar: bytes = field(repr=False)

    @classmethod
    def about(cls, value: bytes) -> "Question":
        """Return a question about bytes, of which its message says nothing."""
        scalar = os.urandom(POINT_BYTES)
        return cls(_times(scalar, point(value)), scalar)

    def affirmed(self, answer: bytes) -> bool:
        """Return whether the other party has the same bytes."""
        own, others = answer[:POINT_BYTES], answer[POINT_BYTES:]
        try:
            return len(others) == POINT_BYTES and _times(self._scalar, others) == own
        except ValueError:
            return False


def answered(value: bytes, message: bytes) -> bytes:
    """Return the answer to a question, which serves this one alone: two points; ``value``: this party's bytes."""
    scalar = os.urandom(POINT_BYTES)
    try:
        return _times(scalar, message) + _times(scalar, point(value))
    except ValueError:
        got, remedy = f"{len(message)} bytes, {message[:8].hex()}...", "use the same version on both sides"
        raise RuleError("a question about a result must be a point of Curve25519", got=got, remedy=remedy) from None


def point(value: bytes) -> bytes:
    """Return a point of Curve25519, never of its twist, by hash and Elligator 2 (RFC 9380, 6.7.1): its u-coordinate."""
    hashed = int.from_bytes(hashlib.sha512(b"privcirnet equality " + value).digest()) % _PRIME
    u = -_A * pow(1 + 2 * hashed * hashed, -1, _PRIME) % _PRIME
    return (u if on_curve(u) else (-_A - u) % _PRIME).to_bytes(POINT_BYTES, "little")


def on_curve(u: int) -> bool:
    """Return whether a u-coordinate is one of Curve25519, y^2 = u^3 + A u^2 + u; ``u``: residue modulo 2^255 - 19."""
    return pow(u * (u * (u + _A) + 1), (_PRIME - 1) // 2, _PRIME) != _PRIME - 1


def _times(scalar: bytes, u: bytes) -> bytes:
    """A point multiplied by 8 k, where k are bits of the scalar: so nothing is left of a small subgroup."""
    return X25519PrivateKey.from_private_bytes(scalar).exchange(X25519PublicKey.from_public_bytes(u))
