"""Digits and merges against integers, and the public shape that they say."""

import os

import numpy as np
import pytest

from privcirnet.he.mpc.comparison import ComparisonMerge, DigitComparison
from privcirnet.he.mpc.ot.session import ReceiverOts, SenderOts
from tests.he.mpc.transfers import bits_of, both

VALUES = 128
HELPER, CHOOSER = both()


def transfers(slots: int) -> tuple[SenderOts, ReceiverOts]:
    chosen, message = CHOOSER.choose(slots, VALUES)
    return HELPER.help(slots, VALUES, message), chosen


def planes_of(values: np.ndarray, bits: int) -> np.ndarray:
    return np.packbits(values[None] >> np.arange(bits)[:, None] & 1, axis=1, bitorder="little").view(np.uint64)


def random_planes(count: int) -> np.ndarray:
    return np.frombuffer(os.urandom(count * VALUES // 8), dtype=np.uint64).reshape(count, -1)


@pytest.mark.parametrize("bits", [1, 2, 4, 5])
@pytest.mark.parametrize("equal", [False, True])
def test_a_digit_is_compared(bits, equal):
    digit, rng = DigitComparison(bits, equal), np.random.default_rng(bits)
    client, server = rng.integers(0, 1 << bits, (2, VALUES))
    offered, chosen = transfers(bits)
    message, table = digit.client_table(offered, planes_of(client, bits))
    shifted, fresh = digit.server_table(chosen, message), random_planes(digit.outputs)
    answer = digit.choose(planes_of(server, bits), chosen.choices, shifted, fresh)
    found = [bits_of(plane) for plane in digit.answer(table, answer) ^ fresh]
    assert (found[0] == (client > server)).all()
    if equal:
        assert (found[1] == (client == server)).all()
    assert (len(message), len(answer)) == (digit.ahead_planes, digit.online_planes)
    assert table.shape[0] * table.shape[1] == digit.table_planes


ONE, TWO, THREE = (tuple(range(fan)) for fan in (1, 2, 3))


@pytest.mark.parametrize("chains", [(ONE,), (TWO,), (THREE,), ((0, 1), (0, 2)), ((0, 1, 3), (0, 2, 4))], ids=str)
@pytest.mark.parametrize("equal", [False, True])
def test_digits_are_merged(chains, equal):
    """Every combination of results, each in all splits between the parties."""
    merge, fan = ComparisonMerge(chains, equal), 1 + max(map(max, chains))
    count = 2 * fan
    inputs = dict(enumerate(random_planes(count)))
    held = dict(enumerate(random_planes(count)))
    ahead = {i: inputs[i] ^ held[i] for i in inputs}
    offered, chosen = transfers(len(merge.choices))
    message, shares = merge.help_ahead(offered, ahead, merge.flips(chosen))
    mine, fresh = merge.choose_ahead(chosen, message), random_planes(merge.outputs)
    said = merge.choose(held, chosen.choices, mine, fresh)
    found = merge.help(ahead, shares, said) ^ fresh
    wanted = []
    for digits in chains:
        greater, same = np.zeros_like(inputs[0]), np.full_like(inputs[0], ~np.uint64(0))
        for i in digits:
            greater, same = inputs[i] ^ (greater & inputs[fan + i]), same & inputs[fan + i]
        wanted += [greater, same][: 1 + equal]
    assert (found == np.array(wanted)).all()
    assert (len(message), len(said)) == (merge.help_planes, merge.online_planes)


@pytest.mark.parametrize(
    ("chains", "equal", "slots"),
    [((TWO,), False, 2), ((TWO,), True, 3), ((THREE,), False, 7), ((THREE,), True, 10), (((0, 1), (0, 2)), True, 4)],
)
def test_transfers_of_a_merge(chains, equal, slots):
    assert len(ComparisonMerge(chains, equal).choices) == slots
