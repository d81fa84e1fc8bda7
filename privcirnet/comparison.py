"""What bench.py reports: one layer, whole networks, and encodings side by side on the papers' shapes.

Layers are planned by name of plan: "paper" is what the papers count (every sum under encryption, least HE-Rot + 0.135
HE-Pmult), "published" what they do (:mod:`privcirnet.he.published`), "best" the least predicted time.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he import params
from privcirnet.he.benchmark import LayerBenchmark, Timing, bench_layers
from privcirnet.he.cost import COUNTED, LINKS, Profile, linear_cost
from privcirnet.he.layers import Layer
from privcirnet.he.named import plan_named
from privcirnet.he.planner import Choice, Goal, counted_goal
from privcirnet.he.published import published_layer
from privcirnet.he.reference import allowed_block_size
from privcirnet.he.shape import LinearShape

SHAPES = {
    "MobileNetV2 8x8 64-384": LinearShape(8, 8, 64, 384),
    "MobileNetV2 4x4 960-160": LinearShape(4, 4, 960, 160),
    "ViT 256 tokens 192-576": LinearShape.gemm(256, 192, 576),
    "ViT 64 tokens 256-512": LinearShape.gemm(64, 256, 512),
    "ResNet-18 16x16 128-128 3x3": LinearShape(16, 16, 128, 128, 3, 1, 1),
    "ResNet-18 8x8 256-256 3x3": LinearShape(8, 8, 256, 256, 3, 1, 1),
    "ResNet-18 4x4 512-512 3x3": LinearShape(4, 4, 512, 512, 3, 1, 1),
}
"""Layers of the kind that PrivCirNet's figure 7 and table 5 compare encodings on."""


@dataclass(frozen=True)
class Contest:
    """How to run a comparison.

    Attributes:
        engine: "tenseal" or "cleartext".
        plain_bits: bits of t.
        repetitions: timed runs of each layer.
    """

    engine: str
    plain_bits: int
    repetitions: int


def plan_layer(plan: str, encoding: str, shape: LinearShape, block_size: int, goal: Goal) -> Layer:
    """A layer by name of plan and encoding.

    Raises:
        RuleError: unknown names, or no such plan of this layer.
    """
    if plan == "published":
        return published_layer(shape, block_size, goal.profile.ring_degree)
    return explained(plan, encoding, shape, block_size, goal).layer


def explained(plan: str, encoding: str, shape: LinearShape, block_size: int, goal: Goal) -> Choice:
    """The planner's choice for plan "paper" or "best".

    Raises:
        RuleError: another plan, or no such plan of this layer.
    """
    if plan == "paper":
        return plan_named(encoding, shape, block_size, counted_goal(goal.profile.ring_degree))
    if plan == "best":
        return plan_named(encoding, shape, block_size, goal)
    raise RuleError("this plan has no candidates", got=plan, remedy="use plan=paper or plan=best")


def network_layers(
    shapes: Mapping[str, LinearShape], plan: str, encoding: str, block_size: int, goal: Goal
) -> dict[str, Layer]:
    """Layers of a network at the largest block size up to ``block_size`` that each allows."""
    sizes = {name: allowed_block_size(shape, block_size) for name, shape in shapes.items()}
    return {name: plan_layer(plan, encoding, shape, sizes[name], goal) for name, shape in shapes.items()}


def totals(layers: Mapping[str, Layer]) -> dict[str, int]:
    """Counts of a whole network."""
    each = [counts(layer) for layer in layers.values()]
    return {name: sum(found[name] for found in each) for name in each[0]}


def counts(layer: Layer) -> dict[str, int]:
    """Counts of a layer."""
    return {
        "rotations": layer.rotations,
        "pmults": layer.pmults,
        "ciphertexts_up": layer.ciphertexts_in,
        "ciphertexts_down": layer.ciphertexts_out,
    }


def predictions(layers: Mapping[str, Layer], profile: Profile) -> dict[str, float]:
    """Predicted seconds of a whole network over each link."""
    return {
        name: sum(linear_cost(layer, profile, link).total for layer in layers.values()) for name, link in LINKS.items()
    }


def in_words(seconds: Mapping[str, float], profile: Profile) -> str:
    """Predictions by link; under the counted profile their unit is the papers'."""
    if profile.name == COUNTED.name:
        return f"{seconds['local']:.1f} (HE-Rot + 0.135 HE-Pmult)"
    return ", ".join(f"{link} {s:.2f} s" for link, s in seconds.items())


def described(layer: Layer, profile: Profile) -> dict[str, Any]:
    """What is known of a layer before it runs."""
    cost = linear_cost(layer, profile, LINKS["local"])
    return {
        "shape": asdict(layer.shape),
        "block_size": layer.block_size,
        "encoding": layer.encoding,
        **counts(layer),
        "rotations_planned": layer.rotations,
        "pmults_planned": layer.pmults,
        "seconds_predicted": {part: getattr(cost, part) for part in Timing._fields},
    }


def measured(result: LayerBenchmark) -> dict[str, Any]:
    """What a run found."""
    return {
        "rotations": result.rotations,
        "pmults": result.pmults,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "seconds": result.median._asdict(),
        "seconds_total": result.seconds,
        "max_abs_error": result.max_abs_error,
    }


Found = dict[str, dict[str, Any]]
"""What was found of each layer of a network, by name."""


def run_networks(
    plans: Mapping[str, Mapping[str, Layer]], profile: Profile, contest: Contest, progress: Callable[[], object]
) -> dict[str, Found]:
    """Run every different layer of a network under each plan, plans in turns; layers that are alike share the result.

    Args:
        plans: name of plan -> name of layer -> layer, the same names in all.
        profile: for the parameters and the predictions.
        contest: how.
        progress: called after each run.
    """
    rivals = {name: tuple(layers[name] for layers in plans.values()) for name in next(iter(plans.values()))}
    results = {
        alike: _run(dict(zip(plans, alike, strict=True)), profile, contest, progress)
        for alike in dict.fromkeys(rivals.values())
    }
    return {
        plan: {
            name: {**described(layer, profile), **measured(results[rivals[name]][plan])}
            for name, layer in layers.items()
        }
        for plan, layers in plans.items()
    }


def network_runs(plans: Mapping[str, Mapping[str, Layer]], repetitions: int) -> int:
    """Runs of :func:`run_networks`."""
    different = set(zip(*(layers.values() for layers in plans.values()), strict=True))
    return len(different) * len(plans) * (repetitions + int(repetitions > 1))


def network_summary(layers: Mapping[str, Layer], profile: Profile, each: Found | None) -> dict[str, Any]:
    """Counts and predictions of a network, and what its runs found."""
    planned = totals(layers) | {"seconds_predicted": predictions(layers, profile)}
    listed = each or {name: described(layer, profile) for name, layer in layers.items()}
    found = _network_measured(each) if each else {}
    return planned | found | {"layers": [{"name": name, **facts} for name, facts in listed.items()]}


def network_facts(summary: Mapping[str, Any], profile: Profile) -> dict[str, str]:
    """A network's summary in words."""
    facts = {
        "operations": f"{summary['rotations']} HE-Rot, {summary['pmults']} HE-Pmult",
        "ciphertexts": f"{summary['ciphertexts_up']} up, {summary['ciphertexts_down']} down",
        "predicted": in_words(summary["seconds_predicted"], profile),
    }
    if "seconds_total" in summary:
        facts["measured"] = f"{summary['seconds_total']:.2f} s (local), error {summary['max_abs_error']}"
        ratio, off = summary["server_ratio_median"], summary["server_off_median"]
        facts["server"] = f"measured / predicted {ratio:.3f}, off by {100 * off:.1f} % (medians of the layers)"
    return facts


def savings(summary: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    """Share of the other plan's seconds that a plan saves: predicted over each link, and measured."""
    parts = {
        f"predicted_{link}": (s, other["seconds_predicted"][link]) for link, s in summary["seconds_predicted"].items()
    }
    if "seconds_total" in summary:
        parts["measured"] = summary["seconds_total"], other["seconds_total"]
    return {name: 1 - mine / theirs for name, (mine, theirs) in parts.items()}


def _network_measured(each: Found) -> dict[str, Any]:
    """Measured totals of a network, and how far the prediction of the server's part was off, layer by layer."""
    ratios = [layer["seconds"]["server"] / layer["seconds_predicted"]["server"] for layer in each.values()]
    return {
        "seconds_total": sum(layer["seconds_total"] for layer in each.values()),
        "bytes_up": sum(layer["bytes_up"] for layer in each.values()),
        "bytes_down": sum(layer["bytes_down"] for layer in each.values()),
        "max_abs_error": max(layer["max_abs_error"] for layer in each.values()),
        "server_ratio_median": statistics.median(ratios),
        "server_off_median": statistics.median(abs(ratio - 1) for ratio in ratios),
    }


def run_suite(
    goal: Goal, contest: Contest, block_sizes: tuple[int, ...], progress: Callable[[], object]
) -> list[dict[str, Any]]:
    """Encodings side by side on :data:`SHAPES`, each at every block size, its best plan; runs take turns."""
    rows: list[dict[str, Any]] = []
    for title, shape in SHAPES.items():
        layers = {
            name: plan_named(encoding, shape, b, goal).layer for name, encoding, b in contestants(shape, block_sizes)
        }
        results = _run(layers, goal.profile, contest, progress)
        baseline = next(iter(results.values())).seconds
        rows += [
            {"layer": title, "name": name, **described(layer, goal.profile), **measured(results[name])}
            | {"speedup": baseline / results[name].seconds}
            for name, layer in layers.items()
        ]
    return rows


def suite_runs(block_sizes: Sequence[int], repetitions: int) -> int:
    """Runs of :func:`run_suite`."""
    contests = sum(len(contestants(shape, tuple(block_sizes))) for shape in SHAPES.values())
    return contests * (repetitions + int(repetitions > 1))


def suite_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Rows of :func:`run_suite` in words."""
    return [
        {
            "layer": row["layer"],
            "encoding": row["name"],
            "HE-Rot": f"{row['rotations']}",
            "HE-Pmult": f"{row['pmults']}",
            "up, down": f"{row['ciphertexts_up']}, {row['ciphertexts_down']}",
            "MB": f"{(row['bytes_up'] + row['bytes_down']) / 1e6:.2f}",
            "server ms": f"{1e3 * row['seconds']['server']:.1f}",
            "predicted": f"{1e3 * row['seconds_predicted']['server']:.1f}",
            "all ms": f"{1e3 * row['seconds_total']:.1f}",
            "speed-up": f"{row['speedup']:.2f}",
            "error": f"{row['max_abs_error']}",
        }
        for row in rows
    ]


def suite_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table for a document."""
    table = suite_table(rows)
    lines = [list(table[0]), ["---"] * len(table[0]), *(list(row.values()) for row in table)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def contestants(shape: LinearShape, block_sizes: tuple[int, ...]) -> list[tuple[str, str, int]]:
    """(label, encoding, block size): the other papers' encodings for b = 1, then CirEncode."""
    dense = "bolt" if shape.kernel == 1 else "neujeans"
    others = [("Bolt, NeuJeans (b = 1)", dense, 1), ("Cheetah (b = 1)", "cheetah", 1)]
    return others + [(f"PrivCirNet b = {b}", "cirencode", b) for b in block_sizes if b > 1]


def _run(
    layers: Mapping[str, Layer], profile: Profile, contest: Contest, progress: Callable[[], object]
) -> dict[str, LayerBenchmark]:
    bits = profile.coefficient_bits or params.DEFAULT_COEFFICIENT_BITS
    return bench_layers(layers, contest.engine, contest.plain_bits, bits, contest.repetitions, progress)
