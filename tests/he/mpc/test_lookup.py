"""Exact look-up against the table: every index with every share, and the sizes that plans say."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.gadgets import OfflineState
from privcirnet.he.mpc.lookup import Lookup, client_ahead, client_online, server_ahead, server_online
from tests.he.mpc.transfers import both, converse

SMALL, LARGE = 12289, (167772161, 1152921504606830593)
CLIENT, SERVER = both()


def kept(lookup: Lookup, values: int, said: list[list[bytes]]) -> tuple[OfflineState, OfflineState]:
    """What both parties keep of their turns ahead."""
    found = converse(client_ahead(lookup, values, CLIENT), server_ahead(lookup, values, SERVER), said)
    for one in found:
        assert one.planes.shape == (sum(lookup.kept_planes), values // 64)
        assert one.numbers.shape == (lookup.kept_numbers, values)
    return found


def messages(lookup: Lookup, index: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, list[list[bytes]]]:
    """The server's share of the results, and the parts of all messages in order, but empty ones."""
    said: list[list[bytes]] = []
    client, server = kept(lookup, index.size, said)
    assert client.numbers[-1].max() < len(lookup.table)
    share = (index.astype(np.uint64) - client.numbers[-1]) % np.uint64(len(lookup.table))
    found, _ = converse(server_online(lookup, server, share), client_online(lookup, client, w), said)
    return found, [parts for parts in said if parts]


def computed(lookup: Lookup, index: np.ndarray) -> np.ndarray:
    """The results, as signed integers."""
    w = np.random.default_rng(0).integers(0, lookup.t, index.size, dtype=np.uint64)
    found = ((messages(lookup, index, w)[0] + w) % np.uint64(lookup.t)).astype(np.int64)
    return np.where(found > lookup.t // 2, found - lookup.t, found)


def table(bits: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(bits).integers(low, high, 1 << bits).tolist())


@pytest.mark.parametrize("bits", range(4, 11))
@pytest.mark.parametrize("t", [SMALL, *LARGE])
def test_every_entry_is_found(bits: int, t: int) -> None:
    lookup = Lookup(t, table(bits, -128, 128))
    index = np.resize(np.arange(1 << bits), max(1 << bits, 320))
    assert (computed(lookup, index) == np.resize(lookup.table, index.size)).all()


@pytest.mark.parametrize("bits", [4, 5, 8])
def test_every_index_with_every_share(bits: int) -> None:
    """The client's shares are random: a thousand draws for each pair of an index of 4 bits and a share."""
    lookup = Lookup(SMALL, table(bits, -5, 700))
    index = np.resize(np.arange(1 << bits), 1 << 18 if bits == 4 else 1 << 16)
    assert (computed(lookup, index) == np.resize(lookup.table, index.size)).all()


@pytest.mark.parametrize(
    ("t", "values"), [(SMALL, (0,)), (SMALL, (-6144, 6144)), (LARGE[1], (-(2**58), 2**58, -1)), (SMALL, (-3, -3, -2))]
)
def test_edges_of_entries(t: int, values: tuple[int, ...]) -> None:
    lookup = Lookup(t, tuple(np.resize(values, 64).tolist()))
    assert (computed(lookup, np.arange(64)) == lookup.table).all()


def test_the_largest_table() -> None:
    lookup = Lookup(LARGE[0], table(12, -(1 << 19), 1 << 19))
    index = np.resize([0, 1, 63, 64, 2047, 2048, 4094, 4095, 777], 64)
    assert (computed(lookup, index) == np.array(lookup.table)[index]).all()


@pytest.mark.parametrize("bits", [4, 7, 8])
def test_messages_have_the_sizes_that_the_plan_says(bits: int) -> None:
    lookup = Lookup(LARGE[0], table(bits, -128, 128))
    _, sent = messages(lookup, np.zeros(192, np.int64), np.zeros(192, np.uint64))
    sizes = [8 * sum(map(len, parts)) // 192 for parts in sent[2:]]
    assert sizes == [*lookup.ahead_bits(), *map(sum, lookup.online_bits())]


def test_bytes_of_a_value() -> None:
    """Of 8 bits, to shares of 28."""
    lookup = Lookup(LARGE[0], tuple(range(-128, 128)))
    assert sum(lookup.ahead_bits()) / 8 == 104
    assert sum(map(sum, lookup.online_bits())) / 8 == 6.5
    assert (lookup.down[-1].stop, lookup.up) == (19, 3)


def test_every_message_is_uniform() -> None:
    """Bits of each message of one index, over all transfers and masks: none is likelier, nor equal to another."""
    lookup = Lookup(SMALL, table(6, 0, 256))
    index, w = np.full(1 << 14, 41), np.random.default_rng(0).integers(0, SMALL, 1 << 14, dtype=np.uint64)
    _, sent = messages(lookup, index, w)
    found = [np.frombuffer(part, np.uint64).reshape(-1, index.size // 64) for part in (sent[2][0], *sent[3], *sent[4])]
    online = np.frombuffer(sent[5][0], np.uint64).reshape(-1, index.size // 64)
    masked = np.frombuffer(sent[6][0], np.uint64).reshape(-1, index.size // 64)[: lookup.entry_bits]
    planes = np.concatenate([*found, online, masked])  # but residues, whose top bits are not
    for several in (planes, planes[1:] ^ planes[:-1]):
        ones = np.unpackbits(several.view(np.uint8), axis=1).sum(1)
        assert (abs(ones - index.size / 2) < 5 * (index.size / 4) ** 0.5).all()


def test_shares_of_the_index_are_uniform() -> None:
    client, server = kept(Lookup(SMALL, table(4, 0, 9)), 1 << 14, [])
    for share in (client.numbers[-1], server.numbers[-1], (client.numbers[-1] + server.numbers[-1]) % np.uint64(16)):
        counts = np.bincount(share.astype(np.int64), minlength=16)
        assert ((counts - 1024) ** 2 / 1024).sum() < 50


def test_other_messages_are_refused() -> None:
    lookup = Lookup(SMALL, table(6, 0, 256))
    for wrong in ("tables", "offers", "residues", "rows"):
        client, server = client_ahead(lookup, 64, CLIENT), server_ahead(lookup, 64, SERVER)
        next(server)
        tables, offers = client.send(server.send(next(client)))
        match = "under their modulus" if wrong == "residues" else "have the length"
        if wrong == "rows":
            (reply,) = server.send([tables, offers])
            with pytest.raises(RuleError, match=match):
                client.send([reply[8:]])
            continue
        parts = {
            "tables": [tables[8:], offers],
            "offers": [tables, offers[8:]],
            "residues": [tables, b"\xff" * len(offers)],
        }
        with pytest.raises(RuleError, match=match):
            server.send(parts[wrong])


def test_other_messages_with_the_image_are_refused() -> None:
    lookup, w = Lookup(SMALL, table(6, 0, 256)), np.zeros(64, np.uint64)
    for wrong, match in ((-8, "have the length"), (0, "under their modulus")):
        ours, theirs = kept(lookup, 64, [])
        client, server = client_online(lookup, ours, w), server_online(lookup, theirs, w)
        next(client)
        (asked,) = next(server)
        with pytest.raises(RuleError, match="have the length"):
            client.send([asked[8:]])
        with pytest.raises(RuleError, match=match):
            server.send([b"\xff" * (8 * (lookup.entry_bits + lookup.width) + wrong)])


def test_tables_that_cannot_be_looked_up_are_refused() -> None:
    for values in (range(8), range(48), range(1 << 13)):
        with pytest.raises(ValueError, match="2\\^4 to 2\\^12 entries"):
            Lookup(SMALL, tuple(values))
    with pytest.raises(ValueError, match="span less than t"):
        Lookup(SMALL, (0, SMALL, *range(14)))
