"""Extended transfers: t = q + u Delta, uniform choices, sizes, and states that cannot be had twice."""

import os
import pickle

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.ot import session, softspoken
from privcirnet.he.mpc.ot.ciphers import TweakableHash
from tests.he.mpc.transfers import bits_of, both, hashes, pair

SOME = [64, 192, 4096, (1 << 17) + 64]


@pytest.mark.parametrize("k", softspoken.DEPTHS)
def test_rows_differ_by_delta_where_the_choice_is_one(k):
    sender, receiver = pair(k)
    assert (len(sender.hello), len(receiver.setup)) == softspoken.setup_bytes(k)
    seen = []
    for transfers in SOME:
        made, message = receiver.extend(transfers)
        rows = sender.extend(transfers, message).rows
        choices = bits_of(made.choices)
        assert (made.rows == rows ^ choices[:, None] * sender.delta).all()
        assert len(message) == softspoken.message_bytes(k, transfers)
        assert abs(choices.mean() - 0.5) < 4 / transfers**0.5
        seen.append(rows)
    rows = np.concatenate(seen)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_a_message_costs_what_the_formula_says():
    assert softspoken.message_bytes(4, 1 << 20) / (31 / 8 * (1 << 20)) < 1.002
    assert softspoken.message_bytes(8, 1 << 20) / (15 / 8 * (1 << 20)) < 1.002


def test_keys_are_those_of_the_choice_and_no_two_are_alike():
    helper, chooser = both()
    chosen, message = chooser.choose(3, 128)
    offered = helper.help(3, 128, message)
    seen = list[np.ndarray]()
    for slot in range(3):
        choices = bits_of(chosen.choices[slot])[:, None]
        seen += [key[slot] for key in offered.keys]
        assert (chosen.keys[slot] == seen[-2] ^ (seen[-2] ^ seen[-1]) * choices).all()
    assert len(np.unique(np.concatenate(seen), axis=0)) == 2 * 3 * 128


def test_keys_are_hashes_of_all_rows_counted_through():
    """Some slots, whole or in planes: the hash of all rows at once."""
    rows, delta = (np.frombuffer(os.urandom(16 * count), np.uint64).reshape(-1, 2) for count in (5 * 320, 1))
    offered = session.SenderOts.of(softspoken.CorrelatedOts(rows), delta[0], 320, TweakableHash(b"s"), 7).some(
        range(1, 5)
    )
    for which, of in enumerate((rows, rows ^ delta)):
        expected = hashes(of, b"s", 7).reshape(5, 320, 2)
        for slot in range(3):
            assert (offered.keys[which].some(range(1, 4))[slot] == expected[2 + slot]).all()
            planes = offered.planes(slot, 20)[which]
            assert all((bits_of(plane) == expected[1 + slot, :, 0] >> j & 1).all() for j, plane in enumerate(planes))


def test_a_hash_of_the_same_row_is_another_with_another_number():
    rows, no_shift = np.ones((20_000, 2), dtype=np.uint64), np.zeros((1, 2), dtype=np.uint64)
    found = TweakableHash(b"s")(rows, 7, no_shift)[0]
    assert len(np.unique(found, axis=0)) == len(rows)
    assert (TweakableHash(b"s")(rows[:2], 9, no_shift)[0] == found[2:4]).all()
    assert (TweakableHash(b"t")(rows, 7, no_shift)[0] != found).any()


def test_an_odd_k_is_refused():
    with pytest.raises(RuleError, match="k of SoftSpoken must be 1, 2, 4 or 8: got 3"):
        softspoken.Sender(3, b"s")


def test_other_lengths_are_refused():
    sender, receiver = pair()
    with pytest.raises(RuleError, match="extension of oblivious transfers must have the length"):
        sender.extend(64, receiver.extend(192)[1])
    with pytest.raises(RuleError, match="answer to oblivious transfers must have the length"):
        softspoken.Sender(4, b"s").begin(receiver.setup[1:])


def test_a_party_cannot_be_copied():
    for party in pair():
        with pytest.raises(TypeError, match="would use their keys twice"):
            pickle.dumps(party)


def test_a_forked_process_makes_no_transfers(monkeypatch):
    sender, receiver = pair()
    _, message = receiver.extend(64)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for use in (lambda: receiver.extend(64), lambda: sender.extend(64, message)):
        with pytest.raises(RuntimeError, match="would use their keys twice"):
            use()
