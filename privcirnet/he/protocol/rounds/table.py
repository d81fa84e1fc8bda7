"""The messages of an exact table: those of a truncation to its index, or of a clip to it, and of the look-up.

Ahead of the image both go side by side, in three trips; with it the look-up follows the index, three trips in all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.mpc import floor, lookup
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.lookup import Lookup
from privcirnet.he.mpc.messages import OfflineState as PartyKept
from privcirnet.he.mpc.messages import split
from privcirnet.he.mpc.ot.session import OtSession, given, message_bytes
from privcirnet.he.program.table import ExactTable
from privcirnet.he.protocol.rounds.exchange import ClientShares, PreparedNode, RoundPlan, ServerShares
from privcirnet.he.protocol.rounds.floor import NUMBERS, FloorExchange, FloorOnline, flat
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine, alternating, end
from privcirnet.he.protocol.rounds.online_phase import PLANES, SHARE, Kept
from privcirnet.he.ring.modular import Residues


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

    def _parted(self, correlation: Kept, index: Mapping[str, int]) -> tuple[PartyKept, PartyKept]:
        """Split a correlation into the index's, with these words and residues, and the look-up's."""
        first = {name: correlation[name][: index[name]] for name in (PLANES, NUMBERS)}
        second = {name: correlation[name][index[name] :] for name in (PLANES, NUMBERS)}
        return self.index.shaped(first), self.shaped(second)

    def client(self, correlation: Kept, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        index_kept, table_kept = self._parted(correlation, self.index.client_keeps)
        index = floor.client_online(self.floor, index_kept, table_kept.numbers[-1])
        table = lookup.client_online(self.lookup, table_kept, self.pad(correlation[SHARE]))
        message = [*next(index), *next(table)]
        for side in (index, index, table):
            message = side.send((yield message))
        yield message

    def server(
        self, layer: ClearLinear | None, correlation: Kept, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        index_kept, table_kept = self._parted(correlation, self.index.server_keeps)
        first, m = self.operation.first, self.floor.m
        before, after = (first << self.floor.f, 0) if self.operation.clips else (0, first)
        share = (self.raised(shares[0]) + np.uint64(-before % t)) % np.uint64(t)
        output = yield from floor.server_online(self.floor, index_kept, share)
        index = (output - np.uint64(after % m)) & np.uint64(m - 1)
        output = yield from lookup.server_online(self.lookup, table_kept, index)
        return output[: self.values].reshape(self.shape)


@dataclass(frozen=True)
class TableExchange(FloorExchange):
    """The exchange of an exact table, from one share of any shape to one of the same shape; m: 2^index bits."""

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
        return FloorExchange(self.operation, self.shape, self.t, self.m, self.source, rows=self.rows)

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
        index = floor.client_offline(self.floor, self.online.pad(shares[0]), given(transfers))
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
        index = floor.server_ahead(self.floor, self.online.padded, given(transfers))
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
