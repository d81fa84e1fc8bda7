"""A sender of silent transfers that offers a block which fits no tree, to learn in which leaves the receiver's noise is.

The receiver of that block has two leaves that are off by what the sender added: the one where its path ends, and the
leaf beside it. Without a check the sender would see, by which keys fit, where the noise is, and with that of all trees
it has the choices. The check ends the session unless the sender guessed the place.
"""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.ot import silent
from tests.he.mpc.transfers import silent_pair

TREE, ADDED = 3, np.array([6, 7], np.uint64)


@pytest.fixture
def ends(monkeypatch):
    return silent_pair(monkeypatch)


def offered(sender: silent.Sender) -> bytes:
    """The offer, with the last block of a tree changed."""
    code = silent.CODE
    offered = np.frombuffer(sender.offer(), np.uint64).reshape(code.trees, code.depth, 2).copy()
    offered[TREE, -1] ^= ADDED
    return offered.tobytes()


def secret_pair(receiver: silent.Receiver) -> int:
    """Which pair of the tree's leaves has the noise."""
    sides = receiver._levels()[TREE, :-1, 0] & np.uint64(1)
    return int("".join(str(1 - int(side)) for side in sides), 2)


def bet(sender: silent.Sender, answer: bytes, guess: int) -> bytes:
    """The proof that a receiver with the noise in a pair of leaves has, for the sender's own leaves changed there."""
    assert sender._leaves is not None
    leaves, shift = sender._leaves.copy(), np.empty(2, np.uint64)
    leaves[TREE, 2 * guess : 2 * guess + 2] ^= ADDED
    blocks.field_product(shift, np.frombuffer(answer[16:], np.uint64), sender.delta)
    return sender._proof(sender._function(leaves, answer[:16]) ^ shift)


def fitting(sender: silent.Sender, receiver: silent.Receiver) -> list[int]:
    """The pairs of the tree's leaves whose rows do not fit: what shows in any use of the keys."""
    size = 1 << silent.CODE.depth
    rows = [party._rows[0][TREE * size : (TREE + 1) * size] for party in (sender, receiver)]
    off = rows[1] ^ rows[0] ^ (rows[1][:, :1] & np.uint64(1)) * sender.delta
    return sorted({int(at) // 2 for at in np.flatnonzero(off.any(1))})


def test_a_wrong_guess_ends_the_session(ends):
    sender, receiver = ends
    secret = secret_pair(receiver)
    answer = receiver.answer(offered(sender))
    proof = bet(sender, answer, secret ^ 5)
    with pytest.raises(RuleError, match="leaves must be those of trees"):
        receiver.finish(proof)
    with pytest.raises(RuleError, match="must be made ahead: got 0"):
        receiver.extend(64)


def test_an_honest_proof_of_other_trees_ends_the_session(ends):
    sender, receiver = ends
    proof = sender.prove(receiver.answer(offered(sender)))
    with pytest.raises(RuleError, match="leaves must be those of trees"):
        receiver.finish(proof)


def test_a_right_guess_passes_and_says_no_more(ends):
    """One chance in 16 for four bits of a path of five."""
    sender, receiver = ends
    secret = secret_pair(receiver)
    answer = receiver.answer(offered(sender))
    proof = bet(sender, answer, secret)
    sender.prove(answer)
    receiver.finish(proof)
    assert fitting(sender, receiver) == [secret]


def test_without_the_check_a_sender_reads_where_the_noise_is(ends, monkeypatch):
    monkeypatch.setattr(silent.hmac, "compare_digest", lambda *_: True)
    sender, receiver = ends
    secret = secret_pair(receiver)
    receiver.finish(sender.prove(receiver.answer(offered(sender))))
    assert fitting(sender, receiver) == [secret]
