"""Networks in rounds of two parties, with shares between layers: their audit, and the cost of layers."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privcirnet.artifact.summaries import LayerRow, Online
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.cost import operation_cost
from privcirnet.he.planning.profile import LINKS, Profile
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client, check_image
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import Traffic
from privcirnet.he.protocol.rounds.exchange import RoundPlan
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring.modular import Residues
from privcirnet.runs import audit
from privcirnet.runs.answers import Answer, name_of
from privcirnet.runs.evaluation import Audit, Evaluation, followed
from privcirnet.runs.parties import Parties, RunOptions, open_parties
from privcirnet.runs.preparation import prepared_for, summary
from privcirnet.runs.progress import Bar
from privcirnet.runs.server_process import ServerTask
from privcirnet.runs.timings import typical

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

    def open(self, how: RunOptions, bar: Bar) -> AbstractContextManager[Parties]:
        return open_parties(self.task(how), how, bar)

    def task(self, how: RunOptions) -> ServerTask:
        return how.task(self.program, Server, Client, self.spectra)

    def clear(self, image: np.ndarray) -> np.ndarray:
        return self.program.answered(interpret(self.program, image)[self.program.output.name]).reshape(-1)

    def wrong(self, client: Client, request: np.ndarray, answers: Sequence[Answer], seen: Any) -> list[list[str]]:
        """Return the nodes whose value does not follow from their inputs'; ``seen``: the server's shares."""
        program, (answer,) = self.program, answers
        values = audit.reconstruct(program, client.shares, seen)
        source, output = program.nodes[0].name, program.output.name
        ends = (source, values[source], request), (output, program.answered(values[output]), answer.logits)
        foreign = [name for name, computed, value in ends if not np.array_equal(computed.reshape(value.shape), value)]
        return [audit.wrong_nodes(program, values) + foreign]

    def facts(self, of: Evaluation) -> dict[str, Any]:
        """Return the prepared work, and the exactness of the results."""
        before, ahead = summary(of.preparations), of.parties.ahead
        prepared = sum(answer.prepared for answer in of.answers)
        facts = {"prepared": prepared, **followed(of, self._unit)}
        online = [answer.online for answer in of.answers if answer.online]
        seconds, (last, _) = typical([seconds for _, seconds in online]), online[-1]
        size = sum(round.up + round.down for round in last)
        facts["online"] = Online(seconds, size, len(last), of.links(seconds, size, len(last)))
        facts["preparation"] = replace(before, links={}) if before and of.parties.how.throttle else before
        facts["counted"] = self.profile is not None and self.profile.counted
        stopped = [ahead.stopped] if ahead and ahead.stopped else []
        return {**facts, "dropped": [*of.parties.client.dropped, *stopped]}

    @property
    def _unit(self) -> str | None:
        return UNIT if any(isinstance(node.operation, Truncate) for node in self.program.nodes) else None

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
    for stage in schedule_of(program).online:
        if position in stage.positions:
            part, first = stage.part(position), stage.positions[0]
            traffic = [t for t in online if t.position == first]
            return [Traffic(position, int(t.up * part), int(t.down * part), t.seconds * part) for t in traffic], before
    return [t for t in online if t.position == position], before
