"""Networks that take one request and one answer in BFV: how they are audited, what layers take."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privcirnet.artifact.summaries import LayerRow
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.leveled.bfv.exact_network import check_image
from privcirnet.he.protocol.leveled.bfv.leveled_program import Description, LeveledProgram
from privcirnet.he.protocol.leveled.bfv.rehearsal import Rehearsal
from privcirnet.he.protocol.leveled.session import LeveledClient, LeveledServer
from privcirnet.runs.answers import Answer
from privcirnet.runs.evaluation import Evaluation, followed
from privcirnet.runs.parties import How, Parties, opened
from privcirnet.runs.progress import Bar
from privcirnet.runs.server_process import ServerTask


@dataclass(frozen=True)
class Leveled:
    """A leveled program.

    Attributes:
        description: what is public of it.
        program: None where the client is alone.
    """

    description: Description
    program: LeveledProgram | None = None

    @property
    def step(self) -> float:
        return 2.0**self.description.log_step

    @property
    def whole(self) -> LeveledProgram:
        """The program, with its weights."""
        assert self.program is not None
        return self.program

    @cached_property
    def _rehearsal(self) -> Rehearsal:
        return Rehearsal(self.whole)

    def check(self, images: Sequence[Values] | Values) -> None:
        plan = self.description.plan
        for image in images:
            check_image(self.description.shifted(image), plan.image, plan.low, plan.high)

    def open(self, how: How, bar: Bar) -> AbstractContextManager[Parties]:
        return opened(self.task(how), how, bar)

    def task(self, how: How) -> ServerTask:
        return how.task(self.whole, LeveledServer, LeveledClient)

    def clear(self, image: np.ndarray) -> np.ndarray:
        return self.whole.exact.evaluate(image)

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

    def facts(self, of: Evaluation) -> dict[str, Any]:
        """Return the mode, and operations for each plain modulus."""
        found = {"mode": "leveled", **followed(of)}
        return found | ({"operations": dict(self.program.plan.circuit.counts)} if self.program else {})

    def layers(self, of: Evaluation) -> list[LayerRow]:
        """Return what each layer takes of one request; a client alone does not know."""
        if self.program is None:
            return []
        circuit, rows = self.program.plan.circuit, list[LayerRow]()
        blocks = {layer.name: layer.block_size for layer in self.program.exact.layers}
        for name in self.program.ends:
            counts, kind = circuit.counts_of(name), "linear" if name in blocks else "square"
            done = {"rotations": counts["rotate"], "pmults": counts["pmult"], "squares": counts["square"]}
            rows.append(LayerRow(name, kind, self.program.planner, blocks.get(name), **done))
        return rows
