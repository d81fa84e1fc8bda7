"""Random words of one reply."""

import hashlib
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.ring.stream import stream


def test_words_are_aes_in_counter_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block with the cipher alone; what is drawn later goes on where it ended."""
    key = hashlib.sha256(b"key").digest()
    monkeypatch.setattr(os, "urandom", lambda size: key[:size])
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = b"".join(cipher.update(i.to_bytes(16, "big")) for i in range(300))
    words = stream()
    found = np.concatenate([words(1), words(0), words(2), words(500)])
    assert found.tobytes() == blocks[: 8 * 503]


def test_every_stream_is_another_one() -> None:
    first, second = (stream()(1000) for _ in range(2))
    assert (first != second).all()
    assert abs(np.bitwise_count(first).mean() - 32) < 1, "eight deviations of a mean of 1000"
