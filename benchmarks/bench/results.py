"""What bench.py reports: counts, predictions and measurements, as plain data and in words."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.bench.layers import LayerBenchmark, Timing
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.cost import linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import Profile, column_unit, in_words
from privcirnet.runs.evaluation import over_links

LayerResults = dict[str, dict[str, Any]]
"""Counts, predictions and measurements of each layer of a network, by name."""


def counts(layer: Layer) -> dict[str, int]:
    """Return the counts of a layer."""
    return {
        "rotations": layer.rotations,
        "pmults": layer.pmults,
        "ciphertexts_up": layer.ciphertexts_in,
        "ciphertexts_down": layer.ciphertexts_out,
    }


def totals(layers: Mapping[str, Layer]) -> dict[str, int]:
    """Return the counts of a whole network."""
    each = [counts(layer) for layer in layers.values()]
    return {name: sum(found[name] for found in each) for name in each[0]}


def predictions(layers: Mapping[str, Layer], profile: Profile) -> dict[str, float]:
    """Return the predicted seconds of a whole network over each link."""
    return {
        name: sum(linear_cost(layer, profile, link).total for layer in layers.values()) for name, link in LINKS.items()
    }


def predicted_in_words(seconds: Mapping[str, float], profile: Profile) -> str:
    """Return predictions in words.

    Args:
        profile: what they were predicted with; a counted one knows no links.
    """
    if profile.counted:
        return f"{in_words(seconds['local'], counted=True)} (HE-Rot + 0.135 HE-Pmult)"
    return ", ".join(f"{link} {s:.2f} s" for link, s in seconds.items())


def described(layer: Layer, profile: Profile) -> dict[str, Any]:
    """Return what is known of a layer before it runs; ``profile``: what its seconds are predicted with."""
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
    """Return what runs of a layer found."""
    return {
        "rotations": result.rotations,
        "pmults": result.pmults,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "seconds": result.median._asdict(),
        "seconds_total": result.seconds,
        "max_abs_error": result.max_abs_error,
    }


def layer_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return a layer's summary in words.

    Args:
        summary: from :func:`described` and :func:`measured`, with "compared" if two were run.
    """
    facts = {
        "operations": f"{summary['rotations']} HE-Rot, {summary['pmults']} HE-Pmult",
        "ciphertexts": f"{summary['ciphertexts_up']} up, {summary['ciphertexts_down']} down",
    }
    if "seconds" in summary:
        error = summary["max_abs_error"]
        seconds = ", ".join(f"{part} {1e3 * s:.1f} ms" for part, s in summary["seconds"].items())
        facts |= {"bytes": f"{summary['bytes_up']:,} up, {summary['bytes_down']:,} down", "seconds": seconds}
        size, total = summary["bytes_up"] + summary["bytes_down"], summary["seconds_total"]
        each = {"local": total} | {name: over.seconds for name, over in over_links(total, size, 1).items()}
        links = ", ".join(f"{name} {s:.3f} s" for name, s in each.items())
        facts |= {"links": links, "error": f"{error} (exact)" if error == 0 else f"{error}"}
    if "compared" in summary:
        other = 1e3 * summary["compared"]["seconds"]["server"]
        facts |= {"speed-up": f"{summary['speedup']:.2f} times; the other's server took {other:.1f} ms"}
    return facts


def network_summary(layers: Mapping[str, Layer], profile: Profile, each: LayerResults | None) -> dict[str, Any]:
    """Return the counts and predictions of a network, and what its runs found.

    Args:
        profile: what seconds are predicted with.
        each: results of the layers; None if they did not run.
    """
    planned = totals(layers) | {"seconds_predicted": predictions(layers, profile)}
    listed = each or {name: described(layer, profile) for name, layer in layers.items()}
    found = _network_measured(each) if each else {}
    return planned | found | {"layers": [{"name": name, **facts} for name, facts in listed.items()]}


def network_facts(summary: Mapping[str, Any], profile: Profile) -> dict[str, str]:
    """Return a network's summary in words; ``profile``: what its seconds were predicted with."""
    facts = {
        "operations": f"{summary['rotations']} HE-Rot, {summary['pmults']} HE-Pmult",
        "ciphertexts": f"{summary['ciphertexts_up']} up, {summary['ciphertexts_down']} down",
        "predicted": predicted_in_words(summary["seconds_predicted"], profile),
    }
    if "seconds_total" in summary:
        facts["measured"] = (
            f"{summary['seconds_total']:.2f} s (local), {summary['seconds_server']:.2f} s of it the server's, "
            f"error {summary['max_abs_error']}"
        )
    if "seconds_total" in summary and not profile.counted:
        ratio, off = summary["server_ratio_median"], summary["server_off_median"]
        facts["server"] = f"measured / predicted {ratio:.3f}, off by {100 * off:.1f} % (medians of the layers)"
    return facts


def against(summary: Mapping[str, Any], title: str, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return another network's summary and what is saved of its seconds: predicted over each link, and measured.

    Returns:
        the other's summary under its title, "saved" as shares, and if both ran "speedup": the other's measured server
        time over this one's.
    """
    parts = {
        f"predicted_{link}": (s, other["seconds_predicted"][link]) for link, s in summary["seconds_predicted"].items()
    }
    found: dict[str, Any] = {title: dict(other)}
    if "seconds_total" in summary:
        parts["measured"] = summary["seconds_total"], other["seconds_total"]
        found["speedup"] = other["seconds_server"] / summary["seconds_server"]
    return found | {"saved": {name: 1 - mine / theirs for name, (mine, theirs) in parts.items()}}


def against_facts(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return what was saved, in words."""
    facts = {name: f"{100 * share:.1f} % saved" for name, share in summary["saved"].items()}
    return facts | ({"server": f"{summary['speedup']:.2f} times as fast"} if "speedup" in summary else {})


def _network_measured(each: LayerResults) -> dict[str, Any]:
    """Measured totals of a network, and how far the prediction of the server's part was off, layer by layer."""
    ratios = [layer["seconds"]["server"] / layer["seconds_predicted"]["server"] for layer in each.values()]
    return {
        "seconds_total": sum(layer["seconds_total"] for layer in each.values()),
        "seconds_server": sum(layer["seconds"]["server"] for layer in each.values()),
        "bytes_up": sum(layer["bytes_up"] for layer in each.values()),
        "bytes_down": sum(layer["bytes_down"] for layer in each.values()),
        "max_abs_error": max(layer["max_abs_error"] for layer in each.values()),
        "server_ratio_median": statistics.median(ratios),
        "server_off_median": statistics.median(abs(ratio - 1) for ratio in ratios),
    }


def suite_table(rows: Sequence[Mapping[str, Any]], profile: Profile) -> list[dict[str, str]]:
    """Return rows in words, a column for each heading; ``profile``: what they were predicted with."""
    unit = column_unit(profile.counted)
    return [
        {
            "layer": row["layer"],
            "encoding": row["name"],
            "HE-Rot": f"{row['rotations']}",
            "HE-Pmult": f"{row['pmults']}",
            "up, down": f"{row['ciphertexts_up']}, {row['ciphertexts_down']}",
            "MB": f"{(row['bytes_up'] + row['bytes_down']) / 1e6:.2f}",
            "server ms": f"{1e3 * row['seconds']['server']:.1f}",
            f"predicted {unit.name}": f"{unit.scale * row['seconds_predicted']['server']:.1f}",
            "all ms": f"{1e3 * row['seconds_total']:.1f}",
            "speed-up": f"{row['speedup']:.2f}",
            "error": f"{row['max_abs_error']}",
        }
        for row in rows
    ]


def markdown(table: Sequence[Mapping[str, str]]) -> str:
    """Return a table in Markdown; ``table``: rows, all with the same headings."""
    lines = [list(table[0]), ["---"] * len(table[0]), *(list(row.values()) for row in table)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
