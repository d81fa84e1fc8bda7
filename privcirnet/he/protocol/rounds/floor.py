"""The messages of an exact truncation, ReLU or clip: two trips ahead of the image, two with it, and no ciphertext.

It cannot be done with an image's own shares: the tables are made of the client's share, which it knows ahead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import prod

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.mpc import floor as parties
from privcirnet.he.mpc.floor import ExactFloor
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.messages import OfflineState as FloorKept
from privcirnet.he.mpc.ot.session import OtSession, given, message_bytes
from privcirnet.he.mpc.ot.softspoken import ROW_BYTES
from privcirnet.he.program.exact import ExactStep
from privcirnet.he.protocol.rounds.exchange import (
    AT_ONCE_BYTES,
    ClientShares,
    Exchange,
    PreparedNode,
    RoundPlan,
    ServerShares,
)
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine, alternating
from privcirnet.he.protocol.rounds.online_phase import PLANES, SHARE, Kept
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

    floor: ExactFloor
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
        sizes = self._keeps(parties.client_planes(self.floor), parties.client_numbers(self.floor))
        return {SHARE: self.values, **sizes}

    @property
    def server_keeps(self) -> Mapping[str, int]:
        return self._keeps(parties.server_planes(self.floor), parties.server_numbers(self.floor))

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

    def keep_client(self, share: Residues, result: Residues, t: int) -> Kept:
        return {SHARE: share, **self._kept(result, self.client_keeps[PLANES])}

    def keep_server(self, offline_shares: Sequence[Residues | None], result: Residues, t: int) -> Kept:
        return self._kept(result, self.server_keeps[PLANES])

    def _kept(self, flat: Residues, planes: int) -> dict[str, Residues]:
        return {PLANES: flat.reshape(-1)[:planes], NUMBERS: flat.reshape(-1)[planes:]}

    def shaped(self, correlation: Kept) -> FloorKept:
        """Return a correlation in rows."""
        return FloorKept(
            correlation[PLANES].reshape(-1, self.padded // 64), correlation[NUMBERS].reshape(-1, self.padded)
        )

    def client(self, correlation: Kept, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        return parties.client_online(self.floor, self.shaped(correlation), self.pad(correlation[SHARE]))

    def server(
        self, layer: ClearLinear | None, correlation: Kept, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        values = yield from parties.server_online(self.floor, self.shaped(correlation), self.raised(shares[0]))
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
        m: modulus of the results' shares; 0: t.
        source: source of oblivious transfers, one of :data:`mpc.ot.session.OT_PROTOCOLS`.
        rows: range of a piece within the padded values; None: all of them.
    """

    operation: ExactStep
    shape: tuple[int, ...]
    t: int
    m: int = 0
    source: str = "softspoken"
    rows: range | None = field(default=None, kw_only=True)

    @property
    def floor(self) -> ExactFloor:
        """The function that is computed."""
        step = self.operation
        return _floor(self.t, step.bits, self.m or self.t, 0 if step.rectifies else step.bound, step.top)

    @property
    def online(self) -> FloorOnline:
        return FloorOnline(self.floor, self.shape, rows=self.rows)

    @cached_property
    def plan(self) -> RoundPlan:
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

    def joined(self, pieces: Sequence[Kept]) -> Kept:
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
        return flat((yield from parties.client_offline(self.floor, share, given(transfers))))

    def server(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: OtSession | None,
    ) -> PartyCoroutine[Residues]:
        return flat((yield from parties.server_ahead(self.floor, self.online.padded, given(transfers))))


@lru_cache(maxsize=256)
def _floor(t: int, f: int, m: int, bound: int, clip: int) -> ExactFloor:
    """Return a shape, which all pieces of a node share."""
    return ExactFloor(t, f, m, bound, clip)


def flat(*correlations: FloorKept) -> Residues:
    """Return a party's correlations in one row: all planes, then all numbers."""
    return np.concatenate(
        [rows.reshape(-1) for rows in (*(k.planes for k in correlations), *(k.numbers for k in correlations))]
    )


def _in_rows(pieces: Sequence[Residues], columns: int) -> list[Residues]:
    """Return flat pieces of an array in its rows of ``columns`` columns."""
    rows = sum(map(len, pieces)) // columns
    return [piece.reshape(rows, -1) for piece in pieces]
