"""The contents of each script's ``summary.json`` that others read, and records as JSON and back.

A field without a default is required; every other one may be absent: nothing is written of steps that a run does not
have. Keys that no field names are ignored. A value that does not fit its field is named by its key. JSON has no name
for infinity or NaN: both read as null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

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
    """Return a JSON value as an annotated type.

    Args:
        value: value from JSON.

    Raises:
        ValueError: the value does not fit.

    >>> fit(dict[int, float], {"1": 2}, "latency")
    {1: 2.0}
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return None if value is None else fit(arguments[0], value, key)
    if is_dataclass(hint):
        return _fit_record(hint, _instance(dict, value, key), key)
    if origin is dict:
        items = _instance(dict, value, key).items()
        return {_fit_key(arguments[0], k, key): fit(arguments[1], v, f"{key}.{k}") for k, v in items}
    if origin is list:
        return [fit(arguments[0], v, f"{key}[{i}]") for i, v in enumerate(_instance(list, value, key))]
    if hint is float:
        return float(_instance((int, float), value, key))
    return _instance(hint, value, key)


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
    model: str | None = None
    data: str | None = None
    epochs: int | None = None
    seconds: float | None = None
    parameters: int | None = None
    activation: str | None = None


@dataclass(frozen=True)
class Uniform:
    """One block size everywhere."""

    latency_predicted_s: float | None = None
    objective: float | None = None


@dataclass(frozen=True)
class Priced:
    """The amount of an option that the budget limits, in seconds."""

    latency: float | None = None


@dataclass(frozen=True)
class Activation:
    """An activation of a search: its options, and the one that it becomes."""

    becomes: str = "own"
    options: dict[str, Priced] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """The block-size search; the maps go from module name to block size to loss increase or latency.

    Attributes:
        counted: whether latencies are in the papers' units instead of seconds.
    """

    block_sizes: dict[str, int]
    counted: bool = False
    budget_s: float | None = None
    latency_predicted_s: float | None = None
    uniform: dict[int, Uniform] = field(default_factory=dict)
    sensitivity: dict[str, dict[int, float | None]] = field(default_factory=dict)
    latency: dict[str, dict[int, float | None]] = field(default_factory=dict)
    activations: dict[str, Activation] = field(default_factory=dict)
    status: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Truncation:
    """The chance that truncation on shares fails, and that nobody notices (log2, per image)."""

    exact: bool | None = None
    failure_per_image_log2: float | None = None
    unnoticed_per_image_log2: float | None = None


@dataclass(frozen=True)
class Choice:
    """The reason for the choice of encryption parameters in one line, and a table of all that were judged."""

    reason: str | None = None
    table: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BoundsCheck:
    """Images on which measured bounds were checked.

    Attributes:
        beyond: number of images with a value that the plain modulus does not carry, so that their result is wrong.
        spare_bits: bits of the modulus over the largest value of the others.
    """

    images: int
    beyond: int
    spare_bits: int | None = None


@dataclass(frozen=True)
class TruncationTrial:
    """Held-out images in clear with random truncations: the numbers that change their class or would be refused."""

    images: int
    changed: int
    refused: int
    differ: int | None = None
    difference: float | None = None


@dataclass(frozen=True, kw_only=True)
class ExportSummary:
    """A program for encrypted inference, in any mode.

    Attributes:
        mode: "ckks" for one request and one answer; None for others.
        linear: number of nodes with weights.
        max_value_bits: bits of the largest value.
        bounds_bits: bits of the values of each node.
        output_bits: bits of right results.
        flooding_distance_bits: negative log2 of the distance to which an image's noise is hidden.
        stacks: number of images that a layer prepares together, by node.
        bytes_stacks: bytes of their weights in the server's memory.
        operations: operations of one image, by name.
        levels: levels of the chain of primes.
        level_image: level of a request.
        failure_bits: negative log2 of the probability that a bootstrapping fails.
        precision_bits: precision of the reply, by the simulator.
        processor_seconds_predicted: processor seconds of "layers" and of "bootstrapping".
        files: bytes by name.
    """

    mode: str | None = None
    nodes: int | None = None
    linear: int | None = None
    ring_degree: int
    log_q: int
    security_bits: int
    plain_modulus_bits: int | None = None
    plain_modulus: int | None = None
    scale_bits: int | None = None
    max_value_bits: int | None = None
    bounds: str | None = None
    bounds_bits: dict[str, int] | None = None
    bounds_exceeded: BoundsCheck | None = None
    guard_bits: int | None = None
    rehearsal: TruncationTrial | None = None
    answer: str | None = None
    output_bits: int | None = None
    choice: Choice | None = None
    truncation: Truncation | None = None
    flooding_bits: int | None = None
    flooding_distance_bits: float | None = None
    bytes_plaintexts: int | None = None
    bytes_plaintexts_dense: int | None = None
    stacks: dict[str, int] | None = None
    bytes_stacks: int | None = None
    block_sizes: dict[str, int] | None = None
    depth_squares: int | None = None
    operations: dict[str, int] | None = None
    rotation_keys: int | None = None
    levels: int | None = None
    level_image: int | None = None
    bootstrappings: int | None = None
    failure_bits: int | None = None
    precision_bits: float | None = None
    bytes_keys_server: int | None = None
    bytes_weights: int | None = None
    processor_seconds_predicted: dict[str, float] | None = None
    files: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def ckks(self) -> bool:
        """Return whether images take one request and one answer, on bootstrapped CKKS, without a quantized stage."""
        return self.mode == "ckks"


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
class Online:
    """An image whose encrypted work was done before it came."""

    seconds_per_image: float
    bytes_per_image: int
    rounds: int
    links: dict[str, LinkPrediction]


@dataclass(frozen=True)
class PreparationSummary:
    """The work done before an image came."""

    seconds_per_image: float
    bytes_per_image: float
    rounds_per_image: float | None = None
    links: dict[str, LinkPrediction] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class InferenceSummary:
    """A run of encrypted inference, in any mode; ``top1`` values are percents on its images.

    Attributes:
        mode: "ckks" for one request and one answer; None for others.
        top1_clear: accuracy of the same network in clear.
        logits_equal: number of images whose values all follow the integer network's.
        unit: unit up to which they do; None: bit for bit.
        logits_bits: negative log2 of the logits' error, as a share of the largest one, in the worst image; of CKKS.
        beyond: number of images with a value beyond the bounds from examples; of CKKS.
        seconds: seconds of all images without set-up, from an image's arrival on, with work prepared for it then.
        seconds_warm_up: seconds of an image before the first one, for which kernels are compiled or loaded.
        seconds_client: seconds of the client's work, for an image; so the server's.
        throttle: link that messages were held up by.
        links: predictions by link.
        prepared: number of images whose encrypted work was done before they came.
        online: costs of an image once its encrypted work is done; None for a CKKS program.
        preparation: work done first for an image, before it comes or when it came.
        counted: whether layers' predictions are in the papers' units instead of seconds.
        dropped: reason why prepared work was not used, or not made.
        memory: most bytes of the process of "client", of "server", or of "both".
        refused: indices of images whose result is not to be used.
        classes: names by label.
        operations: operations of one image, by name.
        bytes_keys: bytes of the keys as they travel, once.
        bytes_keys_server: bytes of the keys in the server's memory.
        levels: levels of the chain of primes.
        precision_bits: precision of the reply, by the simulator.
    """

    mode: str | None = None
    engine: str | None = None
    processes: int | None = None
    server: str | None = None
    images: int
    top1_float: float | None = None
    top1_clear: float | None = None
    top1_encrypted: float
    argmax_equal: int | None = None
    logits_equal: int | None = None
    unit: str | None = None
    wrong_nodes: list[str] | None = None
    logits_bits: float | None = None
    logits_bits_images: list[float] | None = None
    beyond: list[int] | None = None
    logit_max_difference: float | None = None
    logit_range: float | None = None
    seconds: float | None = None
    seconds_per_image: float
    seconds_images: list[float] | None = None
    seconds_setup: float | None = None
    seconds_warm_up: float | None = None
    seconds_client: float | None = None
    seconds_server: float | None = None
    processor_seconds_images: list[float] | None = None
    processor_seconds_predicted: float | None = None
    throttle: str | None = None
    links: dict[str, LinkPrediction] = field(default_factory=dict)
    rounds: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    bytes_per_image: int
    bytes_keys: int | None = None
    bytes_keys_server: int | None = None
    bytes_weights: int | None = None
    memory: dict[str, int] = field(default_factory=dict)
    prepared: int | None = None
    online: Online | None = None
    preparation: PreparationSummary | None = None
    dropped: list[str] | None = None
    counted: bool = False
    refused: list[int] = field(default_factory=list)
    operations: dict[str, int] | None = None
    rotation_keys: int | None = None
    bootstrappings: int | None = None
    levels: int | None = None
    precision_bits: float | None = None
    layers: list[LayerRow]
    classes: list[str] = field(default_factory=list)
    predictions: list[Prediction]

    def class_name(self, label: int | None) -> str:
        """Return the name of a class, its number where names are not known, a dash where there is none."""
        if label is None:
            return "-"
        return self.classes[label] if label < len(self.classes) else str(label)

    @property
    def exact(self) -> bool:
        """Return whether results follow an integer network's; otherwise they are near real ones."""
        return self.mode != "ckks"

    @property
    def in_words_exact(self) -> str:
        """Return the exactness with which results follow the integer network's."""
        return f"to within {self.unit}" if self.unit else "exactly, bit for bit"

    @property
    def clear_name(self) -> str:
        """Word for the network in clear."""
        return "integer" if self.exact else "clear"

    @property
    def rehearsal(self) -> bool:
        """Return whether nothing was encrypted."""
        return self.engine == "cleartext"

    @property
    def done(self) -> str:
        """Word for the treatment of the images."""
        return "rehearsed" if self.rehearsal else "encrypted"
