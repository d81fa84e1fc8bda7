"""The messages of exact steps: a truncation, a ReLU or a clip, and a look-up table. None has a ciphertext.

They cannot be done with an image's own shares: their tables are made of the client's share, which it knows ahead. Each
takes two trips ahead of the image; with it a truncation takes one, a ReLU or a clip two. A table is a truncation to its
index, or a clip to it, and the look-up: ahead both go side by side, in three trips; with the image the look-up follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise, zip_longest
from math import prod
from typing import Any

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.mpc import lookup, rectifier, truncation
from privcirnet.he.mpc.gadgets import OfflineState, PartyCoroutine, split
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.lookup import Lookup
from privcirnet.he.mpc.ot.session import OtSession, given, message_bytes
from privcirnet.he.mpc.ot.softspoken import ROW_BYTES
from privcirnet.he.mpc.rectifier import Rectifier
from privcirnet.he.mpc.truncation import Floor
from privcirnet.he.program.exact import ExactStep
from privcirnet.he.program.lookup_table import ExactTable
from privcirnet.he.protocol.rounds.exchange import (
    AT_ONCE_BYTES,
    PLANES,
    SHARE,
    ClientShares,
    Correlation,
    Exchange,
    PreparedNode,
    RoundPlan,
    ServerShares,
)
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, alternating, end
from privcirnet.he.ring.modular import Residues

NUMBERS = "numbers"
_VALUE_BYTES = 128
"""Bytes in memory for a value, beside those that are counted."""


@dataclass(frozen=True)
class FloorOnline:
    """The online phase of a floor: the server's masked digits, and the client's answers from its tables.

    Attributes:
        rows: range of a piece within the padded values; None: all of them.
    """

    floor: Rectifier | Floor
    shape: tuple[int, ...]
    rows: range | None = field(default=None, kw_only=True)

    @property
    def values(self) -> int:
        """The number of values of the node's result."""
        return prod(self.shape)

    @property
    def padded(self) -> int:
        """The number of values in whole words of planes; for a piece, its own."""
        return -(-self.values // 64) * 64 if self.rows is None else len(self.rows)

    @property
    def client_keeps(self) -> Mapping[str, int]:
        sizes = self._keeps(
            turns_of(self.floor).client_planes(self.floor), turns_of(self.floor).client_numbers(self.floor)
        )
        return {SHARE: self.values, **sizes}

    @property
    def server_keeps(self) -> Mapping[str, int]:
        return self._keeps(
            turns_of(self.floor).server_planes(self.floor), turns_of(self.floor).server_numbers(self.floor)
        )

    def _keeps(self, planes: list[int], numbers: int) -> dict[str, int]:
        return {PLANES: sum(planes) * self.padded // 64, NUMBERS: numbers * self.padded}

    @property
    def chosen(self) -> bool:
        return True

    def turns(self, t: int) -> tuple[MessageSpec, ...]:
        sizes = [tuple(self.padded * bits // 8 for bits in parts) for parts in self.floor.online_bits()]
        return alternating("server", sizes)

    def offline_shares(self, t: int) -> list[Residues | None]:
        return []

    def keep_client(self, share: Residues, result: Residues, t: int) -> Correlation:
        return {SHARE: share, **self._kept(result, self.client_keeps[PLANES])}

    def keep_server(self, offline_shares: Sequence[Residues | None], result: Residues, t: int) -> Correlation:
        return self._kept(result, self.server_keeps[PLANES])

    def _kept(self, flat: Residues, planes: int) -> dict[str, Residues]:
        return {PLANES: flat.reshape(-1)[:planes], NUMBERS: flat.reshape(-1)[planes:]}

    def shaped(self, correlation: Correlation) -> OfflineState:
        """Return a correlation in rows."""
        return OfflineState(
            correlation[PLANES].reshape(-1, self.padded // 64), correlation[NUMBERS].reshape(-1, self.padded)
        )

    def client(self, correlation: Correlation, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        return turns_of(self.floor).client_online(self.floor, self.shaped(correlation), self.pad(correlation[SHARE]))

    def server(
        self, layer: ClearLinear | None, correlation: Correlation, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        side: PartyCoroutine[Residues] = turns_of(self.floor).server_online(
            self.floor, self.shaped(correlation), self.raised(shares[0])
        )
        values = yield from side
        return values[: self.values].reshape(self.shape)

    def raised(self, share: Residues) -> Residues:
        """Return the server's share of the value that is rounded down, in whole words of planes."""
        return self.pad((share + np.uint64(1 << self.floor.f >> 1)) % np.uint64(self.floor.t))

    def pad(self, values: Residues) -> Residues:
        """Return values padded with zeros to whole words of planes; for a piece, its own."""
        whole = np.concatenate([values.reshape(-1), np.zeros(-self.values % 64, dtype=np.uint64)])
        return whole if self.rows is None else whole[self.rows.start : self.rows.stop]


@dataclass(frozen=True)
class FloorExchange(Exchange):
    """The exchange of an exact step, from one share of any shape to one of the same shape.

    Attributes:
        t: modulus of the shares.
        source: source of oblivious transfers, one of :data:`mpc.ot.session.OT_PROTOCOLS`.
        rows: range of a piece within the padded values; None: all of them.
    """

    operation: ExactStep
    shape: tuple[int, ...]
    t: int
    source: str = "softspoken"
    rows: range | None = field(default=None, kw_only=True)

    @property
    def floor(self) -> Rectifier | Floor:
        """The function that is computed."""
        return _floor(self.operation, self.t)

    @property
    def online(self) -> FloorOnline:
        return FloorOnline(self.floor, self.shape, rows=self.rows)

    @property
    def plan(self) -> RoundPlan:
        return self._plan

    @cached_property
    def _plan(self) -> RoundPlan:
        """The extensions of oblivious transfers, and the messages that they hide."""
        floor, values = self.floor, self.online.padded
        first, second, third = (values * bits // 8 for bits in floor.ahead_bits())
        slots = floor.down[-1].stop, floor.up[-1].stop
        down, up = (message_bytes(self.source, count, values) for count in slots)
        offers = values * floor.products * floor.width // 8
        octets = [(up, first), (down, second), (third - offers, offers), ()]
        transfers = (slots[0] * values, slots[1] * values)
        return RoundPlan(self.operation.title, "transfers", alternating("client", octets), transfers=transfers)

    def noise_bits(self, parameters: Parameters) -> int:
        """Return 0: without ciphertexts there is no noise."""
        return 0

    def working_bytes(self, parameters: Parameters) -> int:
        return self._working_bytes

    @cached_property
    def _working_bytes(self) -> int:
        """Return the bytes of transfer rows, messages and their copies, and twice the correlation, once in parts."""
        plan, online = self.plan, self.online
        sent = sum(sum(turn.octets) for turn in plan.turns)
        words = max(keeps[PLANES] + keeps[NUMBERS] for keeps in (online.client_keeps, online.server_keeps))
        return ROW_BYTES * sum(plan.transfers) + 2 * sent + 2 * 8 * words + _VALUE_BYTES * online.padded

    def pieces(self, count: int) -> "Sequence[FloorExchange]":
        """Return exchanges of some of the values each, of like size, in whole words of planes."""
        words = self.online.padded // 64
        number = min(words, -(-count * self._working_bytes // AT_ONCE_BYTES))
        cuts = (64 * (words * part // number) for part in range(number + 1))
        return [replace(self, rows=range(*cut)) for cut in pairwise(cuts)] if number > 1 else [self]

    def joined(self, pieces: Sequence[Correlation]) -> Correlation:
        if len(pieces) == 1:
            return pieces[0]
        words = self.online.padded // 64
        planes, numbers = ([piece[name] for piece in pieces] for name in (PLANES, NUMBERS))
        return {
            **pieces[0],
            PLANES: self._planes_joined(_in_rows(planes, words)).reshape(-1),
            NUMBERS: np.concatenate(_in_rows(numbers, 64 * words), axis=1).reshape(-1),
        }

    def _planes_joined(self, pieces: Sequence[Residues]) -> Residues:
        """Return the planes of all values; ``pieces``: planes of each piece, (planes, words)."""
        return np.concatenate(pieces, axis=1)

    def client(
        self, shares: ClientShares, engine: ClientEngine, transfers: OtSession | None
    ) -> PartyCoroutine[Residues]:
        share = self.online.pad(shares[0])
        side: PartyCoroutine[OfflineState] = turns_of(self.floor).client_ahead(self.floor, share, given(transfers))
        return flat((yield from side))

    def server(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: OtSession | None,
    ) -> PartyCoroutine[Residues]:
        turns, padded = turns_of(self.floor), self.online.padded
        side: PartyCoroutine[OfflineState] = turns.server_ahead(self.floor, padded, given(transfers))
        return flat((yield from side))


@lru_cache(maxsize=256)
def _floor(step: ExactStep, t: int) -> Rectifier | Floor:
    """Return a shape, which all pieces of a node share."""
    return rectifier.shape_of(step, t)


def turns_of(shape: Rectifier | Floor) -> Any:
    """Return the module with the parties' turns of a shape."""
    return truncation if isinstance(shape, Floor) else rectifier


def flat(*correlations: OfflineState) -> Residues:
    """Return a party's correlations in one row: all planes, then all numbers."""
    return np.concatenate(
        [rows.reshape(-1) for rows in (*(k.planes for k in correlations), *(k.numbers for k in correlations))]
    )


def _in_rows(pieces: Sequence[Residues], columns: int) -> list[Residues]:
    """Return flat pieces of an array in its rows of ``columns`` columns."""
    rows = sum(map(len, pieces)) // columns
    return [piece.reshape(rows, -1) for piece in pieces]


@dataclass(frozen=True)
class TableOnline(FloorOnline):
    """The online phase of a table: the index in shares, of which the client's is the look-up's, and the look-up.

    The index is q - first, of a truncation q; where it is clipped, the truncation is of x less first.
    """

    operation: ExactTable
    lookup: Lookup

    @property
    def index(self) -> FloorOnline:
        """The truncation or the clip."""
        return FloorOnline(self.floor, self.shape, rows=self.rows)

    @property
    def client_keeps(self) -> Mapping[str, int]:
        return {**self._with_lookup(self.index.client_keeps), SHARE: self.values}

    @property
    def server_keeps(self) -> Mapping[str, int]:
        return self._with_lookup(self.index.server_keeps)

    def _with_lookup(self, index: Mapping[str, int]) -> dict[str, int]:
        planes, numbers = sum(self.lookup.kept_planes) * self.padded // 64, self.lookup.kept_numbers * self.padded
        return {PLANES: index[PLANES] + planes, NUMBERS: index[NUMBERS] + numbers}

    def turns(self, t: int) -> tuple[MessageSpec, ...]:
        questions, answered = (tuple(self.padded * bits // 8 for bits in parts) for parts in self.lookup.online_bits())
        return *self.index.turns(t), MessageSpec("server", octets=questions), MessageSpec("client", octets=answered)

    def _parted(self, correlation: Correlation, index: Mapping[str, int]) -> tuple[OfflineState, OfflineState]:
        """Split a correlation into the index's, with these words and residues, and the look-up's."""
        first = {name: correlation[name][: index[name]] for name in (PLANES, NUMBERS)}
        second = {name: correlation[name][index[name] :] for name in (PLANES, NUMBERS)}
        return self.index.shaped(first), self.shaped(second)

    def client(self, correlation: Correlation, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        index_kept, table_kept = self._parted(correlation, self.index.client_keeps)
        index = turns_of(self.floor).client_online(self.floor, index_kept, table_kept.numbers[-1])
        table = lookup.client_online(self.lookup, table_kept, self.pad(correlation[SHARE]))
        message = [*next(index), *next(table)]
        for side in (*(index,) * (len(self.floor.online_bits()) // 2), table):
            message = side.send((yield message))
        yield message

    def server(
        self, layer: ClearLinear | None, correlation: Correlation, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        index_kept, table_kept = self._parted(correlation, self.index.server_keeps)
        first, m = self.operation.first, self.floor.m
        before, after = (first << self.floor.f, 0) if self.operation.clips else (0, first)
        share = (self.raised(shares[0]) + np.uint64(-before % t)) % np.uint64(t)
        side: PartyCoroutine[Residues] = turns_of(self.floor).server_online(self.floor, index_kept, share)
        output = yield from side
        index = (output - np.uint64(after % m)) & np.uint64(m - 1)
        output = yield from lookup.server_online(self.lookup, table_kept, index)
        return output[: self.values].reshape(self.shape)


@dataclass(frozen=True)
class TableExchange(FloorExchange):
    """The exchange of an exact table, from one share of any shape to one of the same shape."""

    operation: ExactTable

    @property
    def lookup(self) -> Lookup:
        """The look-up of the index."""
        return _lookup(self.t, self.operation)

    @property
    def online(self) -> TableOnline:
        return TableOnline(self.floor, self.shape, self.operation, self.lookup, rows=self.rows)

    @property
    def index(self) -> FloorExchange:
        """The truncation or the clip."""
        return FloorExchange(self.operation, self.shape, self.t, self.source, rows=self.rows)

    @property
    def plan(self) -> RoundPlan:
        lookup, values, octets = self.lookup, self.online.padded, [turn.octets for turn in self.index.plan.turns]
        first, second, third = (values * bits // 8 for bits in lookup.ahead_bits())
        slots, index = (lookup.down[-1].stop, lookup.up), self.index.plan
        down, up = (message_bytes(self.source, count, values) for count in slots)
        offers = values * lookup.entry_bits * lookup.width // 8
        more = [(up,), (down,), (first - offers, offers), (second,), (third,), ()]
        sizes = [(*first, *second) for first, second in zip_longest(octets, more, fillvalue=())]
        helped, server_helped = (
            index_count + count * values for index_count, count in zip(index.transfers, slots, strict=True)
        )
        turns = alternating("client", sizes)
        return RoundPlan(self.operation.title, "transfers", turns, transfers=(helped, server_helped))

    def _planes_joined(self, pieces: Sequence[Residues]) -> Residues:
        """Join the planes: the vectors value by value, all other planes side by side."""
        vectors, masks = self.lookup.kept_planes
        index = len(pieces[0]) - vectors - masks
        parts = [split(piece, [index, vectors, masks]) for piece in pieces]
        first, places, last = zip(*parts, strict=True)
        flat = np.concatenate([place.reshape(-1) for place in places]).reshape(vectors, -1)
        return np.concatenate([np.concatenate(first, axis=1), flat, np.concatenate(last, axis=1)])

    def client(
        self, shares: ClientShares, engine: ClientEngine, transfers: OtSession | None
    ) -> PartyCoroutine[Residues]:
        index = turns_of(self.floor).client_ahead(self.floor, self.online.pad(shares[0]), given(transfers))
        table = lookup.client_ahead(self.lookup, self.online.padded, given(transfers))
        received = yield [*next(index), *next(table)]
        received = yield [*index.send(received[:2]), *table.send(received[2:])]
        index_kept = end(index, [])
        received = yield table.send(received)
        return flat(index_kept, end(table, received))

    def server(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: OtSession | None,
    ) -> PartyCoroutine[Residues]:
        index = turns_of(self.floor).server_ahead(self.floor, self.online.padded, given(transfers))
        table = lookup.server_ahead(self.lookup, self.online.padded, given(transfers))
        received = yield [*next(index), *next(table)]
        received = yield [*index.send(received[:2]), *table.send(received[2:])]
        received = yield [*index.send(received[:2]), *table.send(received[2:])]
        index_kept = end(index)
        yield table.send(received)
        return flat(index_kept, end(table))


@lru_cache(maxsize=64)
def _lookup(t: int, operation: ExactTable) -> Lookup:
    """Return a shape, which all pieces of a node share."""
    return Lookup(t, operation.table)
