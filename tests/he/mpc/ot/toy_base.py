"""Base transfers that hide nothing, for tests of the protocol around them: half a second less for each beginning."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from privcirnet.he.mpc.ot import base
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message


def _keys(session: bytes, pairs: Sequence[tuple[int, int]]) -> Residues:
    blocks = (hashlib.sha256(session + bytes([i % 251, i // 251, choice])).digest()[:16] for i, choice in pairs)
    return np.frombuffer(b"".join(blocks), dtype=np.uint64).reshape(-1, 2)


class Chooser:
    """As base's, with keys that are hashes of the session's name: those of other sessions do not fit."""

    def __init__(self, choices: Sequence[int], session: bytes) -> None:
        self._choices, self._session, self.message = choices, session, bytes(2 * base.POINT_BYTES * len(choices))

    def keys(self, message: Message) -> Residues:
        return _keys(self._session, [*enumerate(self._choices)])


def send(message: Message, transfers: int, session: bytes) -> tuple[Residues, bytes]:
    pairs = [(i, choice) for i in range(transfers) for choice in (0, 1)]
    return _keys(session, pairs).reshape(transfers, 2, 2), bytes(base.POINT_BYTES)


def put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use them, until the test's end."""
    monkeypatch.setattr(base, "BaseOtReceiver", Chooser)
    monkeypatch.setattr(base, "send", send)
