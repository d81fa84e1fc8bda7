"""The contents of each script's ``summary.json``, as far as the report shows them; :mod:`.reading` reads them.

A field without a default is required; every other one may be absent or null. Keys that no field names are ignored, so
that a script may write more than the report shows. JSON has no name for infinity or NaN: both read as null.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Real = float
"""float, in the annotations of a record that has a field of that name."""


@dataclass(frozen=True)
class Training:
    """One training stage: ``top1`` in percent on the held-out test images, ``parameters`` the number of stored ones."""

    top1: float
    model: str | None = None
    data: str | None = None
    epochs: int | None = None
    seconds: float | None = None
    parameters: int | None = None


@dataclass(frozen=True)
class Uniform:
    """One block size everywhere."""

    latency_predicted_s: float | None = None
    objective: float | None = None


@dataclass(frozen=True)
class Search:
    """The block-size search; the maps go from module name to block size to loss increase or seconds."""

    block_sizes: dict[str, int]
    budget_s: float | None = None
    latency_predicted_s: float | None = None
    uniform: dict[int, Uniform] = field(default_factory=dict)
    sensitivity: dict[str, dict[int, float | None]] = field(default_factory=dict)
    latency: dict[str, dict[int, float | None]] = field(default_factory=dict)
    status: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Truncation:
    """The masks of truncation on shares, and its chance of failure (log2, per image)."""

    masks: str | None = None
    hiding: str | None = None
    failure_per_image_log2: float | None = None


@dataclass(frozen=True)
class ParameterReason:
    """The reason for the choice of encryption parameters, in one line."""

    reason: str | None = None


@dataclass(frozen=True)
class BoundsCheck:
    """Held-out images on which measured bounds were checked, and how many of them go beyond the modulus."""

    images: int
    beyond: int


@dataclass(frozen=True)
class Rehearsal:
    """Held-out images in clear with random truncations: how many change their class, or would be refused."""

    images: int
    changed: int
    refused: int
    differ: int | None = None
    difference: float | None = None


@dataclass(frozen=True)
class Export:
    """The encrypted-inference program: parameters, bound on values, plaintext sizes in bytes."""

    ring_degree: int
    log_q: int
    security_bits: int
    plain_modulus_bits: int | None = None
    plain_modulus: int | None = None
    max_value_bits: int | None = None
    bounds: str | None = None
    bounds_exceeded: BoundsCheck | None = None
    guard_bits: int | None = None
    rehearsal: Rehearsal | None = None
    choice: ParameterReason | None = None
    truncation: Truncation | None = None
    flooding_bits: int | None = None
    flooding_distance_bits: float | None = None
    bytes_plaintexts: int | None = None
    bytes_plaintexts_dense: int | None = None
    seconds: float | None = None
    mode: str | None = None
    plain_moduli: int | None = None
    depth_products: int | None = None
    depth_squares: int | None = None
    scheme: str | None = None
    levels: int | None = None
    failure_bits: int | None = None

    @property
    def ckks(self) -> bool:
        """Whether the network runs on bootstrapped CKKS."""
        return self.scheme == "ckks"

    @property
    def leveled(self) -> bool:
        """Whether images take one request and one answer; such a chain has no quantized stage."""
        return self.mode == "leveled"


@dataclass(frozen=True)
class LayerRow:
    """The costs of one encrypted layer for one image."""

    name: str
    kind: str | None = None
    encoding: str | None = None
    block_size: int | None = None
    rotations: int | None = None
    pmults: int | None = None
    rounds: int | None = None
    ciphertexts_up: int | None = None
    ciphertexts_down: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    seconds_predicted: float | None = None
    seconds: float | None = None
    level: int | None = None
    precision_bits: float | None = None


@dataclass(frozen=True)
class Prediction:
    """The classes that one test image got in float, in clear (integers; of CKKS real numbers) and encrypted; logits."""

    label: int
    encrypted: int
    integer: int | None = None
    clear: int | None = None
    float: int | None = None
    index: int | None = None
    logits: list[Real | None] | None = None
    logits_integer: list[Real | None] | None = None
    logits_clear: list[Real | None] | None = None

    @property
    def refused(self) -> bool:
        """Whether the client refused the result."""
        return self.encrypted < 0

    @property
    def expected(self) -> int | None:
        """The class that the encrypted network should give."""
        return self.clear if self.integer is None else self.integer


@dataclass(frozen=True)
class LinkPrediction:
    """Predicted seconds of one image over a network: measured work, bytes, round trips, and their sum."""

    compute: float
    transfer: float
    round_trips: float
    seconds: float


@dataclass(frozen=True)
class Memory:
    """The peak memory of each party's process, bytes."""

    client: int
    server: int


@dataclass(frozen=True)
class Online:
    """An image whose encrypted work was done before it came."""

    seconds_per_image: float
    bytes_per_image: int
    rounds: int
    links: dict[str, LinkPrediction]


@dataclass(frozen=True)
class Preparation:
    """What was done before an image came."""

    seconds_per_image: float
    bytes_per_image: float
    rounds_per_image: float | None = None
    links: dict[str, LinkPrediction] = field(default_factory=dict)


@dataclass(frozen=True)
class Inference:
    """The encrypted run; the ``top1`` values are percents on the encrypted images, ``logits_equal`` counts images."""

    images: int
    top1_float: float
    top1_encrypted: float
    seconds_per_image: float
    bytes_per_image: int
    layers: list[LayerRow]
    predictions: list[Prediction]
    top1_integer: float | None = None
    top1_clear: float | None = None
    logits_equal: int | None = None
    logits_bits: float | None = None
    beyond: list[int] = field(default_factory=list)
    bootstrappings: int | None = None
    peak_bytes: int | None = None
    engine: str | None = None
    top1_circulant: float | None = None
    argmax_equal: int | None = None
    logit_max_difference: float | None = None
    unit: str | None = None
    bytes_keys: int | None = None
    seconds: float | None = None
    processes: int | None = None
    rounds: int | None = None
    seconds_client: float | None = None
    seconds_server: float | None = None
    revealed: int = 0
    links: dict[str, LinkPrediction] = field(default_factory=dict)
    memory: Memory | None = None
    prepared: int = 0
    online: Online | None = None
    preparation: Preparation | None = None
    mode: str | None = None

    @property
    def rehearsal(self) -> bool:
        """Whether nothing was encrypted."""
        return self.engine == "cleartext"

    @property
    def done(self) -> str:
        """What was done with the images, in one word."""
        return "rehearsed" if self.rehearsal else "encrypted"
