"""Tables of digits and merges against integers, and the public shape that they say."""

import os

import numpy as np
import pytest

from privcirnet.he.mpc.carries import DigitTable, Merge, bits_of_sums, carry, propagates
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
def test_functions_of_a_sum_are_looked_up(bits):
    functions = [carry(bits), propagates(bits), bits_of_sums(bits, lambda s: s % 3 == 1)]
    rng = np.random.default_rng(bits)
    for digit in (DigitTable(bits, tuple(functions[:count])) for count in (1, 2, 3)):
        client, server = rng.integers(0, 1 << bits, (2, VALUES))
        offered, chosen = transfers(bits)
        message, table = digit.client_table(offered, planes_of(client, bits))
        shifted, fresh = digit.server_table(chosen, message), random_planes(digit.outputs)
        answer = digit.choose(planes_of(server, bits), chosen.choices, shifted, fresh)
        found = [bits_of(plane) for plane in digit.answer(table, answer) ^ fresh]
        for function, results in zip(digit.functions, found, strict=True):
            assert (results == [function >> int(s) & 1 for s in client + server]).all()
        assert (len(message), len(answer)) == (digit.ahead_planes, digit.online_planes)
        assert table.shape[0] * table.shape[1] == digit.table_planes


def sums(*results: str) -> tuple[tuple[frozenset[int], ...], ...]:
    """Sums of products of inputs, as "01+2"."""
    return tuple(tuple(frozenset(map(int, product)) for product in result.split("+")) for result in results)


@pytest.mark.parametrize("of", [("0", "2"), ("01+2",), ("034+24+4", "134"), ("01+2", "3+0123", "12")], ids=str)
def test_products_are_added(of):
    """Every combination of inputs, each in all splits between the parties."""
    merge = Merge(sums(*of))
    inputs, held = random_planes(5), random_planes(5)
    ahead = inputs ^ held
    offered, chosen = transfers(max(1, len(merge.choices)))
    chosen = chosen.some(range(len(merge.choices)))
    message, shares = merge.help_ahead(offered, ahead, merge.flips(chosen))
    mine, fresh = merge.choose_ahead(chosen, message), random_planes(merge.outputs)
    said = merge.choose(held, chosen.choices, mine, fresh)
    found = merge.help(ahead, shares, said) ^ fresh
    for terms, result in zip(merge.sums, found, strict=True):
        products = [np.bitwise_and.reduce(inputs[sorted(term)]) for term in terms]
        assert (result == np.bitwise_xor.reduce(products)).all()
    assert (len(message), len(said)) == (merge.help_planes, merge.online_planes)


@pytest.mark.parametrize(("of", "slots"), [(("01+2",), 2), (("01+2", "13"), 3), (("034+24+4",), 7), (("0", "2"), 0)])
def test_transfers_of_a_merge(of, slots):
    assert len(Merge(sums(*of)).choices) == slots
