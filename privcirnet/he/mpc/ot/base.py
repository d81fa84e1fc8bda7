"""The first oblivious transfers of a session: 128-bit keys by two messages over the group of edwards25519.

The chooser sends two points for each transfer, of which it knows one relation only; the sender sends one point for all.
This is the endemic oblivious transfer of Masny and Rindal (CCS 2019, figure 1), secure against malicious parties if
Diffie and Hellman's problem is hard and hashes are random functions. A cheating party chooses its own keys and nothing
else, which is enough for extensions. Points are checked to be on the curve and in the subgroup of prime order.
"""

# PyNaCl's bindings have no types of their own.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import os
from collections.abc import Iterable, Sequence

import numpy as np
from nacl import bindings
from nacl.exceptions import CryptoError

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, check_length

POINT_BYTES = 32
_REMEDY = "start the session again"


class BaseOtReceiver:
    """The receiver, who learns one key of each pair.

    Args:
        choices: 0 or 1 for each transfer.
        session: name that both parties give this session, different for each.
    """

    def __init__(self, choices: Sequence[int], session: bytes) -> None:
        self._choices, self._session = list(choices), session
        self._secrets = [_scalar() for _ in self._choices]
        pairs = [self._points(i) for i in range(len(self._choices))]
        self.message = b"".join(a + b for a, b in pairs)
        """Message to the sender, 64 bytes for each transfer."""

    def _points(self, i: int) -> tuple[bytes, bytes]:
        public, choice = bindings.crypto_scalarmult_ed25519_base_noclamp(self._secrets[i]), self._choices[i]
        random_point = _point(b"nobody knows its logarithm", os.urandom(32))
        selected = bindings.crypto_core_ed25519_sub(public, _answer(self._session, i, choice, random_point))
        return _swapped(selected, random_point, choice)

    def keys(self, message: Message) -> Residues:
        """Return the chosen keys, two words each, (transfers, 2).

        Args:
            message: message of the sender.

        Raises:
            RuleError: it is no point.
        """
        check_length(message, POINT_BYTES, "the points of oblivious transfers")
        point = _checked(bytes(message))
        secrets, choices, transcript = self._secrets, self._choices, _transcript(self._session, self.message, point)
        shared = [bindings.crypto_scalarmult_ed25519_noclamp(secret, point) for secret in secrets]
        return _blocks(_key(transcript, i, c, s) for i, (c, s) in enumerate(zip(choices, shared, strict=True)))


def send(message: Message, transfers: int, session: bytes) -> tuple[Residues, bytes]:
    """Return both keys of each transfer, (transfers, 2, 2), and the message to the chooser.

    Args:
        message: message of the chooser.
        session: name of the session, as the chooser's.

    Raises:
        RuleError: the message has another length, or holds what is no point of the group.
    """
    check_length(message, 2 * POINT_BYTES * transfers, "the points of oblivious transfers")
    message, secret = bytes(message), _scalar()
    public = bindings.crypto_scalarmult_ed25519_base_noclamp(secret)
    transcript = _transcript(session, message, public)
    points = [_checked(message[i : i + POINT_BYTES]) for i in range(0, len(message), POINT_BYTES)]

    def key(i: int, choice: int) -> bytes:
        relation = _answer(session, i, choice, points[2 * i + 1 - choice])
        try:
            point = bindings.crypto_core_ed25519_add(points[2 * i + choice], relation)
            return _key(transcript, i, choice, bindings.crypto_scalarmult_ed25519_noclamp(secret, point))
        except CryptoError as error:
            raise _bad("the identity") from error

    return _blocks(key(i, choice) for i in range(transfers) for choice in (0, 1)).reshape(transfers, 2, 2), public


def _scalar() -> bytes:
    return bindings.crypto_core_ed25519_scalar_reduce(os.urandom(64))


def _point(*parts: bytes) -> bytes:
    """Return a point as a random function of bytes: the sum of two maps to the curve, as RFC 9380 has it."""
    digest = hashlib.sha512(b"privcirnet point" + b"".join(len(p).to_bytes(4, "little") + p for p in parts)).digest()
    halves = (bindings.crypto_core_ed25519_from_uniform(digest[i : i + 32]) for i in (0, 32))
    return bindings.crypto_core_ed25519_add(*halves)


def _answer(session: bytes, i: int, choice: int, point: bytes) -> bytes:
    return _point(session, i.to_bytes(4, "little"), bytes([choice]), point)


def _checked(point: bytes) -> bytes:
    if not bindings.crypto_core_ed25519_is_valid_point(point):
        raise _bad(point.hex())
    return point


def _bad(point: str) -> RuleError:
    return RuleError("points must be in the subgroup of prime order of edwards25519", got=point, remedy=_REMEDY)


def _swapped(a: bytes, b: bytes, swap: int) -> tuple[bytes, bytes]:
    """Return (a, b), or (b, a) if swap is 1, without a branch."""
    first, second = int.from_bytes(a, "little"), int.from_bytes(b, "little")
    changed = (first ^ second) * swap
    return (first ^ changed).to_bytes(len(a), "little"), (second ^ changed).to_bytes(len(b), "little")


def _transcript(session: bytes, points: bytes, answer: bytes) -> bytes:
    return hashlib.sha256(session + points + answer).digest()


def _key(transcript: bytes, i: int, choice: int, shared: bytes) -> bytes:
    return hashlib.sha256(b"privcirnet key" + transcript + i.to_bytes(4, "little") + bytes([choice]) + shared).digest()


def _blocks(keys: Iterable[bytes]) -> Residues:
    return np.frombuffer(b"".join(key[:16] for key in keys), dtype=np.uint64).reshape(-1, 2)
