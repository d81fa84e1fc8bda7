"""What an exchange leaves to do when the image is there, if its encrypted part was done offline: no encryption at all.

Offline, a client's shares follow from random numbers of its own. The exchange of :mod:`protocol.rounds.exchange` runs
on them and on *offline shares* in place of the server's shares, which are zero or uniform. Each party keeps what it
needs with the image:

* *linear*: the server's offline share is zero. The client has its share of the result, the server a mask. With the
  image the server applies the layer to its own share in clear, and adds the mask. Nobody sends anything.
* *crossed* (squares, products): the server's offline shares are uniform. With the image the server sends how far its
  shares are from them, the client answers with what that adds to the cross terms, under a mask of its own.
* *revealed* (client-aided functions): nothing is done offline but to draw a mask. The server hands out its share, the
  client computes in clear and hands back the result under its mask.

Source: docs/mathematics.md, "Prepared inference".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from privcirnet.he.mpc.local.elementwise import subtract
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.packing import Octets, pack, unpack
from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Residues

Kept = Mapping[str, Residues]
"""What a party keeps of a node, flat residues by name."""
SHARE = "share"
"""Name of the client's share of a node's result."""


class Online(Protocol):
    """One node's part of an inference with prepared work. All arrays that are kept or sent are flat."""

    @property
    def client(self) -> Mapping[str, int]:
        """How many values the client keeps, by name; :data:`SHARE` is among them."""
        ...

    @property
    def server(self) -> Mapping[str, int]:
        """How many values the server keeps, by name."""
        ...

    @property
    def asked(self) -> int:
        """How many values the server sends; 0: the node takes no round."""
        ...

    @property
    def answered(self) -> int:
        """How many values the client answers."""
        ...

    @property
    def chosen(self) -> bool:
        """Whether the client's share of the result is its own choice, and not what the exchange returns."""
        ...

    def offline_shares(self, t: int) -> list[Residues | None]:
        """Return the server's shares of the inputs in the offline phase, drawn anew; None for zero."""
        ...

    def keep_client(self, share: Residues, result: Residues | None, t: int) -> Kept:
        """Return what the client keeps.

        Args:
            share: of the node's result, (values,): uniform if it is its own choice, else what the exchange returned.
            result: of the exchange; None if there was none.
        """
        ...

    def keep_server(self, offline_shares: Sequence[Residues | None], own: Residues | None, t: int) -> Kept:
        """Return what the server keeps.

        Args:
            own: its share of the exchange's result; None if there was no exchange.
        """
        ...

    def ask(self, kept: Kept, shares: Sequence[Residues], t: int) -> Octets:
        """Return what the server sends, packed."""
        ...

    def answer(self, kept: Kept, shares: Sequence[Residues], asked: Octets, t: int) -> Octets:
        """Return what the client answers, packed.

        Args:
            asked: of :meth:`ask`, from the server.

        Raises:
            RuleError: what was asked is not that many residues.
        """
        ...

    def close(
        self, layer: ClearLinear | None, kept: Kept, shares: Sequence[Residues], answer: Octets | None, t: int
    ) -> Residues:
        """Return the server's share of the result: residues of the node's shape.

        Args:
            answer: of :meth:`answer`, from the client; None of a node that takes no round.

        Raises:
            RuleError: the answer is not that many residues.
        """
        ...


@dataclass(frozen=True)
class CrossedOnline:
    """That of a quadratic function f of shares: f(c + s) = f(c + a) + cross(c + a, s - a) + f(s - a).

    a are the offline shares. Offline, f(c + a) is shared as v_c + v_s. The client chooses w, its share of the result,
    and keeps v_c - w; the server keeps a and v_s - f(a). With the image, d = s - a and e = cross(c, d) + v_c - w make

        f(s) + e + v_s - f(a) = f(c + s) - w.

    Attributes:
        inputs: shapes of the inputs.
        answered_by: (the client's shares c, differences d, terms, t) -> cross(c, d) + terms.
        finished_by: (the server's shares s, answer e, terms, t) -> f(s) + e + terms.
    """

    inputs: tuple[tuple[int, ...], ...]
    values: int
    answered_by: Callable[[Sequence[Residues], Sequence[Residues], Residues, int], Residues]
    finished_by: Callable[[Sequence[Residues], Residues, Residues, int], Residues]

    @property
    def client(self) -> Mapping[str, int]:
        return {SHARE: self.values, "terms": self.values}

    @property
    def server(self) -> Mapping[str, int]:
        return {"offline_shares": self.asked, "terms": self.values}

    @property
    def asked(self) -> int:
        return sum(map(prod, self.inputs))

    @property
    def answered(self) -> int:
        return self.values

    @property
    def chosen(self) -> bool:
        return True

    def offline_shares(self, t: int) -> list[Residues | None]:
        return [sampling.uniform(shape, t) for shape in self.inputs]

    def keep_client(self, share: Residues, result: Residues | None, t: int) -> Kept:
        assert result is not None
        return {SHARE: share, "terms": subtract(result.reshape(-1), share, t)}

    def keep_server(self, offline_shares: Sequence[Residues | None], own: Residues | None, t: int) -> Kept:
        known = [share for share in offline_shares if share is not None]
        assert own is not None
        zero = np.zeros(self.values, dtype=np.uint64)
        terms = subtract(own.reshape(-1), self.finished_by(known, zero, zero, t).reshape(-1), t)
        return {"offline_shares": flat(known), "terms": terms}

    def ask(self, kept: Kept, shares: Sequence[Residues], t: int) -> Octets:
        return pack(subtract(flat(shares), kept["offline_shares"], t), t)

    def answer(self, kept: Kept, shares: Sequence[Residues], asked: Octets, t: int) -> Octets:
        cuts = np.cumsum([share.size for share in shares])[:-1]
        pairs = zip(np.split(unpack(asked, (self.asked,), t), cuts), shares, strict=True)
        differences = [part.reshape(share.shape) for part, share in pairs]
        return pack(self.answered_by(shares, differences, kept["terms"], t), t)

    def close(
        self, layer: ClearLinear | None, kept: Kept, shares: Sequence[Residues], answer: Octets | None, t: int
    ) -> Residues:
        assert answer is not None
        return self.finished_by(shares, unpack(answer, (self.answered,), t), kept["terms"], t)


def flat(shares: Sequence[Residues]) -> Residues:
    """Return the values of several shares, one after the other.

    Args:
        shares: residues of any shape, at least one array.
    """
    return np.concatenate([share.reshape(-1) for share in shares])
