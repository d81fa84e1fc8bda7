"""Seconds that a layer takes, from its plan and a profile of measured operation times; search and planner use it.

A profile is a table of seconds per operation on one machine at one (n, q); a link adds bytes / bandwidth and round
trips. The prediction is a plain sum over what the plan says will be done, so a wrong prediction means a wrong count or
a wrong profile, never a hidden factor.
"""

import math
from dataclasses import asdict, dataclass, field

from privcirnet.errors import RuleError
from privcirnet.he import plan as plans
from privcirnet.he.layout import LinearShape, SpectralLayout
from privcirnet.he.linear import LinearLayer
from privcirnet.he.params import DEFAULT_COEFFICIENT_BITS, MAX_PLAIN_BITS, ciphertext_bytes

OPERATIONS = {
    "encrypt": "client: encode n slots, encrypt, serialise",
    "receive": "server: check and load one ciphertext",
    "add_plain": "server: encode n slots and add them",
    "rotate": "server: HE-Rot",
    "to_ntt": "server: ciphertext to NTT form",
    "from_ntt": "server: ciphertext from NTT form",
    "pmult": "server: HE-Pmult in NTT form",
    "add": "server: sum of two ciphertexts",
    "pmult_plain": "server: encode n slots and multiply in coefficient form",
    "reply": "server: draw, encode and subtract a mask, flood the noise, switch down, serialise",
    "decrypt": "client: check, load, decrypt and decode one reply",
    "transform": "either: one value through a transform of length 1 (a length-N transform costs N of it)",
}


@dataclass(frozen=True)
class Link:
    """The network between the parties.

    Attributes:
        bandwidth: bytes a second.
        round_trip: seconds.
    """

    bandwidth: float
    round_trip: float


LINKS = {"local": Link(math.inf, 0.0), "lan": Link(384e6, 0.3e-3), "wan": Link(9e6, 80e-3)}
"""local: both parties in one process; lan: the papers' setting (384 MB/s, 0.3 ms); wan: 9 MB/s, 80 ms."""


@dataclass(frozen=True)
class Profile:
    """Measured seconds per operation (keys of :data:`OPERATIONS`) of one machine at one (n, q)."""

    name: str
    ring_degree: int
    coefficient_bits: tuple[int, ...]
    seconds: dict[str, float] = field(hash=False)

    def __post_init__(self) -> None:
        wrong = set(self.seconds) ^ set(OPERATIONS)
        if wrong or any(not s > 0 for s in self.seconds.values()):
            raise RuleError(
                "a cost profile must hold a positive time for every operation",
                got=", ".join(sorted(wrong)) or "a time that is not positive",
                remedy="measure it again with search.py he.profile=calibrate",
            )

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


COUNTED = Profile(
    "counted",
    8192,
    DEFAULT_COEFFICIENT_BITS,
    {name: 1e-9 for name in OPERATIONS} | {"rotate": 1.0, "pmult": 0.135, "pmult_plain": 0.135},
)
"""The papers' units: HE-Rot + 0.135 HE-Pmult, everything else free."""


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of one layer."""

    client_encrypt: float
    server: float
    client_decrypt: float
    network: float

    @property
    def total(self) -> float:
        """Sum of all four."""
        return self.client_encrypt + self.server + self.client_decrypt + self.network


def linear_cost(layer: LinearLayer, profile: Profile, link: Link) -> Cost:
    """Predicted seconds of an encrypted linear layer."""
    s, plan, layout = profile.seconds, layer.plan, layer.layout
    axis_lengths = [layer.block_size, *layout.spectral_extent]
    per_value = s["transform"] * sum(length for length in axis_lengths if length > 1)
    values_in, values_out = layout.blocks_in * layout.lane_length, layout.blocks_out * layout.lane_length
    turned = len({(p.source, p.baby) for p in plan.products})
    adds = plan.pmults - len(plan.outputs) + len(plan.fold_rotations) * len(plan.outputs)
    server = (
        plan.ciphertexts_in * (s["receive"] + s["add_plain"])
        + plan.rotations * s["rotate"]
        + turned * s["to_ntt"]
        + plan.pmults * s["pmult"]
        + adds * s["add"]
        + len(plan.parts) * s["from_ntt"]
        + plan.ciphertexts_out * s["reply"]
        + (values_in + values_out) * per_value
    )
    return Cost(
        plan.ciphertexts_in * s["encrypt"] + values_in * per_value,
        server,
        plan.ciphertexts_out * s["decrypt"] + values_out * per_value,
        _network(plan.ciphertexts_in, plan.ciphertexts_out, profile, link),
    )


def square_cost(values: int, profile: Profile, link: Link) -> Cost:
    """Predicted seconds of an encrypted square of that many values."""
    s, count = profile.seconds, -(-values // profile.ring_degree)
    server = count * (s["receive"] + s["pmult_plain"] + s["reply"])
    return Cost(count * s["encrypt"], server, count * s["decrypt"], _network(count, count, profile, link))


def cheapest_layer(shape: LinearShape, block_size: int, profile: Profile, link: Link) -> LinearLayer:
    """The layer whose plan has the least predicted time."""
    layers = candidate_layers(shape, block_size, profile.ring_degree)
    return min(layers, key=lambda layer: linear_cost(layer, profile, link).total)


def candidate_layers(shape: LinearShape, block_size: int, ring_degree: int) -> list[LinearLayer]:
    """A layer for every plan."""
    layout = SpectralLayout(shape, block_size, ring_degree)
    found = plans.candidates(layout.lanes, layout.blocks_in, layout.blocks_out)
    return [_with_plan(layout, plan) for plan in found]


def paper_layer(shape: LinearShape, block_size: int, ring_degree: int) -> LinearLayer:
    """The layer with the papers' plan (:func:`plan.paper_plan`)."""
    layout = SpectralLayout(shape, block_size, ring_degree)
    return _with_plan(layout, plans.paper_plan(layout.lanes, layout.blocks_in, layout.blocks_out))


def _with_plan(layout: SpectralLayout, plan: plans.LinearPlan) -> LinearLayer:
    return LinearLayer(
        layout.shape,
        layout.block_size,
        layout.ring_degree,
        plan.baby_steps,
        plan.giants_on_shares,
        plan.folds_on_shares,
    )


def _network(up: int, down: int, profile: Profile, link: Link) -> float:
    per_up, per_down = ciphertext_bytes(profile.ring_degree, profile.coefficient_bits, MAX_PLAIN_BITS)
    return (up * per_up + down * per_down) / link.bandwidth + link.round_trip
