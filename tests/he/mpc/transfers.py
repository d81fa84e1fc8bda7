"""Both ends of oblivious transfers in one process."""

import hashlib
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.mpc.ot import silent
from privcirnet.he.mpc.ot.session import OtSession, initiate, respond
from privcirnet.he.mpc.ot.softspoken import Receiver, Sender
from privcirnet.he.ring.modular import Residues

Side = Generator[list[Any], list[Any], Any]


def pair(k: int = 4, session: bytes = b"session") -> tuple[Sender, Receiver]:
    """A sender and a receiver after their first messages."""
    sender = Sender(k, session)
    receiver = Receiver(sender.hello, k, session)
    sender.begin(receiver.setup)
    return sender, receiver


def silent_pair(monkeypatch: pytest.MonkeyPatch, session: bytes = b"session") -> tuple[silent.Sender, silent.Receiver]:
    """A silent sender and its receiver, of a code that hides nothing: 1472 transfers an iteration."""
    monkeypatch.setattr(silent, "CODE", silent.LpnParameters(trees=64, depth=5, seed=128))
    (sender, receiver), spent = pair(), silent.CODE.spent
    made, message = receiver.extend(spent)
    return silent.Sender(sender.extend(spent, message), sender.delta, session), silent.Receiver(made, session)


def permuted(rows: Residues, session: bytes, purpose: str) -> Residues:
    """AES of rows under the public key of a session and a purpose, by OpenSSL: (rows, 2)."""
    key = hashlib.sha256(b"privcirnet permutation" + purpose.encode() + session).digest()[:16]
    images = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(np.ascontiguousarray(rows).tobytes())
    return np.frombuffer(images, dtype=np.uint64).reshape(-1, 2)


def hashes(rows: Residues, session: bytes, first: int) -> Residues:
    """The hashes of rows, by definition and OpenSSL: (rows, 2)."""
    inner = permuted(rows, session, "hash")
    numbers = np.arange(first, first + len(rows), dtype=np.uint64)
    return permuted(inner ^ np.stack([numbers, np.zeros_like(numbers)], axis=1), session, "hash") ^ inner


def bits_of(planes: Residues) -> Residues:
    """(values,) of (values / 64,)."""
    return np.unpackbits(planes.view(np.uint8), bitorder="little").astype(np.uint64)


def both(source: str = "softspoken") -> tuple[OtSession, OtSession]:
    """Transfers in both directions, of who began and of who answered."""
    made = converse(initiate(source=source), respond(source=source))
    return made[0], made[1]


def converse(first: Side, second: Side, said: list[list[bytes]] | None = None) -> tuple[Any, Any]:
    """The results of two parties that send each other messages; ``said`` is given the parts of each."""
    next(second)
    parts, said = next(first), [] if said is None else said
    while True:
        said.append(parts)
        said.append(second.send(parts))
        try:
            parts = first.send(said[-1])
        except StopIteration as ended:
            return ended.value, result_of(second)


def result_of(side: Side) -> Any:
    """What a party returns after its last message."""
    with pytest.raises(StopIteration) as ended:
        next(side)
    return ended.value.value
