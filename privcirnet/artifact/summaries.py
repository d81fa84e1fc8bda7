"""The contents of each script's ``summary.json`` that others read, and records as JSON and back.

What is present together is a record of its own: a mode's, a phase's, an audit's. A field without a default is required;
nothing is written of a field that is None. Keys that no field names are ignored. A value that does not fit its field is
named by its key. JSON has no name for infinity or NaN: both read as null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def plain(value: Any) -> Any:
    """Return a record as data for JSON; attributes that are None are left out."""
    if is_dataclass(value):
        attributes = {f.name: getattr(value, f.name) for f in fields(value)}
        return {name: plain(entry) for name, entry in attributes.items() if entry is not None}
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def read_record(kind: type[Record], path: Path) -> Record:
    """Return the record that a JSON file holds.

    Raises:
        ValueError: the file is not JSON, or a value does not fit its field; the message names the key.
        OSError: the file cannot be read.
    """
    return fit(kind, json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None), "")


def fit(hint: Any, value: Any, key: str) -> Any:
    """Return a JSON value as an annotated type; of a union of records the one that has the value's ``mode``.

    Args:
        value: value from JSON.

    Raises:
        ValueError: the value does not fit.

    >>> fit(dict[int, float], {"1": 2}, "latency")
    {1: 2.0}
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{key!r} must be {arguments[0]!r}, not {value!r}")
        return value
    if origin is UnionType:
        mode = value.get("mode") if isinstance(value, dict) else None
        kind = next((kind for kind in arguments if getattr(kind, "mode", None) == mode), arguments[0])
        return None if value is None else fit(kind, value, key)
    if is_dataclass(hint):
        return _fit_record(hint, _instance(dict, value, key), key)
    if origin is dict:
        items = _instance(dict, value, key).items()
        return {_fit_key(arguments[0], k, key): fit(arguments[1], v, f"{key}.{k}") for k, v in items}
    if origin is list:
        return [fit(arguments[0], v, f"{key}[{i}]") for i, v in enumerate(_instance(list, value, key))]
    return float(_instance((int, float), value, key)) if hint is float else _instance(hint, value, key)


def _fit_key(hint: type, value: str, key: str) -> Any:
    """Return a key of a JSON object, which is always a string, as ``hint`` (int or str)."""
    if hint is int and not value.isdecimal():
        raise ValueError(f"the keys of {key!r} must be whole numbers, not {value!r}")
    return hint(value)


def _fit_record(kind: Any, value: dict[str, Any], key: str) -> Any:
    hints = get_type_hints(kind)
    record_fields = {f.name: f for f in fields(kind)}
    missing = [n for n, f in record_fields.items() if n not in value and MISSING is f.default is f.default_factory]
    if missing:
        raise ValueError(f"{f'{key}.{missing[0]}'.lstrip('.')!r} is missing")
    return kind(
        **{name: fit(hints[name], value[name], f"{key}.{name}".lstrip(".")) for name in record_fields if name in value}
    )


def _instance(kind: Any, value: Any, key: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"{key or 'the whole file'!r} must be {names}, not {type(value).__name__}")
    return value


Real = float
"""Type float for the annotations of a record that has a field of that name."""


@dataclass(frozen=True)
class Training:
    """One training stage.

    Attributes:
        top1: accuracy in percent, on the held-out test images.
        parameters: number of stored parameters.
        activation: kind of activations by the network's arguments; "own" if they stay, None if there is none.
    """

    top1: float
    model: str
    data: str
    epochs: int
    seconds: float
    parameters: int
    activation: str | None = None


@dataclass(frozen=True)
class Uniform:
    """One block size everywhere."""

    latency_predicted_s: float


@dataclass(frozen=True)
class Priced:
    """The amount of an option that the budget limits, in seconds."""

    latency: float


@dataclass(frozen=True)
class Activation:
    """An activation of a search: its options, and the one that it becomes."""

    becomes: str
    options: dict[str, Priced]


@dataclass(frozen=True)
class Search:
    """The block-size search; the maps go from module name to block size to loss increase or latency.

    Attributes:
        counted: whether latencies are in the papers' units instead of seconds.
    """

    block_sizes: dict[str, int]
    counted: bool
    budget_s: float
    latency_predicted_s: float
    uniform: dict[int, Uniform]
    sensitivity: dict[str, dict[int, float | None]]
    latency: dict[str, dict[int, float]]
    activations: dict[str, Activation]
    status: str
    seconds: float


@dataclass(frozen=True)
class Truncation:
    """The chance that random truncation fails, and that nobody notices (log2, per image)."""

    failure_per_image_log2: float
    unnoticed_per_image_log2: float


@dataclass(frozen=True)
class Choice:
    """The reason for the choice of encryption parameters in one line, and a table of all that were judged."""

    reason: str
    table: list[str]


@dataclass(frozen=True)
class BoundsCheck:
    """A check of measured bounds on images.

    Attributes:
        beyond: number of images with a value that the plain modulus or an exact step does not carry, so that their
            result is wrong.
        spare_bits: whole bits of that limit over the largest value of the others.
        nearest: node whose values come nearest to their limit.
    """

    images: int
    beyond: int
    spare_bits: int
    nearest: str = ""


@dataclass(frozen=True)
class TruncationTrial:
    """The effect of random truncations on images in clear.

    Attributes:
        images: number of images.
        changed: number of images whose class random truncations change.
        refused: number of the others whose logits are then beyond the program's bound, so that a client refuses them.
        differ: number of images whose class is then not the quantized network's.
        difference: largest difference of logits from the quantized network's, as a share of the largest logit, in the
            median image; None where no logits are finite.
    """

    images: int
    changed: int = 0
    refused: int = 0
    differ: int = 0
    difference: float | None = None

    @property
    def spoiled(self) -> bool:
        """Return whether the class of more than one image in a hundred changed, or one was refused."""
        return self.changed > self.images / 100 or self.refused > 0

    def __str__(self) -> str:
        """Return the distance of encrypted logits from the quantized network's, in a clause."""
        off = "far" if self.difference is None else f"{self.difference:.1%}"
        return f"encrypted logits {off} off the quantized network's, {self.differ} of {self.images} classes differ"


@dataclass(frozen=True, kw_only=True)
class InteractiveExport:
    """A program of two parties.

    Attributes:
        linear: number of nodes with weights.
        bounds: "proved" or "measured".
        bounds_bits: bits of the values of each node.
        output_bits: bits of right results.
        truncation: chances of random truncation; None for exact truncation.
        flooding_distance_bits: negative log2 of the distance to which an image's noise is hidden.
        stacks: number of images that a layer prepares together, by node.
        bytes_stacks: bytes of their weights in the server's memory.
    """

    mode: Literal["interactive"] = "interactive"
    nodes: int
    linear: int
    ring_degree: int
    log_q: int
    security_bits: int
    plain_modulus: int
    plain_modulus_bits: int
    max_value_bits: int
    bounds: str
    bounds_bits: dict[str, int]
    bounds_exceeded: BoundsCheck | None = None
    guard_bits: int
    rehearsal: TruncationTrial | None = None
    answer: str
    output_bits: int
    choice: Choice
    truncation: Truncation | None = None
    flooding_bits: int
    flooding_distance_bits: float
    bytes_plaintexts: int
    bytes_plaintexts_dense: int
    stacks: dict[str, int]
    bytes_stacks: int
    seconds: float = 0.0


@dataclass(frozen=True)
class CircuitSummary:
    """The circuit of a CKKS program, for one image.

    Attributes:
        levels: levels of the chain of primes.
        precision_bits: precision of the reply, by the simulator.
        bytes_keys_server: bytes of the keys in the server's memory.
        bytes_weights: bytes of encoded weights.
        processor_seconds_predicted: seconds of "layers" and of "bootstrapping".
    """

    levels: int
    bootstrappings: int
    precision_bits: float
    operations: dict[str, int]
    rotation_keys: int
    bytes_keys_server: int
    bytes_weights: int
    processor_seconds_predicted: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CkksExport:
    """A program of one request and one answer, made of a network before the qat stage.

    Attributes:
        level_image: level of a request.
        failure_bits: negative log2 of the probability that a bootstrapping fails.
    """

    mode: Literal["ckks"] = "ckks"
    ring_degree: int
    log_q: int
    security_bits: int
    scale_bits: int
    level_image: int
    failure_bits: int
    depth_squares: int
    circuit: CircuitSummary
    seconds: float = 0.0


ExportSummary = InteractiveExport | CkksExport


@dataclass(frozen=True)
class LayerRow:
    """The costs of one encrypted layer for one image.

    Attributes:
        seconds: seconds of both parties, or of a CKKS server.
        seconds_client: seconds of a client alone.
        seconds_waiting: seconds that a client alone waits for its server, for the last image.
        level: level behind the layer.
        precision_bits: precision behind the layer, by the simulator.
    """

    name: str
    kind: str | None = None
    encoding: str | None = None
    block_size: int | None = None
    rotations: int | None = None
    pmults: int | None = None
    squares: int | None = None
    rotations_planned: int | None = None
    pmults_planned: int | None = None
    rounds: int | None = None
    ciphertexts_up: int | None = None
    ciphertexts_down: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    seconds_predicted: float | None = None
    seconds: float | None = None
    seconds_client: float | None = None
    seconds_waiting: float | None = None
    level: int | None = None
    precision_bits: float | None = None


@dataclass(frozen=True)
class Prediction:
    """The classes that one test image got in float, of the same network in clear, and encrypted; logits."""

    label: int
    encrypted: int
    clear: int | None = None
    float: int | None = None
    index: int | None = None
    logits: list[Real | None] | None = None
    logits_clear: list[Real | None] | None = None

    @property
    def refused(self) -> bool:
        """Return whether the client refused the result."""
        return self.encrypted < 0


@dataclass(frozen=True)
class LinkPrediction:
    """Predicted seconds of one image over a network: measured work, bytes, round trips, and their sum."""

    compute: float
    transfer: float
    round_trips: float
    seconds: float


@dataclass(frozen=True)
class ImageCost:
    """The costs of one image, or of a phase of it.

    Attributes:
        bytes_up: bytes from the client to the server.
        bytes_down: bytes back.
        links: predictions by link; none where messages were held up as on a link.
    """

    seconds: float
    bytes_up: int
    bytes_down: int
    rounds: float
    links: dict[str, LinkPrediction]

    @property
    def bytes(self) -> int:
        """Return the bytes both ways."""
        return self.bytes_up + self.bytes_down


@dataclass(frozen=True)
class Phases:
    """The phases of images of an interactive program.

    Attributes:
        prepared: number of images whose encrypted work was done before they came.
        dropped: reason why prepared work was not used, or not made.
        online: costs of an image once its encrypted work is done.
        offline: costs of that work, before an image comes or when it came; None if it is of an earlier run.
    """

    prepared: int
    dropped: list[str]
    online: ImageCost
    offline: ImageCost | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of results with those of the same network in clear, where both parties are here.

    Attributes:
        argmax_equal: number of images with the same class.
        seconds_server: seconds of the server's work, for an image.
        counted: whether layers' predictions are in the papers' units instead of seconds.
    """

    processes: int
    top1_clear: float
    argmax_equal: int
    logit_max_difference: float
    logit_range: float
    seconds_server: float
    counted: bool = False


@dataclass(frozen=True, kw_only=True)
class IntegerAudit(Comparison):
    """An audit in which every value follows an integer network's.

    Attributes:
        logits_equal: number of images whose values all do.
        unit: unit up to which they do; None: bit for bit.
        wrong_nodes: names of the nodes that do not.
    """

    mode: Literal["integer"] = "integer"
    logits_equal: int
    unit: str | None = None
    wrong_nodes: list[str]

    @property
    def in_words(self) -> str:
        """Return the exactness with which results follow the integer network's."""
        return f"to within {self.unit}" if self.unit else "exactly, bit for bit"


@dataclass(frozen=True, kw_only=True)
class CkksAudit(Comparison):
    """An audit of a CKKS program, whose results are near real ones.

    Attributes:
        logits_bits: negative log2 of the logits' error, as a share of the largest one, in the worst image.
        logits_bits_images: negative log2 of each image.
        beyond: indices of images with a value beyond the bounds from examples.
        processor_seconds_images: processor seconds of each image; None for two processes.
    """

    mode: Literal["ckks"] = "ckks"
    logits_bits: float
    logits_bits_images: list[float]
    beyond: list[int]
    circuit: CircuitSummary
    processor_seconds_images: list[float] | None = None


AuditSummary = IntegerAudit | CkksAudit


@dataclass(frozen=True, kw_only=True)
class InferenceSummary:
    """A run of encrypted inference, in any mode; ``top1`` values are percents on its images.

    Attributes:
        server: address of the server of a client alone.
        cost: costs of a typical image from its arrival on, with work prepared for it then.
        seconds_warm_up: seconds of an image before the first one, for which kernels are compiled or loaded.
        seconds_client: seconds of the client's work, for an image.
        throttle: link that messages were held up by.
        bytes_keys: bytes of the keys as they travel, once.
        memory: most bytes of the process of "client", of "server", or of "both".
        phases: None for a CKKS program.
        audit: None for a client alone.
        refused: indices of images whose result is not to be used.
        classes: names by label.
    """

    engine: str
    server: str | None = None
    images: int
    top1_float: float | None = None
    top1_encrypted: float
    cost: ImageCost
    seconds_images: list[float]
    seconds_setup: float
    seconds_warm_up: float | None = None
    seconds_client: float
    throttle: str | None = None
    bytes_keys: int
    memory: dict[str, int]
    phases: Phases | None = None
    audit: AuditSummary | None = None
    refused: list[int]
    layers: list[LayerRow]
    classes: list[str] = field(default_factory=list)
    predictions: list[Prediction]

    def class_name(self, label: int | None) -> str:
        """Return the name of a class, its number where names are not known, a dash where there is none."""
        if label is None:
            return "-"
        return self.classes[label] if label < len(self.classes) else str(label)

    @property
    def seconds(self) -> float:
        """Return the seconds of all images."""
        return sum(self.seconds_images)

    @property
    def rehearsal(self) -> bool:
        """Return whether nothing was encrypted."""
        return self.engine == "cleartext"

    @property
    def done(self) -> str:
        """Word for the treatment of the images."""
        return "rehearsed" if self.rehearsal else "encrypted"


@dataclass(frozen=True, kw_only=True)
class AuditedInference(InferenceSummary):
    """A run of encrypted inference with an audit."""

    audit: AuditSummary = field()
