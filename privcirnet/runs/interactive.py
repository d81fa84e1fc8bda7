"""Networks in rounds of two parties, with shares between layers: audit, cost of layers, parties kept for many calls.

The audit adds both parties' shares and checks every step against the interpreter. Only a harness that runs both parties
can do this. Every operation's result must equal the interpreter's exactly, on the values that went in. Only a
truncation may differ by one unit: it must be the floor or the ceiling of the exact quotient.
"""

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np

from privcirnet.artifact.summaries import IntegerAudit, LayerRow
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.cost import operation_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import Profile
from privcirnet.he.program.interpreter import apply, interpret
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client, check_image
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import Traffic, prepare
from privcirnet.he.protocol.rounds.exchange import RoundPlan
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.runs.answers import Answer, name_of
from privcirnet.runs.evaluation import Audit, Evaluation, integer_audit, prepared_for, run
from privcirnet.runs.parties import Parties, RunOptions, ServerTask, open_parties
from privcirnet.runs.progress import ProgressBar, silent


def reconstruct(
    program: Program, client: Mapping[str, Residues], server: Mapping[str, Residues | None]
) -> dict[str, Values]:
    """Return the integer values of every node by name.

    Args:
        client: the client's shares by node.
        server: the server's shares by node; None for zero.
    """
    t = program.parameters.plain_modulus
    values: dict[str, Values] = {}
    for node in program.nodes:
        server_share = server[node.name]
        whole = client[node.name] if server_share is None else modular.add(client[node.name], server_share, t)
        values[node.name] = modular.centered(whole, t)
    return values


def wrong_nodes(program: Program, values: Mapping[str, Values]) -> list[str]:
    """Return the names of the nodes whose value does not follow from their inputs' values.

    Returns:
        names in the program's order; none if the inference was right.
    """
    return [node.name for node in program.nodes if node.inputs and not _follows(program, node, values)]


def _follows(program: Program, node: Node, values: Mapping[str, Values]) -> bool:
    arguments = [values[source] for source in node.inputs]
    if isinstance(node.operation, Truncate):
        floor = arguments[0] >> node.operation.bits
        ceiling = -(-arguments[0] >> node.operation.bits)
        return bool(((values[node.name] == floor) | (values[node.name] == ceiling)).all())
    return bool((apply(node.operation, arguments, program.weights.get(node.name)) == values[node.name]).all())


UNIT = "1 unit in the last place of each truncation"


@dataclass(frozen=True)
class Interactive:
    """An interactive program.

    Attributes:
        program: program, without weights where the client is alone.
        spectra: weight spectra by node, if they were read.
        profile: operation times for predicted seconds; None for no prediction.
    """

    program: Program
    spectra: Mapping[str, Residues] = field(default_factory=dict[str, Residues], repr=False)
    profile: Profile | None = field(default=None, repr=False)

    @property
    def step(self) -> float:
        return 2.0**self.program.output.log_step

    def check(self, images: Sequence[Values] | Values) -> None:
        for image in images:
            check_image(self.program.nodes[0], image)

    def open(self, how: RunOptions, bar: ProgressBar) -> AbstractContextManager[Parties]:
        return open_parties(self.task(how), how, bar)

    def task(self, how: RunOptions) -> ServerTask:
        return how.task(self.program, Server, Client, self.spectra)

    def clear(self, image: np.ndarray) -> np.ndarray:
        return self.program.answered(interpret(self.program, image)[self.program.output.name]).reshape(-1)

    def wrong(self, client: Client, request: np.ndarray, answers: Sequence[Answer], seen: Any) -> list[list[str]]:
        """Return the nodes whose value does not follow from their inputs'; ``seen``: the server's shares."""
        program, (answer,) = self.program, answers
        values = reconstruct(program, client.shares, seen)
        source, output = program.nodes[0].name, program.output.name
        ends = (source, values[source], request), (output, program.answered(values[output]), answer.logits)
        foreign = [name for name, computed, value in ends if not np.array_equal(computed.reshape(value.shape), value)]
        return [wrong_nodes(program, values) + foreign]

    def audit(self, of: Evaluation, compared: Mapping[str, Any]) -> IntegerAudit:
        counted = self.profile is not None and self.profile.counted
        random = any(isinstance(node.operation, Truncate) for node in self.program.nodes)
        return integer_audit(of, {**compared, "counted": counted}, UNIT if random else None)

    def layers(self, of: Evaluation) -> list[LayerRow]:
        """Return the cost of each layer with a round, its preparation included."""
        exchanges = schedule_of(self.program).exchanges
        return [
            self._layer(of, position, node, exchanges[node.name].plan)
            for position, node in enumerate(self.program.nodes)
            if node.name in exchanges
        ]

    def _layer(self, of: Evaluation, position: int, node: Node, plan: RoundPlan) -> LayerRow:
        now, ahead = _rounds(of, self.program, position)
        row = LayerRow(
            name=name_of(node),
            kind=plan.kind,
            encoding=plan.encoding,
            block_size=plan.block_size,
            rotations_planned=plan.rotations,
            pmults_planned=plan.pmults,
            rounds=len(now),
            ciphertexts_up=plan.ciphertexts_up,
            ciphertexts_down=plan.ciphertexts_down,
            bytes_up=sum(t.up for t in now + ahead),
            bytes_down=sum(t.down for t in now + ahead),
        )
        seconds = of.laps.of(node.name)
        if of.audit is None:
            return replace(row, seconds_client=seconds, seconds_waiting=sum(t.seconds for t in now + ahead))
        counts, images = self._counted(of, of.audit, node)
        return replace(
            row,
            rotations=-(-counts["rotate"] // images),
            pmults=-(-counts["pmult"] // images),
            seconds=seconds + of.audit.laps.of(node.name),
            seconds_predicted=self._predicted(node),
        )

    def _counted(self, of: Evaluation, audited: Audit, node: Node) -> tuple[Mapping[str, int], int]:
        """Return the server's operations for a node, and their number of images."""
        _, before = audited.meters
        return before.counts[node.name], prepared_for(of.preparations)

    def _predicted(self, node: Node) -> float | None:
        if self.profile is None:
            return None
        there = replace(self.profile, plain_bits=self.program.parameters.plain_bits)
        return operation_cost(node.operation, node.shape, there, LINKS["local"]).total


def _rounds(of: Evaluation, program: Program, position: int) -> tuple[list[Traffic], list[Traffic]]:
    """Return the rounds of a node: with the last image, and an image's part of them in the last preparation."""
    before, last = list[Traffic](), of.answers[-1].online
    assert last is not None
    online, _ = last
    for done in of.preparations[-1:]:
        for bundle in schedule_of(program).offline(done.count):
            if position in bundle.positions:
                up, down = (part / done.count for part in bundle.part(position))
                both = (up + down) / 2
                traffic = [t for t in done.traffic if t.position == bundle.position]
                before += [Traffic(position, int(t.up * up), int(t.down * down), t.seconds * both) for t in traffic]
    trips = [trip for trip in schedule_of(program).online if trip.shared]
    asking = zip(online[len(online) - len(trips) :], trips, strict=True)
    shared = [(t, trip.part(position)) for t, trip in asking if position in trip.shared]
    if shared:
        return [Traffic(position, int(t.up * part), int(t.down * part), t.seconds * part) for t, part in shared], before
    return [t for t in online if t.position == position], before


@dataclass
class Sent:
    """The messages of all calls so far.

    Attributes:
        images: number of images answered.
        bytes: bytes both ways, with keys and preparation.
        rounds: number of rounds, with those of preparation.
    """

    images: int = 0
    bytes: int = 0
    rounds: int = 0

    def add(self, traffic: Sequence[Traffic], images: int = 0) -> None:
        """Count rounds, and the images that they answered."""
        self.images += images
        self.bytes += sum(exchange.up + exchange.down for exchange in traffic)
        self.rounds += len(traffic)


class SharedParties:
    """Both parties of a program, started by the first call and shared by later ones, one call at a time.

    A call that fails ends them, and the next call begins others: nothing that was drawn is used twice. So does a call
    with other settings, and the first call in a copy of the process (fork). They also end with this object.

    Attributes:
        sent: messages of all calls of this process.
    """

    def __init__(self, mode: Interactive) -> None:
        self._mode, self.sent, self._lock = mode, Sent(), Lock()
        self._parties: Parties | None = None
        self._finish: weakref.finalize[..., SharedParties] | None = None
        _EVERY.add(self)

    @property
    def prepared(self) -> int:
        """The number of prepared inferences."""
        parties = self._parties
        return parties.client.prepared if parties else 0

    def evaluate(self, images: Values, how: RunOptions, check: bool) -> Evaluation:
        """Run both parties on images.

        Args:
            images: integer images, (N, C, H, W).
            check: whether every value of both parties is compared with the integer network's.

        Raises:
            RuleError: an image does not fit the program, or the program is refused.
        """
        self._mode.check(images)
        with self._begun(how) as parties:
            parties.server.watched = check
            evaluation = run(self._mode, parties if check else replace(parties, report=None), images)
            for answer in evaluation.answers:
                self.sent.add(answer.traffic, 1)
            return evaluation

    def prepare(self, count: int, how: RunOptions, bar: ProgressBar) -> None:
        """Do all encrypted work for some images to come.

        Raises:
            RuleError: the program cannot be prepared.
        """
        with self._begun(how, bar) as parties, bar("Preparing inferences", count) as advance:
            batch_size, traffic = parties.client.together, list[Traffic]()
            groups = [min(batch_size, count - first) for first in range(0, count, batch_size)]
            rounds = sum(schedule_of(self._mode.program).rounds_ahead(some) for some in groups)

            def step(exchange: Traffic) -> None:
                traffic.append(exchange)
                advance(to=count * min(1.0, len(traffic) / rounds))

            prepare(parties.client, parties.server, count, step)
            advance(to=count)
            self.sent.add(traffic)

    def close(self) -> None:
        """End both parties after the call under way: secrets are zeroed, and memory is free. A call begins others."""
        with self._lock:
            self._end()

    @contextmanager
    def _begun(self, how: RunOptions, bar: ProgressBar = silent) -> Iterator[Parties]:
        """Lock both parties for a ``with`` block; any error in it ends them."""
        with self._lock:
            try:
                if self._parties is None or self._parties.how != how:
                    self._end()
                    stack = ExitStack()
                    self._finish = weakref.finalize(self, stack.close)
                    parties = stack.enter_context(self._mode.open(how, bar))
                    self.sent.bytes += parties.bytes_keys
                    self._parties = parties
                yield self._parties
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        self._parties = None
        if self._finish is not None:
            self._finish()

    def forget(self) -> None:
        """Begin anew in a copy of the process. Another thread of the parent may have been in the middle of an image.

        So nothing is waited for: the copy's secret key is zeroed, and everything else is left.
        """
        parties, self._parties = self._parties, None
        self.sent, self._lock = Sent(), Lock()
        if self._finish is not None:
            self._finish.detach()
        if parties is not None:
            parties.client.close()


_EVERY = weakref.WeakSet[SharedParties]()


def _forget_every() -> None:
    for parties in _EVERY:
        parties.forget()


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_forget_every)
