"""A receiver of oblivious transfers that chooses otherwise in some trees to read the sender's secret Delta, bit by bit.

Without a check it would learn whether a key fits, a bit of Delta for each transfer; with Delta it opens all keys of the
session, and with them what hides the weights. The check ends the session unless the cheat guessed the bits right.
"""

import hashlib

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels.planes import rows_into
from privcirnet.he.mpc.ot import softspoken
from tests.he.mpc.transfers import bits_of, hashes, pair

TRANSFERS = 128
TREE = 5
"""The tree whose four bits of Delta are asked for."""


def cheat(receiver: softspoken.Receiver, guess: int) -> tuple[np.ndarray, np.ndarray, bytes]:
    """A message in which one tree's choices differ in the first transfer, and the check answered by a guess.

    The sender's columns of this tree are off by Delta's bits times the difference. The cheat bets on one pattern of the
    four bits and answers the check as if its columns were off alike.
    """
    sums = receiver._next(softspoken._rows(TRANSFERS) // 64)
    corrections = sums[1:, 0] ^ sums[0, 0]
    corrections[TREE - 1, 0] ^= np.uint64(1)
    sent = corrections.tobytes()
    for j in range(4):
        if guess >> j & 1:
            sums[TREE, 1 + j, 0] ^= np.uint64(1)
    columns = sums[:, 1:].reshape(128, -1)
    tags = receiver._tags(sent, np.concatenate([sums[:1, 0], columns]))
    rows = np.empty((TRANSFERS, 2), np.uint64)
    rows_into(rows, columns[:, : TRANSFERS // 64])
    choices = sums[0, 0, : TRANSFERS // 64]
    return choices, rows, sent + (tags[0] ^ tags[1]).tobytes() + hashlib.sha256(tags[2:].tobytes()).digest()


def secret_bits(sender: softspoken.Sender) -> int:
    return int(sender.delta[TREE * 4 // 64]) >> (TREE * 4 % 64) & 15


@pytest.mark.parametrize("wrong", range(1, 16))
def test_a_wrong_guess_ends_the_session(wrong):
    sender, receiver = pair()
    *_, message = cheat(receiver, secret_bits(sender) ^ wrong)
    with pytest.raises(RuleError, match="choices must be alike in all trees"):
        sender.extend(TRANSFERS, message)


def test_a_session_that_ended_makes_no_more_transfers():
    sender, receiver = pair()
    *_, message = cheat(receiver, secret_bits(sender) ^ 1)
    with pytest.raises(RuleError, match="alike in all trees"):
        sender.extend(TRANSFERS, message)
    with pytest.raises((RuleError, ValueError)):
        sender.extend(TRANSFERS, receiver.extend(TRANSFERS)[1])


def chosen_keys(sender: softspoken.Sender, choices: np.ndarray, message: bytes) -> np.ndarray:
    """What later steps use and show something of: the key of each choice, as the sender has it."""
    made = sender.extend(TRANSFERS, message).rows
    return hashes(made ^ bits_of(choices)[:, None] * sender.delta, b"session", 0)


def test_a_right_guess_passes_and_says_no_more():
    """One chance in 16 for four bits: 2^-128 for Delta, as if it had been guessed at once."""
    sender, receiver = pair()
    choices, rows, message = cheat(receiver, secret_bits(sender))
    assert (chosen_keys(sender, choices, message) == hashes(rows, b"session", 0)).all()


def test_without_the_check_a_cheat_reads_four_bits_from_a_key(monkeypatch):
    monkeypatch.setattr(softspoken.Sender, "_check", lambda *_: None)
    sender, receiver = pair()
    choices, rows, message = cheat(receiver, 0)
    key, first = chosen_keys(sender, choices, message)[0], rows[:1]
    shift = np.array([1 << TREE * 4 % 64 if TREE * 4 // 64 == w else 0 for w in (0, 1)], dtype=np.uint64)
    found = [g for g in range(16) if (hashes(first ^ np.uint64(g) * shift, b"session", 0) == key).all()]
    assert found == [secret_bits(sender)]
