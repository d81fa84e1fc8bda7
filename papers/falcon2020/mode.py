"""Networks that take one request and one answer in leveled BFV: how they are audited, what layers take."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from papers.falcon2020.planning.exact_network import check_image
from papers.falcon2020.protocol.leveled_program import LeveledProgram
from papers.falcon2020.protocol.rehearsal import Rehearsal
from papers.falcon2020.protocol.session import LeveledClient, LeveledServer
from privcirnet.artifact.summaries import IntegerAudit, LayerRow
from privcirnet.he.layers.integer import Values
from privcirnet.runs.answers import Answer
from privcirnet.runs.evaluation import Evaluation, integer_audit
from privcirnet.runs.parties import Parties, RunOptions, ServerTask, open_parties
from privcirnet.runs.progress import ProgressBar


@dataclass(frozen=True)
class Leveled:
    """A leveled program, as :class:`runs.evaluation.Mode`."""

    program: LeveledProgram

    @property
    def step(self) -> float:
        return 2.0**self.program.log_step

    @cached_property
    def _rehearsal(self) -> Rehearsal:
        return Rehearsal(self.program)

    def check(self, images: Sequence[Values] | Values) -> None:
        plan = self.program.plan.public
        for image in images:
            check_image(self.program.description.shifted(image), plan.image, plan.low, plan.high)

    def open(self, how: RunOptions, bar: ProgressBar) -> AbstractContextManager[Parties]:
        return open_parties(self.task(how), how, bar)

    def task(self, how: RunOptions) -> ServerTask:
        return how.task(self.program, LeveledServer, LeveledClient)

    def clear(self, image: np.ndarray) -> np.ndarray:
        return self.program.exact.evaluate(image)

    def wrong(
        self, client: LeveledClient, request: np.ndarray, answers: Sequence[Answer], seen: Any
    ) -> list[list[str]]:
        """Return the layers and squares with a slot that is not what it is in clear, and "results" if those are not.

        Args:
            seen: values under the client's keys.
        """
        nodes, images = self._rehearsal.wrong(request, client.opened(seen)), request if request.ndim > 3 else [request]
        same = [list(self.clear(image)) == list(answer.logits) for image, answer in zip(images, answers, strict=True)]
        return [nodes if each else [*nodes, "results"] for each in same]

    def audit(self, of: Evaluation, compared: Mapping[str, Any]) -> IntegerAudit:
        return integer_audit(of, compared)

    def layers(self, of: Evaluation) -> list[LayerRow]:
        """Return what each layer takes of one request."""
        circuit, rows = self.program.plan.circuit, list[LayerRow]()
        blocks = {layer.name: layer.block_size for layer in self.program.exact.layers}
        for name in self.program.ends:
            counts, kind = circuit.counts_of(name), "linear" if name in blocks else "square"
            done = {"rotations": counts["rotate"], "pmults": counts["pmult"], "squares": counts["square"]}
            rows.append(LayerRow(name, kind, self.program.planner, blocks.get(name), **done))
        return rows
