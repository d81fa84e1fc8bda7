"""Both parties of an exact look-up (:mod:`mpc.lookup`), ahead of the image and with it.

Ahead the client begins, online the server (:mod:`mpc.messages`).
"""

import numpy as np

from privcirnet.he.mpc import bit_multiplication as selection
from privcirnet.he.mpc.bit_multiplication import bits, minus, pick, zeros
from privcirnet.he.mpc.comparison import accept, offer
from privcirnet.he.mpc.kernels.planes import values_into
from privcirnet.he.mpc.kernels.tables import entries_into
from privcirnet.he.mpc.lookup import Lookup
from privcirnet.he.mpc.messages import (
    OfflineState,
    PartyCoroutine,
    fresh_planes,
    joined,
    numbers_of,
    packed,
    read,
    split,
)
from privcirnet.he.mpc.ot.keys import ReceiverOts, SenderOts, planes
from privcirnet.he.mpc.ot.session import OtSession
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads


def client_ahead(lookup: Lookup, values: int, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the client's turns ahead.

    Args:
        values: number of values, a multiple of 64.

    Returns:
        what it keeps; the last of the numbers is its share of the index mod 2^k, which is random.
    """
    t, (low, high), words = lookup.t, lookup.sides, values // 64
    up, extension = transfers.choose(lookup.up, values)
    received = yield [extension]

    down = transfers.help(lookup.down[-1].stop, values, received[0])
    *places, rows, masked = [down.some(slots) for slots in lookup.down]
    r_bits, masks = fresh_planes(lookup.bits, words), fresh_planes(lookup.entry_bits, words)
    digits = zip(lookup.digits, places, split(r_bits, [digit.bits for digit in lookup.digits]), strict=True)
    tables = [digit.client_table(offered, x) for digit, offered, x in digits]
    sums, index = _client_index(lookup, down, r_bits)
    keys = threads.each(lambda j: selection.helper_keys(masked, j, t), range(lookup.entry_bits))
    twice = [bits(mask) * np.uint64((2 << j) % t) for j, mask in enumerate(masks)]
    offers = [selection.offer(number, distance, t) for number, (_, distance) in zip(twice, keys, strict=True)]
    x, y = (table[0] for _, table in tables)
    first = [*(message for message, _ in tables), *sums, x[:-1] ^ up.choices]
    received = yield [joined(first), packed(offers, lookup.width)]

    flips, *theirs = read(received[0], [low, *[high] * low], words)
    mine = threads.each(lambda i: offer(rows, i, y[:-1], flips[i]), range(low))
    yield [joined([message for message, _ in mine])]

    crossed = threads.each(lambda i: accept(up, i, theirs[i], x[i]) ^ mine[i][1], range(low))
    numbers = [
        (bits(mask) * np.uint64((1 << j) % t) + key) % np.uint64(t)
        for j, (mask, (key, _)) in enumerate(zip(masks, keys, strict=True))
    ]
    return OfflineState(np.concatenate([_by_value(lookup, x, y, crossed), masks]), np.array([*numbers, index]))


def _client_index(lookup: Lookup, down: SenderOts, r_bits: Residues) -> tuple[list[Residues], Residues]:
    """Return messages, planes each, and the client's share of r; ``r_bits``: its bits of r."""
    messages, index = list[Residues](), zeros(bits(r_bits[0]))
    for j, size in enumerate([*lookup.sum_bits, 0]):
        first, second = (key[j][:, 1] for key in down.keys)  # the table's bits are in the other word
        messages.append(planes(bits(r_bits[j]) + first - second, size))
        index += (bits(r_bits[j]) + first + first) << np.uint64(j)
    return messages, index & np.uint64(len(lookup.table) - 1)


def server_ahead(lookup: Lookup, values: int, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the server's turns ahead.

    Args:
        values: number of values, a multiple of 64.

    Returns:
        its state for the image.
    """
    t, (low, high), words = lookup.t, lookup.sides, values // 64
    received = yield []
    up = transfers.help(lookup.up, values, received[0])
    down, extension = transfers.choose(lookup.down[-1].stop, values)
    *places, rows, masked = [down.some(slots) for slots in lookup.down]
    received = yield [extension]

    sizes = [*(digit.ahead_planes for digit in lookup.digits), *lookup.sum_bits, low]
    *parts, flips = read(received[0], sizes, words)
    x, y = (d.server_table(c, part)[0] for d, c, part in zip(lookup.digits, places, parts, strict=False))
    index = _server_index(lookup, down, parts[2:])
    mine = threads.each(lambda i: offer(up, i, y[:-1], flips[i]), range(low))
    offers = [numbers_of(part, t) for part in read(received[1], [lookup.width] * lookup.entry_bits, words)]
    products = threads.each(lambda j: selection.accept(masked, j, offers[j], t), range(lookup.entry_bits))
    numbers = [
        minus(bits(mask) * np.uint64((1 << j) % t), product, t)
        for j, (mask, product) in enumerate(zip(masked.choices, products, strict=True))
    ]
    received = yield [joined([x[:-1] ^ rows.choices, *(message for message, _ in mine)])]

    theirs = read(received[0], [high] * low, words)
    crossed = threads.each(lambda i: accept(rows, i, theirs[i], x[i]) ^ mine[i][1], range(low))
    yield []
    return OfflineState(np.concatenate([_by_value(lookup, x, y, crossed), masked.choices]), np.array([*numbers, index]))


def _server_index(lookup: Lookup, down: ReceiverOts, messages: list[Residues]) -> Residues:
    """Return the server's share of r; ``messages``: of the client, for each bit but the highest."""
    index = zeros(bits(down.choices[0]))
    for j in range(lookup.bits):
        bit = bits(down.choices[j])
        product = zeros(bit)
        if j < len(messages):
            product = down.keys[j][:, 1] + bit * numbers_of(messages[j], 1 << len(messages[j]))
        index += (bit - product - product) << np.uint64(j)
    return index & np.uint64(len(lookup.table) - 1)


def _by_value(lookup: Lookup, x: Residues, y: Residues, crossed: list[Residues]) -> Residues:
    """Return a party's share of the vector, the words of a value together, (64 place words, words).

    Args:
        x: its share of the low digit's.
        y: its share of the high one's.
        crossed: its share of the products of its own and the other's, row by row, without the last.
    """
    grid = np.empty((len(x), *y.shape), dtype=np.uint64)
    grid[:-1, :-1] = (x[:-1, None] & y[None, :-1]) ^ np.array(crossed)
    grid[:-1, -1] = x[:-1] ^ np.bitwise_xor.reduce(grid[:-1, :-1], axis=1)
    grid[-1] = y ^ np.bitwise_xor.reduce(grid[:-1], axis=0)
    flat = grid.swapaxes(0, 1).reshape(len(lookup.table), -1)
    vectors = np.empty((64 * flat.shape[1], lookup.place_words), dtype=np.uint64)
    column = np.empty(len(vectors), dtype=np.uint64)
    for w in range(lookup.place_words):
        values_into(column, np.ascontiguousarray(np.resize(flat[64 * w : 64 * w + 64], (64, flat.shape[1]))))
        vectors[:, w] = column
    return vectors.reshape(-1, flat.shape[1])


def client_online(lookup: Lookup, state: OfflineState, result: Residues) -> PartyCoroutine[None]:
    """Take the client's turns online.

    Args:
        result: its share, mod t, (values,), random and chosen ahead.

    Returns:
        nothing.
    """
    t, words = lookup.t, state.planes.shape[1]
    received = yield []
    index, theirs = read(received[0], [lookup.bits, lookup.entry_bits], words)
    masked = _masked(lookup, state, numbers_of(index, len(lookup.table)))
    ones = [np.uint64((1 << j) % t) for j in range(lookup.entry_bits)]
    total = _added(lookup, state, masked ^ theirs, ones)
    total = (total + np.uint64(lookup.least % t)) % np.uint64(t)
    yield [joined([masked]) + packed([minus(total, result, t)], lookup.width)]


def server_online(lookup: Lookup, state: OfflineState, share: Residues) -> PartyCoroutine[Residues]:
    """Take the server's turns online.

    Args:
        share: share of the index, mod 2^k, (values,).

    Returns:
        its share of the result, mod t, (values,).
    """
    t, words = lookup.t, state.planes.shape[1]
    index = (share - state.numbers[-1]) & np.uint64(len(lookup.table) - 1)
    masked = _masked(lookup, state, index)
    received = yield [joined([planes(index, lookup.bits), masked])]
    theirs, result = read(received[0], [lookup.entry_bits, lookup.width], words)
    total = _added(lookup, state, masked ^ theirs, [np.uint64(0)] * lookup.entry_bits)
    return (total + numbers_of(result, t)) % np.uint64(t)


def _masked(lookup: Lookup, state: OfflineState, index: Residues) -> Residues:
    """Return a party's share of the entries, under its masks, (entry bits, words)."""
    places, masks = split(state.planes, lookup.kept_planes)
    entries = np.empty(len(index), dtype=np.uint64)
    entries_into(entries, places.reshape(len(index), -1), index, lookup.words)
    return planes(entries, lookup.entry_bits) ^ masks


def _added(lookup: Lookup, state: OfflineState, masked: Residues, ones: list[np.uint64]) -> Residues:
    """Return a party's share of the sum of all bits; ``ones``: its addends where a masked bit is one."""
    t, total = lookup.t, zeros(state.numbers[0])
    for plane, share, weight in zip(masked, state.numbers, ones, strict=False):
        total = (total + pick(plane, share, minus(np.full_like(share, weight), share, t))) % np.uint64(t)
    return total
