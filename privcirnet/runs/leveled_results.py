"""What leveled inference of many images found and took: the contents of infer's summary.json."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.protocol.noninteractive.program import LeveledProgram
from privcirnet.he.protocol.noninteractive.session import LeveledClient
from privcirnet.runs.answers import Answer
from privcirnet.runs.infer import percent, predictions
from privcirnet.runs.laps import Laps, typical
from privcirnet.runs.links import over_links

UNIT = "nothing: no value is rounded"


@dataclass(frozen=True)
class LeveledInference:
    """What a client knows afterwards.

    Attributes:
        answers: the result of each image.
        seconds_setup: until the first request: making and loading keys, encoding weights where that was done too.
        bytes_keys: of all keys, sent once.
        laps: the client's seconds for each image.
        throttle: the link that messages were held up by; "" for none.
    """

    client: LeveledClient
    answers: Sequence[Answer]
    seconds_setup: float
    bytes_keys: int
    laps: Laps
    throttle: str = ""

    @property
    def logits(self) -> np.ndarray:
        """Python integers in units of the results' step, (N, classes)."""
        return np.stack([answer.logits for answer in self.answers])

    @property
    def real(self) -> np.ndarray:
        """Real logits, (N, classes)."""
        return self.logits.astype(np.float64) * 2.0**self.client.description.log_step

    @property
    def refused(self) -> list[int]:
        """Indices of the images whose result the client refused."""
        return [index for index, answer in enumerate(self.answers) if answer.refused]

    @property
    def classes(self) -> Values:
        """Predicted class of each image, (N,); -1 where the result was refused."""
        found = np.array([list(row).index(max(row)) for row in self.logits])
        found[self.refused] = -1
        return found

    def costs(self) -> dict[str, Any]:
        """The keys of infer's summary.json about time and traffic."""
        up, down = self.answers[-1].bytes
        seconds = [answer.seconds for answer in self.answers]
        return {
            "seconds_per_image": typical(seconds),
            "seconds_images": seconds,
            "seconds_client": self.laps.total,
            "throttle": self.throttle,
            "links": {} if self.throttle else over_links(typical(seconds), up + down, 1),
            "revealed": 0,
            "refused": self.refused,
            "rounds": 1,
            "bytes_up": up,
            "bytes_down": down,
            "bytes_per_image": up + down,
            "bytes_keys": self.bytes_keys,
            "seconds": sum(seconds),
            "seconds_setup": self.seconds_setup,
            **{"prepared": 0, "online": None, "preparation": None, "dropped": []},
        }

    def summary(self, clear: Values | None, labels: Values) -> dict[str, Any]:
        """The keys of infer's summary.json that a client alone can fill in.

        Args:
            clear: class predicted by the float network, (N,); None if there is none.
            labels: (N,).

        Returns:
            plain data for JSON.
        """
        columns = {"label": labels, "float": clear, "encrypted": self.classes}
        return {
            "images": len(labels),
            "top1_float": None if clear is None else percent(clear == labels),
            "top1_encrypted": percent(self.classes == labels),
            **self.costs(),
            "rotations": None,
            "layers": [],
            "predictions": predictions(columns, {"logits": self.real}),
        }


@dataclass(frozen=True)
class LeveledEvaluation:
    """Results of both parties.

    Attributes:
        integer: results of the integer network, Python integers, (N, classes).
        wrong: for each image the layers and squares with a slot that is not what it is in clear; empty if all are.
        peak: most memory of the client's process and of the server's, bytes; None where they are one.
    """

    program: LeveledProgram
    integer: np.ndarray
    wrong: list[list[str]]
    inference: LeveledInference
    seconds_server: float
    peak: tuple[int, int] | None = None

    def summary(self, clear: Values, labels: Values) -> dict[str, Any]:
        """The keys of infer's summary.json, as :meth:`runs.evaluation.Evaluation.summary` has them.

        Args:
            clear: class predicted by the float network, (N,).
            labels: (N,).

        Returns:
            plain data for JSON.
        """
        inference, step = self.inference, 2.0**self.program.log_step
        integer = np.array([list(row).index(max(row)) for row in self.integer])
        each = zip(self.wrong, self.integer, inference.logits, strict=True)
        equal = [not nodes and list(exact) == list(found) for nodes, exact, found in each]
        columns = {"label": labels, "float": clear, "integer": integer, "encrypted": inference.classes}
        logits = {"logits": inference.real, "logits_integer": self.integer.astype(np.float64) * step}
        return {
            "images": len(labels),
            "top1_float": percent(clear == labels),
            "top1_integer": percent(integer == labels),
            "top1_encrypted": percent(inference.classes == labels),
            "logits_equal": sum(equal),
            "argmax_equal": int((integer == inference.classes).sum()),
            "unit": UNIT,
            "wrong_nodes": sorted({name for nodes in self.wrong for name in nodes}),
            "logit_max_difference": step * float(np.abs(self.integer - inference.logits).max()),
            "logit_range": step * float(np.abs(self.integer).max()),
            **inference.costs(),
            "seconds_server": self.seconds_server,
            "memory": None if self.peak is None else dict(zip(("client", "server"), self.peak, strict=True)),
            "rotations": self.program.plan.circuit.counts["rotate"],
            "operations": dict(self.program.plan.circuit.counts),
            "layers": layer_rows(self.program),
            "predictions": predictions(columns, logits),
        }


def layer_rows(program: LeveledProgram) -> list[dict[str, Any]]:
    """Return what each layer takes of one request, as summaries have it."""
    circuit, rows = program.plan.circuit, list[dict[str, Any]]()
    blocks = {layer.name: layer.block_size for layer in program.chain.layers}
    for name in program.ends:
        counts = circuit.counts_of(name)
        kind = "linear" if name in blocks else "square"
        rows.append(
            {
                **{"name": name, "kind": kind, "encoding": program.planner, "block_size": blocks.get(name)},
                **{"rotations": counts["rotate"], "pmults": counts["pmult"], "squares": counts["square"]},
            }
        )
    return rows
