"""Seconds that an operation takes, from its plan and a profile of measured operation times, and the choice by them.

A profile is a table of seconds per operation on one machine at one (n, q); a link adds bytes / bandwidth and round
trips. The prediction is a plain sum over what the plan says will be done, so a wrong prediction means a wrong count or
a wrong profile, never a hidden factor.

*Online*, if everything encrypted was done before, the seconds of a linear layer are the server's alone. It is computed
in clear (:mod:`mpc.local.matrix_products`): residues become digits, digits are multiplied with weights, and sums become
residues again. A circulant block takes 1 + (b^2 - 1) / 3 products instead of b^2. Nothing is sent for it, and the
client does nothing. Other operations are messages: what is done for them counts by their bytes.

:class:`Objective` says what a plan is chosen by, and :func:`table` shows the candidates side by side.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import ciphertext_bytes, reply_bits
from privcirnet.he.layers import subring
from privcirnet.he.layers.bsgs import BsgsPlan
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape, by_axis
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.profile import ONLINE, Profile, column_unit
from privcirnet.he.program.exact import ExactStep
from privcirnet.he.program.lookup_table import ExactTable
from privcirnet.he.program.operation import Operation

_ASSUMED = 1 << 10
"""Bound of rounded values where none is known yet."""
OT_SECONDS = 1e-7
"""Seconds of an oblivious transfer and of its use, by both parties (benchmarks/exact_steps.py)."""


@dataclass(frozen=True)
class Cost:
    """A prediction of one layer's seconds."""

    client_encrypt: float = 0.0
    server: float = 0.0
    client_decrypt: float = 0.0
    network: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.client_encrypt + other.client_encrypt,
            self.server + other.server,
            self.client_decrypt + other.client_decrypt,
            self.network + other.network,
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(times * self.client_encrypt, times * self.server, times * self.client_decrypt, times * self.network)

    @property
    def total(self) -> float:
        """Sum of all four."""
        return self.client_encrypt + self.server + self.client_decrypt + self.network


def operation_cost(operation: Operation, shape: tuple[int, int, int], profile: Profile, link: NetworkLink) -> Cost:
    """Return the predicted seconds of one operation of a program, for one image; ``shape``: (C, H, W) of its result."""
    return operation.cost(OperationPrices(profile, link), shape)


@dataclass(frozen=True)
class OperationPrices:
    """Prices of all that an operation takes, see :class:`program.operation.CostModel`."""

    profile: Profile
    link: NetworkLink

    def linear(self, layer: Layer) -> Cost:
        return linear_cost(layer, self.profile, self.link)

    def product(self, left: Layer, right: Layer) -> Cost:
        return product_cost(left, right, self.profile, self.link)

    def square(self, values: int) -> Cost:
        return square_cost(values, self.profile, self.link)

    def messages(self, *byte_counts: int, ahead: int = 0, transfers: int = 0) -> Cost:
        network = (sum(byte_counts) + ahead) / self.link.bandwidth + len(byte_counts) / 2 * self.link.round_trip
        return Cost(server=transfers * OT_SECONDS, network=network)

    def exact(self, step: ExactStep, values: int) -> Cost:
        from privcirnet.he.mpc import rectifier  # it loads the kernels
        from privcirnet.he.mpc.lookup import Lookup

        if not step.bound:
            step = step.bounded(-_ASSUMED << step.bits, _ASSUMED << step.bits)
        required, useful = (divisor.bit_length() - 1 for divisor in (step.divisor, step.best_divisor))
        bits = max(self.profile.plain_bits, step.least_modulus.bit_length() + 1)
        t = representative(bits, max(required, min(useful, self.profile.plain_twos)))
        shapes = [rectifier.shape_of(step, t), *([Lookup(t, step.table)] if isinstance(step, ExactTable) else [])]
        online = (sum(parts) * values // 8 for shape in shapes for parts in shape.online_bits())
        ahead = sum(sum(shape.ahead_bits()) for shape in shapes) * values // 8
        return self.messages(*online, ahead=ahead, transfers=sum(shape.transfers for shape in shapes) * values)

    def local(self) -> Cost:
        return Cost()


def representative(bits: int, twos: int) -> int:
    """Return a number of some bits that is 1 modulo so many factors of two, or one bit longer than those.

    >>> representative(5, 2), representative(3, 4)
    (21, 17)
    """
    return 1 + (1 << max(bits - 1, twos)) + (1 << twos if twos < bits - 1 else 0)


@singledispatch
def linear_cost(layer: Layer, profile: Profile, link: NetworkLink) -> Cost:
    """Return the predicted cost of an encrypted linear layer, in seconds; another class of layers registers its cost.

    Args:
        profile: seconds of operations at one (n, q).
    """
    rule = "a layer must be planned before its cost is known"
    raise RuleError(rule, got=layer.encoding, remedy="plan it with cheapest_layer")


@linear_cost.register
def _spectral_cost(layer: SpectralLayer, profile: Profile, link: NetworkLink) -> Cost:
    plans = [placed.plan for placed in layer.placed]
    parts = [plan_cost(plan, profile, link) for plan in plans]
    return sum(parts, fixed_cost(layer.layout, profile, link)) + Cost(server=_uneven(plans, profile))


def plan_cost(plan: BsgsPlan, profile: Profile, link: NetworkLink) -> Cost:
    """Return the predicted cost of one piece's plan, in seconds, without transforms and round trip.

    Args:
        profile: seconds of operations at one (n, q).
    """
    s, inputs, outputs = profile.seconds, plan.ciphertexts_in, plan.ciphertexts_out
    shared = sum(number * s[name] for name, number in _shared(plan).items())
    server = shared + plan.pmults * s["pmult"] + outputs * len(plan.fold_rotations) * s["fold"]
    network = transfer_seconds(inputs, outputs, outputs, profile, link)
    return Cost(inputs * s["encrypt"], server, outputs * s["decrypt"], network)


def _shared(plan: BsgsPlan) -> dict[str, int]:
    """Return the counts of a plan's operations that threads share whole."""
    inputs, outputs, babies = plan.ciphertexts_in, plan.ciphertexts_out, plan.baby_rotations
    return {
        "receive": inputs,
        "add_plain": inputs,
        "to_ntt": len(plan.rotated) - len(babies),
        "hoist": len({source for source, _ in babies}),
        "rotate": len(babies),
        "giant": len(plan.giant_rotations),
        "from_ntt": outputs,
        "reply": outputs,
    }


def _uneven(plans: Sequence[BsgsPlan], profile: Profile) -> float:
    """Return the seconds that threads of the server wait for each other, beyond :func:`plan_cost`.

    It depends on all pieces of a layer together, so plans are chosen without it.
    """
    counts = Counter[str]()
    for plan in plans:
        counts.update(_shared(plan))
    outputs, folds = counts["reply"], max(len(plan.fold_rotations) for plan in plans)
    idle = sum(-number % profile.threads * profile.seconds[name] for name, number in counts.items())
    return idle + -outputs % profile.threads * folds * profile.seconds["fold"]


def fixed_cost(layout: SpectralLayout, profile: Profile, link: NetworkLink) -> Cost:
    """Return the cost that does not depend on the plan, in seconds: transforms, the round trip, what any layer takes.

    Args:
        profile: seconds of operations at one (n, q).
    """
    return transform_cost(layout, profile) + Cost(server=profile.seconds["call"], network=link.round_trip)


def transform_cost(layout: SpectralLayout, profile: Profile) -> Cost:
    """Return the cost of the transforms, in seconds: the client's share in and out, the server's in, its mask out.

    Args:
        profile: seconds of operations at one (n, q).
    """
    per_value = profile.seconds["transform"] * len(layout.transformed_axes)
    cells = layout.shape.groups * layout.tiles * layout.cell
    into, out = (blocks * cells * per_value for blocks in (layout.blocks_in, layout.blocks_out))
    return Cost(into, into + out, out)


def product_cost(left: Layer, right: Layer, profile: Profile, link: NetworkLink) -> Cost:
    """Return the cost of a product of two values, in seconds: two layers in one round, every plaintext encoded anew.

    Args:
        profile: seconds of operations at one (n, q).
    """
    fresh = for_one_use(profile)
    again = Cost(network=-link.round_trip)
    return linear_cost(left, fresh, link) + linear_cost(right, fresh, link) + again


def for_one_use(profile: Profile) -> Profile:
    """Return the same profile for weights that are encoded for every image.

    "pmult_plain" transforms the ciphertext too, which a layer does once for all products.

    Args:
        profile: seconds of operations at one (n, q).
    """
    s = profile.seconds
    return replace(profile, seconds=s | {"pmult": max(s["pmult_plain"] - s["to_ntt"], 0.0)})


def square_cost(values: int, profile: Profile, link: NetworkLink) -> Cost:
    """Return the predicted cost of an encrypted square, in seconds.

    Args:
        profile: seconds of operations at one (n, q).
    """
    n, s, sizes = profile.ring_degree, profile.seconds, subring.sizes(values, profile.ring_degree)
    count, share = len(sizes), sum(sizes) / n
    server = (count + -count % profile.threads) * (s["receive"] + s["pmult_plain"] + s["reply"])
    network = transfer_seconds(share, share, count, profile, link) + link.round_trip
    return Cost(count * s["encrypt"], server, count * s["decrypt"], network)


def transfer_seconds(up: float, first: float, second: float, profile: Profile, link: NetworkLink) -> float:
    """Return the seconds of so many requests, and of so many of either polynomial of replies."""
    n, bits = profile.ring_degree, reply_bits(profile.coefficient_bits, profile.plain_bits)
    per_up, _ = ciphertext_bytes(n, profile.coefficient_bits, profile.plain_bits)
    return (up * per_up + (first * bits.first + second * bits.second) * n / 8) / link.bandwidth


_LIMBS = 2
"""Digits of a residue, for weights of 8 bits and t of up to 60 bits."""

MESSAGE_BYTE = 1.4e-8
"""Seconds of both parties' work for a byte that they send with the image (benchmarks/exact_steps.py)."""


class ClearWork(NamedTuple):
    """Counts of the operations of a layer in clear, those of :data:`ONLINE` in their order.

    Attributes:
        calls: 1.
        values: digits that are read, laid out for the products, and written.
        products: products of a digit and a weight, in products of matrices.
        depthwise: products of a digit and a weight, channel by channel.
    """

    calls: int
    values: int
    products: int
    weights: int
    depthwise: int


def clear_work(shape: LinearShape, block_size: int) -> ClearWork:
    """Return the counts of a layer in clear.

    >>> clear_work(LinearShape(4, 4, 16, 16), 8)
    ClearWork(calls=1, values=1024, products=2816, weights=88, depthwise=0)
    """
    positions = prod(shape.output_shape[1:])
    ends, taps = prod(shape.input_shape) + prod(shape.output_shape), shape.in_channels * shape.taps
    dense = shape.out_channels * taps // shape.groups
    if shape.kind == "depthwise" and shape.taps > 1:
        return ClearWork(1, _LIMBS * ends, 0, dense, _LIMBS * dense * positions)
    values = ends + (taps * positions if shape.taps > 1 else 0)
    weights = dense * block_products(block_size) // block_size**2
    return ClearWork(1, _LIMBS * values, _LIMBS * weights * positions, weights, 0)


def block_products(block_size: int) -> int:
    """Return the products of a circulant block with one vector.

    >>> [block_products(b) for b in (1, 2, 6, 8, 16)]
    [1, 2, 18, 22, 86]
    """
    odd = block_size // (block_size & -block_size)
    return odd**2 + (block_size**2 - odd**2) // 3


def online_seconds(shape: LinearShape, block_size: int, profile: Profile) -> float:
    """Return the predicted seconds of a layer when the image comes, the server's."""
    return sum(count * profile.seconds[name] for name, count in zip(ONLINE, clear_work(shape, block_size), strict=True))


def online_cost(operation: Operation, shape: tuple[int, int, int], profile: Profile, link: NetworkLink) -> Cost:
    """Return :func:`operation_cost` of what is left when the image comes; ``shape``: (C, H, W) of its result."""
    return operation.cost(_Online(profile, link), shape)


class _Online(OperationPrices):
    """Prices of the work that is left when the image comes."""

    def linear(self, layer: Layer) -> Cost:
        return Cost(server=online_seconds(layer.shape, layer.block_size, self.profile))

    def product(self, left: Layer, right: Layer) -> Cost:
        sent = prod(left.shape.input_shape) + prod(right.shape.input_shape)
        return self._question(sent, prod(left.shape.output_shape))

    def square(self, values: int) -> Cost:
        return self._question(values, values)

    def _question(self, sent: int, answered: int) -> Cost:
        return self.messages(*(values * self.profile.plain_bits // 8 for values in (sent, answered)))

    def messages(self, *byte_counts: int, ahead: int = 0, transfers: int = 0) -> Cost:
        return super().messages(*byte_counts) + Cost(server=sum(byte_counts) * MESSAGE_BYTE)


SUMS = ("any", "encrypted", "shares")
"""Places where sums of lanes may be done, see :class:`Objective`."""


@dataclass(frozen=True)
class Objective:
    """The objective of a plan.

    Attributes:
        profile: seconds of operations at one (n, q).
        sums: sums of lanes: "any"; "encrypted" for plans without sums on shares; "shares" for plans without rotations.
        lengths: number that every transform's length must divide, if it can; 0: those of tiles divide one that a long t
            carries.
    """

    profile: Profile
    link: NetworkLink
    sums: str = "any"
    lengths: int = 0

    def __post_init__(self) -> None:
        if self.sums not in SUMS:
            raise RuleError("sums must be of a known kind", got=repr(self.sums), remedy=f"use {', '.join(SUMS)}")


@dataclass(frozen=True)
class LayerChoice:
    """The planner's choice for a layer.

    Attributes:
        goal: objective of the choice.
        candidates: (predicted cost, layer) of the best plan for every tiling and number of lanes, cheapest first.
    """

    layer: Layer
    goal: Objective
    candidates: tuple[tuple[Cost, Layer], ...]

    def explain(self, limit: int = 12) -> str:
        """Return the candidates side by side, cheapest first, with their differences, as a table of text."""
        return table(self, limit)


_PLAN = ("tile", "pieces", "lanes", "copies", "B", "sums")
_HEADINGS = ("encoding", *_PLAN, "HE-Rot", "HE-Pmult", "up", "down", "server", "total")


def table(choice: LayerChoice, limit: int = 12) -> str:
    """Return a table of the cheapest candidates and a sentence on the deciding difference.

    Returns:
        lines; the chosen candidate is the first row.
    """
    goal, (unlike, rest) = choice.goal, _unlike(choice.candidates, max(limit, 2))
    printed, left_out = unlike[:limit], rest + max(0, len(unlike) - limit)
    shape, unit = choice.layer.shape, column_unit(goal.profile.counted)
    head = (
        f"{shape.kind} {shape.input_shape} -> {shape.output_shape}, kernel {by_axis(shape.kernels)}, "
        f"stride {by_axis(shape.strides)}, "
        f"groups {shape.groups}, b = {choice.layer.block_size}, n = {choice.layer.ring_degree}; "
        f"profile {goal.profile.name}, server and total in {unit.name}, sums {goal.sums}"
    )
    rows = [_HEADINGS, *(_row(cost, layer, unit.scale) for cost, layer in printed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    more = [f"... and {left_out} dearer candidates"] if left_out else []
    return "\n".join([head, *lines, *more, _reason(unlike)])


def _unlike(candidates: Sequence[tuple[Cost, Layer]], limit: int) -> tuple[list[tuple[Cost, Layer]], int]:
    """Return (the cheapest that do not differ from a cheaper one in their tiles alone, the number not looked at)."""
    cheapest: dict[tuple[object, ...], tuple[Cost, Layer]] = {}
    for looked_at, (cost, layer) in enumerate(candidates):
        if len(cheapest) == limit:
            return list(cheapest.values()), len(candidates) - looked_at
        counts = layer.rotations, layer.pmults, layer.ciphertexts_in, layer.ciphertexts_out
        cheapest.setdefault((layer.encoding, *_plan_cells(layer)[1:], *counts), (cost, layer))
    return list(cheapest.values()), 0


def _row(cost: Cost, layer: Layer, scale: float) -> tuple[str, ...]:
    return (
        layer.encoding,
        *_plan_cells(layer),
        str(layer.rotations),
        str(layer.pmults),
        str(layer.ciphertexts_in),
        str(layer.ciphertexts_out),
        *(f"{scale * part:.1f}" for part in (cost.server, cost.total)),
    )


def _plan_cells(layer: Layer) -> tuple[str, ...]:
    """Return the choices of a layer under each heading, "-" where its encoding has no such choice."""
    return tuple(layer.choices.get(name, "-") for name in _PLAN)


def _reason(candidates: Sequence[tuple[Cost, Layer]]) -> str:
    """Return the savings of the first candidate against the next, or its excess."""
    if len(candidates) < 2:
        return "the only candidate"
    (best, layer), (second, runner_up) = candidates[:2]
    parts = {
        "HE-Rot": runner_up.rotations - layer.rotations,
        "HE-Pmult": runner_up.pmults - layer.pmults,
        "ciphertexts up": runner_up.ciphertexts_in - layer.ciphertexts_in,
        "ciphertexts down": runner_up.ciphertexts_out - layer.ciphertexts_out,
    }
    saved = ", ".join(f"{abs(n)} {'fewer' if n > 0 else 'more'} {name}" for name, n in parts.items() if n)
    share = 100 * (1 - best.total / second.total)
    return f"chosen over the next by {share:.1f} %: {saved or 'the same counts, cheaper transforms'}"
