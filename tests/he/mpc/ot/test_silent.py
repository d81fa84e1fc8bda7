"""Silent transfers: t = q + u Delta in all of them, sizes, a stock that serves once, and a sender that offers others."""

import hashlib
import math
import os
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.ot import session, silent
from privcirnet.he.mpc.ot.ciphers import check_point
from privcirnet.he.system import threads
from tests.he.mpc.transfers import bits_of, both, converse, silent_pair


def iterate(sender: silent.Sender, receiver: silent.Receiver) -> list[bytes]:
    """The messages of an iteration."""
    messages = [sender.offer()]
    messages.append(receiver.answer(messages[0]))
    messages.append(sender.prove(messages[1]))
    receiver.finish(messages[2])
    return messages


@pytest.fixture
def ends(monkeypatch):
    return silent_pair(monkeypatch)


def test_rows_differ_by_delta_where_the_choice_is_one(ends):
    sender, receiver = ends
    seen, choices, code = [], [], silent.CODE
    for stock in (1, 2, 3):
        assert tuple(map(len, iterate(*ends))) == code.message_bytes
        assert sender.stock == receiver.stock == stock * code.made
    for transfers in (64, code.made, 2 * code.made - 64):
        made, message = receiver.extend(transfers)
        q, u = sender.extend(transfers, message).rows, bits_of(made.choices)
        assert (made.rows == q ^ u[:, None] * sender.delta).all()
        assert (made.rows[:, 0] & np.uint64(1) == u).all()
        seen.append(q)
        choices.append(u)
    assert abs(np.concatenate(choices).mean() - 0.5) < 4 / (3 * code.made) ** 0.5
    assert len(np.unique(np.concatenate(seen), axis=0)) == 3 * code.made
    assert sender.stock == receiver.stock == 0


@pytest.mark.parametrize("at_once", [64, 96, 1 << 14])
@pytest.mark.parametrize("count", [1, 3])
def test_the_code_adds_ten_rows_of_the_seed_in_pieces_on_any_threads(ends, at_once, count, monkeypatch, aes_kind):
    monkeypatch.setattr(silent, "_AT_ONCE", at_once)
    sender, _ = ends
    sender.offer()
    leaves, spent = sender._grown(), sender._spent
    code = algorithms.AES(hashlib.sha256(b"privcirnet code" + b"key").digest()[:16])
    stream = Cipher(code, modes.CTR(bytes(16))).encryptor().update(bytes(40 * silent.CODE.trees << silent.CODE.depth))
    taken = spent[np.frombuffer(stream, np.uint32).reshape(-1, 10) % silent.CODE.seed]
    expected = leaves.reshape(-1, 2) ^ np.bitwise_xor.reduce(taken, axis=1)
    with threads.using(count):
        sender._encode(leaves, b"key")
    assert (np.concatenate([sender._rows[0], sender._spent]) == expected).all()


def test_a_session_has_millions_in_both_directions_and_no_more():
    """With the sizes that users have: a sixth of a byte each, and messages whose lengths are the formula's."""
    first, second = both(source="silent")
    code, said = silent.CODE, []
    assert first.stock == second.stock == (0, 0)
    converse(first.refill(), second.refill(), said)
    assert first.stock == second.stock == (code.made, code.made)
    offer, answer, proof = code.message_bytes
    assert [[len(part) for part in parts] for parts in said] == [[offer], [answer, offer], [proof, answer], [proof]]
    assert sum(code.message_bytes) / code.made < 0.1702
    for helper, chooser in ((first, second), (second, first)):
        slots, values = 2, code.made // 128 * 64
        chosen, message = chooser.choose(slots, values)
        offered = helper.help(slots, values, message)
        assert message == b""
        u = bits_of(chosen.choices.reshape(-1)).reshape(slots, values, 1)
        for slot in range(slots):
            one, other = (key[slot] for key in offered.keys)
            assert (chosen.keys[slot] == one ^ (one ^ other) * u[slot]).all()
        assert abs(u.mean() - 0.5) < 4 / u.size**0.5
        with pytest.raises(RuleError, match=r"silent transfers must be made ahead: got \d+ for 6400; both parties run"):
            chooser.choose(1, 6400)
        with pytest.raises(RuleError, match="silent transfers must be made ahead"):
            helper.help(1, 6400, b"")


@pytest.mark.parametrize("counts", [(1, 1), (3, 1), (0, 2), (2, 0)])
def test_iterations_in_sequence_share_messages(counts, monkeypatch):
    """One message more each way than iterations of the direction that has more; each part as long as is said."""
    monkeypatch.setattr(silent, "CODE", silent.LpnParameters(trees=64, depth=5, seed=128))
    ends, said, made = both(source="silent"), [], silent.CODE.made
    asked = [max(count * made - 1, 0) for count in counts]
    assert ends[0].lacks(asked[1], asked[0]) == ends[1].lacks(*asked) == counts
    converse(*(end.refill(*counts) for end in ends), said)
    assert [tuple(map(len, parts)) for parts in said] == session.refill_sizes(*counts)
    assert len(said) == 2 * (max(counts) + 1)
    for helper, chooser, count in ((*ends, counts[0]), (*ends[::-1], counts[1])):
        assert helper.stock[1] == chooser.stock[0] == count * made
        chosen, message = chooser.choose(count, made)
        offered = helper.help(count, made, message)
        for slot in range(count):
            first, second = offered.planes(slot, 3)
            assert (chosen.planes(slot, 3) == first ^ (first ^ second) & chosen.choices[slot]).all()


def test_the_memory_of_taken_rows_serves_the_next_iteration(ends):
    iterate(*ends)
    for party in ends:
        place, extend = party._rows[0].ctypes.data, party.extend
        extend(silent.CODE.made, *[b""][: isinstance(party, silent.Sender)])
        assert party._rows == []
        assert party._memory.ctypes.data == place
    iterate(*ends)
    assert [party._memory for party in ends] == [None, None]


def test_rows_are_zeroed_when_they_are_taken_and_when_they_are_spent(ends):
    iterate(*ends)
    for party in ends:
        kept, spent = party._rows[0], party._spent.copy()
        party.extend(64, *[b""][: isinstance(party, silent.Sender)])
        assert not kept[:64].any()
        assert kept[64:].any(1).all()
        assert not (spent[:, None] == kept[64:128]).all(-1).any()


def test_a_mask_that_served_twice_confirms_a_guess_of_the_noise(ends):
    """The answers to two checks of the same trees under the same mask differ by what the noise alone gives."""
    sender, receiver = ends
    sides = receiver._levels()[..., 0] & np.uint64(1)

    def unmasked(answer: bytes) -> bytes:
        found = np.empty(2, np.uint64)
        blocks.weights(found, check_point(answer[:16]), sides)
        return (found ^ np.frombuffer(answer[16:], np.uint64)).tobytes()

    offer = sender.offer()
    first = receiver.answer(offer)
    assert unmasked(first) != bytes(16)
    with pytest.raises(RuntimeError, match="spends its rows once"):
        receiver.answer(offer)
    receiver._leaves = None
    again = receiver.answer(offer)
    assert unmasked(again) == unmasked(first)
    receiver.finish(sender.prove(again))
    assert unmasked(receiver.answer(sender.offer())) != unmasked(first)


@pytest.mark.parametrize("part", ["offer", "answer", "proof"])
def test_a_changed_message_ends_the_session(ends, part):
    sender, receiver = ends

    def sent(name: str, message: bytes) -> bytes:
        return bytes([message[0], message[1] ^ (name == part), *message[2:]])

    proof = sender.prove(sent("answer", receiver.answer(sent("offer", sender.offer()))))
    with pytest.raises(RuleError, match="leaves must be those of trees"):
        receiver.finish(sent("proof", proof))
    with pytest.raises(RuleError, match="silent transfers must be made ahead: got 0"):
        receiver.extend(64)
    with pytest.raises(ValueError, match="reshape"):
        receiver.answer(b"")


def test_other_lengths_are_refused(ends):
    sender, receiver = ends
    offer = sender.offer()
    with pytest.raises(RuleError, match="correlated trees must have the length"):
        receiver.answer(offer[1:])
    answer = receiver.answer(offer)
    with pytest.raises(RuleError, match="check of silent transfers must have the length"):
        sender.prove(answer + b"0")
    with pytest.raises(RuleError, match="proof of silent transfers must have the length"):
        receiver.finish(sender.prove(answer)[1:])
    with pytest.raises(RuleError, match="extension of silent transfers must have the length"):
        sender.extend(64, b"0")


def test_steps_out_of_order_are_refused(ends):
    sender, receiver = ends
    with pytest.raises(RuntimeError, match="begins with its trees"):
        sender.prove(bytes(32))
    with pytest.raises(RuntimeError, match="begins with its trees"):
        receiver.finish(bytes(32))
    sender.offer()
    with pytest.raises(RuntimeError, match="spends its rows once"):
        sender.offer()


def test_a_party_cannot_be_copied_or_used_in_a_forked_process(ends, monkeypatch):
    sender, receiver = ends
    iterate(*ends)
    for party in ends:
        with pytest.raises(TypeError, match="would use their keys twice"):
            pickle.dumps(party)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for use in (
        lambda: receiver.extend(64),
        lambda: sender.extend(64, b""),
        sender.offer,
        lambda: receiver.answer(b""),
    ):
        with pytest.raises(RuntimeError, match="would use their keys twice"):
            use()


def test_softspoken_has_no_stock_and_other_sources_are_refused():
    first, second = both()
    assert first.stock == second.stock == (math.inf, math.inf)
    with pytest.raises(RuleError, match="transfers with a stock must be silent: got softspoken"):
        next(first.refill())
    with pytest.raises(RuleError, match="source of transfers must be softspoken or silent: got loud"):
        both(source="loud")
