"""The online phase of an exchange whose encrypted part was done offline: no encryption at all.

Offline, a client's shares follow from random numbers of its own. The exchange of :mod:`protocol.rounds.exchange` runs
on them and on *offline shares* in place of the server's shares, which are zero or uniform. Each party keeps what it
needs with the image:

* *linear*: the server's offline share is zero. The client has its share of the result, the server a mask. With the
  image the server applies the layer to its own share in clear, and adds the mask. Nobody sends anything.
* *crossed* (squares, products): the server's offline shares are uniform. With the image the server sends how far its
  shares are from them, the client answers with what that adds to the cross terms, under a mask of its own.

Source: docs/mathematics.md, "Prepared inference".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.packing import pack, packed_size, unpack
from privcirnet.he.mpc.local.parallel import subtract
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine
from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Residues

Kept = Mapping[str, Residues]
"""A party's correlation for a node: flat residues by name."""
SHARE = "share"
"""Name of the client's share of a node's result."""
PLANES = "planes"
"""Name of the array that holds bits of many values in words, and no residues."""


class OnlinePhase(Protocol):
    """One node's part of an inference with prepared work. All arrays that are kept or sent are flat."""

    @property
    def client_keeps(self) -> Mapping[str, int]:
        """The number of values that the client keeps, by name; :data:`SHARE` is among them."""
        ...

    @property
    def server_keeps(self) -> Mapping[str, int]:
        """The number of values that the server keeps, by name."""
        ...

    @property
    def chosen(self) -> bool:
        """True if the client chooses its share of the result, and does not get it from the exchange."""
        ...

    def turns(self, t: int) -> tuple[MessageSpec, ...]:
        """Return the turns, one part each; the server begins, and the client ends."""
        ...

    def offline_shares(self, t: int) -> list[Residues | None]:
        """Return the server's shares of the inputs in the offline phase, drawn anew; None for zero."""
        ...

    def keep_client(self, share: Residues, result: Residues, t: int) -> Kept:
        """Return the client's correlation.

        Args:
            share: share of the node's result, (values,): uniform if the client chooses it, else the exchange's.
            result: result of the exchange.
        """
        ...

    def keep_server(self, offline_shares: Sequence[Residues | None], result: Residues, t: int) -> Kept:
        """Return the server's correlation.

        Args:
            result: the server's result of the exchange.
        """
        ...

    def client(self, correlation: Kept, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        """Take the client's turns, which return nothing: its share of the result is kept.

        Raises:
            RuleError: a message is not that many residues.
        """
        ...

    def server(
        self, layer: ClearLinear | None, correlation: Kept, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        """Take the server's turns; it begins.

        Returns:
            the server's share of the result: residues of the node's shape.

        Raises:
            RuleError: a message is not that many residues.
        """
        ...


def question(question_count: int, answered: int, t: int) -> tuple[MessageSpec, MessageSpec]:
    """Return the turns of ``question_count`` packed residues from the server, and ``answered`` from the client."""
    return MessageSpec("server", octets=(packed_size(question_count, t),)), MessageSpec(
        "client", octets=(packed_size(answered, t),)
    )


@dataclass(frozen=True)
class CrossedOnline:
    """The online phase of a quadratic function f of shares: f(c + s) = f(c + a) + cross(c + a, s - a) + f(s - a).

    a are the offline shares. Offline, f(c + a) is shared as v_c + v_s. The client chooses w, its share of the result,
    and keeps v_c - w; the server keeps a and v_s - f(a). With the image, d = s - a and e = cross(c, d) + v_c - w make

        f(s) + e + v_s - f(a) = f(c + s) - w.

    Attributes:
        inputs: shapes of the inputs.
        answered_by: function (the client's shares c, differences d, terms, t) -> cross(c, d) + terms.
        finished_by: function (the server's shares s, answer e, terms, t) -> f(s) + e + terms.
    """

    inputs: tuple[tuple[int, ...], ...]
    values: int
    answered_by: Callable[[Sequence[Residues], Sequence[Residues], Residues, int], Residues]
    finished_by: Callable[[Sequence[Residues], Residues, Residues, int], Residues]

    @property
    def client_keeps(self) -> Mapping[str, int]:
        return {SHARE: self.values, "terms": self.values}

    @property
    def server_keeps(self) -> Mapping[str, int]:
        return {"offline_shares": self._given, "terms": self.values}

    @property
    def chosen(self) -> bool:
        return True

    def turns(self, t: int) -> tuple[MessageSpec, ...]:
        return question(self._given, self.values, t)

    def offline_shares(self, t: int) -> list[Residues | None]:
        return [sampling.uniform(shape, t) for shape in self.inputs]

    def keep_client(self, share: Residues, result: Residues, t: int) -> Kept:
        return {SHARE: share, "terms": subtract(result.reshape(-1), share, t)}

    def keep_server(self, offline_shares: Sequence[Residues | None], result: Residues, t: int) -> Kept:
        nonzero = [share for share in offline_shares if share is not None]
        zero = np.zeros(self.values, dtype=np.uint64)
        terms = subtract(result.reshape(-1), self.finished_by(nonzero, zero, zero, t).reshape(-1), t)
        return {"offline_shares": flat(nonzero), "terms": terms}

    def client(self, correlation: Kept, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        (packed,), cuts = (yield []), np.cumsum([share.size for share in shares])[:-1]
        pairs = zip(np.split(unpack(packed, (self._given,), t), cuts), shares, strict=True)
        differences = [part.reshape(share.shape) for part, share in pairs]
        yield [pack(self.answered_by(shares, differences, correlation["terms"], t), t)]

    def server(
        self, layer: ClearLinear | None, correlation: Kept, shares: Sequence[Residues], t: int
    ) -> PartyCoroutine[Residues]:
        (answer,) = yield [pack(subtract(flat(shares), correlation["offline_shares"], t), t)]
        return self.finished_by(shares, unpack(answer, (self.values,), t), correlation["terms"], t)

    @property
    def _given(self) -> int:
        return sum(map(prod, self.inputs))


def flat(shares: Sequence[Residues]) -> Residues:
    """Return the values of several shares, one after the other.

    Args:
        shares: residues of any shape, at least one array.
    """
    return np.concatenate([share.reshape(-1) for share in shares])
