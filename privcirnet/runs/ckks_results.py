"""What inference on bootstrapped CKKS found and took: the contents of infer's summary.json."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.ckks.costs import part_of, predicted, row_of
from privcirnet.he.planning.ckks.program import Rehearsed
from privcirnet.he.schemes.ckks.embedding import Reals
from privcirnet.runs.infer import percent, predictions
from privcirnet.runs.laps import typical
from privcirnet.runs.links import over_links

_MOST_BITS = 64.0


@dataclass(frozen=True)
class CkksEvaluation:
    """Results of client and server in one process.

    Attributes:
        logits: decrypted, (N, classes).
        clear: of the network in clear, double precision, (N, classes).
        beyond: indices of images with a value beyond the bounds that examples told; their answers may be wrong.
        seconds: of each image, client and server.
        processor: processor seconds of each image.
        layers: the server's seconds for an image, by layer.
        sent: bytes of a request and of its reply.
        seconds_setup: until the first request: simulating, making keys, encoding weights.
        peak: most memory of the process, bytes.
    """

    rehearsed: Rehearsed
    logits: Reals
    clear: Reals
    beyond: Sequence[int]
    seconds: Sequence[float]
    seconds_server: float
    processor: Sequence[float]
    layers: Mapping[str, float]
    sent: tuple[int, int]
    seconds_setup: float
    bytes_keys: int
    peak: int

    @property
    def classes(self) -> Values:
        """Predicted class of each image, (N,)."""
        return self.logits.argmax(axis=1)

    @property
    def bits(self) -> list[float]:
        """For each image: its logits are right to 2^-bits of the largest one."""
        with np.errstate(invalid="ignore"):  # of images beyond the bounds
            errors = np.abs(self.logits - self.clear).max(axis=1) / np.abs(self.clear).max(axis=1)
        found = -np.log2(np.maximum(errors, 2.0**-_MOST_BITS))
        return np.clip(np.nan_to_num(found, nan=-_MOST_BITS), -_MOST_BITS, _MOST_BITS).tolist()

    def summary(self, clear: Values, labels: Values) -> dict[str, Any]:
        """The keys of infer's summary.json.

        Args:
            clear: class predicted by the trained network, (N,).
            labels: (N,).

        Returns:
            plain data for JSON.
        """
        counting, parameters = self.rehearsed.counting, self.rehearsed.circuit.refresh.parameters
        columns = {"label": labels, "float": clear, "clear": self.clear.argmax(axis=1), "encrypted": self.classes}
        operations = {name: count for name, count in counting.total.items() if name != "raised"}
        rows = layer_rows(self.rehearsed, self.layers)
        with np.errstate(invalid="ignore"):
            difference = float(np.abs(self.logits - self.clear).max())
        return {
            "images": len(labels),
            "top1_float": percent(clear == labels),
            "top1_clear": percent(columns["clear"] == labels),
            "top1_encrypted": percent(self.classes == labels),
            "logits_bits": min(self.bits),
            "logits_bits_images": self.bits,
            "argmax_equal": int((columns["clear"] == self.classes).sum()),
            "beyond": list(self.beyond),
            "logit_max_difference": difference,
            "logit_range": float(np.abs(self.clear).max()),
            **self.costs(),
            "bootstrappings": self.rehearsed.bootstrappings,
            "levels": parameters.levels,
            "precision_bits": self.rehearsed.reply.precision_bits,
            "rotations": operations["rotate"],
            "operations": operations,
            "rotation_keys": len(counting.keys),
            "layers": rows,
            "predictions": predictions(columns, {"logits": self.logits, "logits_clear": self.clear}),
        }

    def costs(self) -> dict[str, Any]:
        """The keys of infer's summary.json about time, traffic and memory."""
        (up, down), seconds = self.sent, typical(self.seconds)
        return {
            "seconds_per_image": seconds,
            "seconds_images": list(self.seconds),
            "seconds_client": seconds - self.seconds_server,
            "seconds_server": self.seconds_server,
            "processor_seconds_images": list(self.processor),
            "processor_seconds_predicted": sum(predicted(self.rehearsed.circuit, self.rehearsed.counting).values()),
            "throttle": "",
            "links": over_links(seconds, up + down, 1),
            "revealed": 0,
            "refused": [],
            "rounds": 1,
            "bytes_up": up,
            "bytes_down": down,
            "bytes_per_image": up + down,
            "bytes_keys": self.bytes_keys,
            "bytes_keys_server": self.rehearsed.key_bytes if self.bytes_keys else 0,
            "bytes_weights": self.rehearsed.circuit.weight_bytes,
            "peak_bytes": self.peak,
            "memory": None,
            "seconds": sum(self.seconds),
            "seconds_setup": self.seconds_setup,
            **{"prepared": 0, "online": None, "preparation": None, "dropped": []},
        }


def layer_rows(rehearsed: Rehearsed, seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return what each layer takes of one image, as summaries have it; a bootstrapping is one row.

    Levels and precision are those behind a layer; of a sum that is refreshed, those of its square.

    Args:
        seconds: measured, by layer.
    """
    counting, expected = rehearsed.counting, predicted(rehearsed.circuit, rehearsed.counting)
    network = rehearsed.circuit.network
    kinds = dict.fromkeys([t.layer.name for node in network.nodes for t in node.terms if t.layer], "convolution")
    kinds |= dict.fromkeys([node.name for node in network.nodes], "square") | {network.head: "linear"}
    rows: dict[str, dict[str, Any]] = {}
    counts: dict[str, Counter[str]] = {}
    for trace in counting.course[
        :-1
    ]:  # the last is the reply; what is refreshed comes again behind its bootstrapping, which is its place
        layer = trace.layer
        name = row_of(layer)
        kind = "bootstrapping" if part_of(layer) else kinds.get(layer, "image")
        rows.pop(name, None)
        rows[name] = {"name": name, "kind": kind, "encoding": "slots", "block_size": None}
        rows[name] |= {"level": trace.level, "precision_bits": trace.precision_bits}
    for layer, own in counting.counts.items():
        counts[row_of(layer)] = counts.get(row_of(layer), Counter()) + own
    for name, row in rows.items():
        own = counts.get(name, Counter())
        row |= {"rotations": own["rotate"], "pmults": own["pmult"], "squares": own["multiply"]}
        row |= {
            "seconds": sum(each for layer, each in seconds.items() if row_of(layer) == name),
            "seconds_predicted": expected.get(name),
        }
    return list(rows.values())
