"""Exchanges of client and server for one operation on shared values: the interface of all kinds.

From their shares of the inputs, each party gets its share of the result, in one or more trips from the client to the
server and back. Each kind is one class in the files beside this one, and one line of the table in
:mod:`protocol.schedule`. Nothing but public data is in an exchange, so both parties make the same ones.

Offline, a client's shares follow from random numbers of its own. The exchange runs on them and on *offline shares* in
place of the server's shares, which are zero or uniform. Each party keeps what it needs with the image, for the *online
phase*, which has no encryption at all:

* *linear*: the server's offline share is zero. The client has its share of the result, the server a mask. With the
  image the server applies the layer to its own share in clear, and adds the mask. Nobody sends anything.
* *crossed* (squares, products): the server's offline shares are uniform. With the image the server sends how far its
  shares are from them, the client answers with what that adds to the cross terms, under a mask of its own.

Source: docs/mathematics.md, "Prepared inference".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from privcirnet.he.bfv.interface import ClientEngine, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.mpc.local.packing import pack, packed_size, unpack
from privcirnet.he.mpc.local.parallel import subtract
from privcirnet.he.program.operation import Weights
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine, Sender
from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Integers, Residues

if TYPE_CHECKING:
    from privcirnet.he.mpc.ot.session import OtSession


Correlation = Mapping[str, Residues]
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

    def keep_client(self, share: Residues, result: Residues, t: int) -> Correlation:
        """Return the client's correlation.

        Args:
            share: share of the node's result, (values,): uniform if the client chooses it, else the exchange's.
            result: result of the exchange.
        """
        ...

    def keep_server(self, offline_shares: Sequence[Residues | None], result: Residues, t: int) -> Correlation:
        """Return the server's correlation.

        Args:
            result: the server's result of the exchange.
        """
        ...

    def client(self, correlation: Correlation, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        """Take the client's turns, which return nothing: its share of the result is kept.

        Raises:
            RuleError: a message is not that many residues.
        """
        ...

    def server(
        self, layer: ClearLinear | None, correlation: Correlation, shares: Sequence[Residues], t: int
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

    def keep_client(self, share: Residues, result: Residues, t: int) -> Correlation:
        return {SHARE: share, "terms": subtract(result.reshape(-1), share, t)}

    def keep_server(self, offline_shares: Sequence[Residues | None], result: Residues, t: int) -> Correlation:
        nonzero = [share for share in offline_shares if share is not None]
        zero = np.zeros(self.values, dtype=np.uint64)
        terms = subtract(result.reshape(-1), self.finished_by(nonzero, zero, zero, t).reshape(-1), t)
        return {"offline_shares": flat(nonzero), "terms": terms}

    def client(self, correlation: Correlation, shares: Sequence[Residues], t: int) -> PartyCoroutine[None]:
        (packed,), cuts = (yield []), np.cumsum([share.size for share in shares])[:-1]
        pairs = zip(np.split(unpack(packed, (self._given,), t), cuts), shares, strict=True)
        differences = [part.reshape(share.shape) for part, share in pairs]
        yield [pack(self.answered_by(shares, differences, correlation["terms"], t), t)]

    def server(
        self, layer: ClearLinear | None, correlation: Correlation, shares: Sequence[Residues], t: int
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


ClientShares = Sequence[Residues]
"""The client's share of each input of a node, residues mod t."""
ServerShares = Sequence[Residues | None]
"""The server's share of each input; None for zero, which its share of the image is."""
AT_ONCE_BYTES = 1 << 27
"""Bytes that either party works on at a time while it prepares: larger exchanges go in pieces, one by one."""


@dataclass(frozen=True)
class RoundPlan:
    """The public facts of an exchange before it happens.

    Attributes:
        turns: messages, the client's first (:mod:`protocol.rounds.message_specs`).
        block_size: b of the weights; 1 without structure.
        transfers: oblivious transfers, which both parties make in the same order: those in which the client
            helps, and those in which the server does.
    """

    kind: str
    encoding: str
    turns: tuple[MessageSpec, ...] = ()
    block_size: int = 1
    rotations: int = 0
    pmults: int = 0
    transfers: tuple[int, int] = (0, 0)

    @property
    def ciphertexts_up(self) -> int:
        """The number of ciphertexts that the client sends."""
        return self._ciphertexts("client")

    @property
    def ciphertexts_down(self) -> int:
        """The number of ciphertexts that the server sends."""
        return self._ciphertexts("server")

    def _ciphertexts(self, sender: Sender) -> int:
        return sum(turn.ciphertexts for turn in self.turns if turn.sender == sender)


@dataclass(frozen=True)
class PreparedNode:
    """The server's secret inputs to a node.

    Attributes:
        weights: weights encoded for the server's engine; None for an operation without weights.
        bias: int64, (K,) or of the result's shape (K, H', W'); None for zero.
    """

    weights: EncodedWeights | None = None
    bias: Integers | None = None


class Exchange(Protocol):
    """The exchange of one node's operation."""

    @property
    def plan(self) -> RoundPlan:
        """The turns and counts."""
        ...

    @property
    def online(self) -> OnlinePhase:
        """The rest of the work with the image where the exchange was done ahead."""
        ...

    def noise_bits(self, parameters: Parameters) -> int:
        """Return log2 of a bound on the noise of the results, from public data only."""
        ...

    def working_bytes(self, parameters: Parameters) -> int:
        """Return the most bytes that either party has in memory during its turns, the results included.

        This counts ciphertexts, whose polynomials are there as messages and as residues. A server has its results only
        while it computes a reply, and one at a time.
        """
        ciphertext = 2 * 8 * parameters.ring_degree * len(parameters.coefficient_bits)
        return 2 * ciphertext * (self.plan.ciphertexts_up + self.plan.ciphertexts_down)

    def pieces(self, count: int) -> "Sequence[Exchange]":
        """Return the exchanges that do this one's work in sequence, for some images at once; here itself.

        :meth:`joined` gives a party's correlation from all of them.
        """
        return [self]

    def joined(self, pieces: Sequence[Correlation]) -> Correlation:
        """Return a party's correlation from those of the pieces."""
        (whole,) = pieces
        return whole

    def prepare(
        self,
        weights: Weights | None,
        spectrum: Residues | None,
        engine: ServerEngine,
        name: str,
    ) -> PreparedNode:
        """Return the node's prepared weights and bias, made once for all exchanges; no weights unless overridden.

        Args:
            weights: the node's weights; None where it has none.
            spectrum: spectrum of the weights, if it was exported; None to compute it.

        Raises:
            RuleError: the weights are zero where the engine needs one that is not.
        """
        return PreparedNode(bias=weights.bias if weights else None)

    def client(
        self, shares: ClientShares, engine: ClientEngine, transfers: "OtSession | None"
    ) -> PartyCoroutine[Residues]:
        """Take the client's turns; it begins.

        Returns:
            the client's share of the result, residues of the node's shape; ahead, whatever its :attr:`online` keeps.

        Raises:
            RuleError: a message is not what the server's side makes.
        """
        ...

    def server(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[Residues]:
        """Take the server's turns.

        Returns:
            the server's share of the result; ahead, whatever its :attr:`online` keeps.

        Raises:
            RuleError: a message is not what the client's side makes.
        """
        ...


class OneTrip(Exchange, ABC):
    """An exchange of one request and one reply."""

    @abstractmethod
    def request(self, shares: ClientShares, engine: ClientEngine) -> list[bytes]:
        """Return the parts of the client's request."""

    @abstractmethod
    def reply(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        messages: list[bytes],
        engine: ServerEngine,
        keys: EvaluationKeys,
    ) -> tuple[list[bytes], Residues]:
        """Return the parts of the server's reply, and its share of the result.

        Raises:
            RuleError: the messages are not what :meth:`request` makes.
        """

    @abstractmethod
    def finish(self, shares: ClientShares, messages: list[bytes], engine: ClientEngine) -> Residues:
        """Return the client's share of the result: residues of the node's shape.

        Raises:
            RuleError: the messages are not what :meth:`reply` makes.
        """

    def client(
        self, shares: ClientShares, engine: ClientEngine, transfers: "OtSession | None"
    ) -> PartyCoroutine[Residues]:
        messages = yield self.request(shares, engine)
        return self.finish(shares, messages, engine)

    def server(
        self,
        prepared: PreparedNode,
        shares: ServerShares,
        engine: ServerEngine,
        keys: EvaluationKeys,
        transfers: "OtSession | None",
    ) -> PartyCoroutine[Residues]:
        replies, share = self.reply(prepared, shares, (yield []), engine, keys)
        yield replies
        return share
