"""Turn a trained network into a program folder for encrypted inference. `privcirnet export --help`."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcirnet.artifact import PLAINTEXTS, folder_bytes, write_json
from privcirnet.cli.console import counting, in_words_revealed, progress_bar, show
from privcirnet.cli.settings import script
from privcirnet.config import ExportConfig
from privcirnet.config.encryption import MOST_GUARD_BITS
from privcirnet.data import load_for
from privcirnet.he.program.signature import PrivateKey, make_keys, read_private
from privcirnet.runs.exported import exported
from privcirnet.train import stages

Facts = Mapping[str, Any]


@script(ExportConfig)
def main(config: ExportConfig) -> None:
    """Make a program, interactive or leveled, write its folder, and say what it takes."""
    started, out = time.perf_counter(), Path(config.out)
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    made = exported(config, stages.load_network(config.init, data), data, progress_bar)
    about = {"data": config.data.name, "classes": list(data.classes), "source": config.init}
    made.write(out / "program", about, _signing_key(config.signing_key))
    if made.profile:
        write_json(out / "profile.json", made.profile.to_dict())
    took = {"files": folder_bytes(out / "program"), "seconds": time.perf_counter() - started, "config": asdict(config)}
    summary = {"stage": "export", "program": str(out / "program"), **made.facts, **took}
    write_json(out / "summary.json", summary)
    in_words = _interactive if config.mode != "leveled" else _ckks if config.leveled.scheme == "ckks" else _leveled
    title, facts = in_words(summary)
    show(f"export: {title}", {**facts, "saved": out / "program"})


def _interactive(summary: Facts) -> tuple[str, dict[str, object]]:
    files = f"{summary['files'][PLAINTEXTS]:,} bytes (dense: {summary['bytes_plaintexts_dense']:,})"
    return f"{summary['nodes']} nodes, {summary['linear']} of them with weights", {
        "parameters": f"n = {summary['ring_degree']}, log q = {summary['log_q']}, "
        f"t of {summary['plain_modulus_bits']} bits, 128-bit security",
        "choice": summary["choice"]["reason"],
        "largest value": f"{summary['max_value_bits']} bits, {_in_words_bounds(summary)}",
        "flooding": _in_words_flooding(summary),
        "guard bits": _in_words_rehearsal(summary),
        "truncation": _in_words(summary["truncation"], summary["bounds"]),
        "answer": f"{summary['answer']}, absolute values under 2^{summary['output_bits']}; a client refuses others",
        **in_words_revealed(summary["revealed"]),
        "plaintexts": files,
        **_in_words_stacks(summary["stacks"], summary["bytes_stacks"]),
    }


def _leveled(summary: Facts) -> tuple[str, dict[str, object]]:
    return f"leveled, {len(summary['block_sizes'])} layers, plan {summary['planner']}", {
        "parameters": f"n = {summary['ring_degree']}, log q = {summary['log_q']}, {summary['plain_moduli']} plain "
        f"moduli of {summary['plain_modulus_bits']} bits, 128-bit security",
        "results": f"{summary['max_value_bits']} bits, proved",
        "depth": f"{summary['depth_products']} products with weights, {summary['depth_squares']} squares",
        "operations": f"{_in_words_counts(summary)}, for each plain modulus",
        "flooding": _in_words_flooding(summary),
    }


def _ckks(summary: Facts) -> tuple[str, dict[str, object]]:
    took, examples = summary["processor_seconds_predicted"], summary["config"]["leveled"]["examples"]
    return f"CKKS, {summary['depth_squares']} squares, {summary['bootstrappings']} bootstrappings", {
        "parameters": f"n = {summary['ring_degree']}, log q = {summary['log_q']}, {summary['levels']} levels, "
        "128-bit security",
        "precision": f"logits right to 2^-{summary['precision_bits']:.1f} of their bound, by the simulator; "
        f"a bootstrapping fails with probability 2^-{summary['failure_bits']}",
        "bounds": f"twice the largest values of {examples} training images, not proved",
        "operations": _in_words_counts(summary),
        "memory": f"{summary['bytes_keys_server'] / 1e9:.1f} GB of keys, {summary['bytes_weights'] / 1e9:.1f} GB of "
        "encoded weights",
        "predicted": f"{took['layers'] + took['bootstrapping']:.0f} processor seconds an image, "
        f"{took['bootstrapping']:.0f} of them bootstrapping",
    }


def _in_words_counts(summary: Facts) -> str:
    return ", ".join(f"{count} {name}" for name, count in summary["operations"].items())


def _in_words_flooding(summary: Facts) -> str:
    hidden = f"an image's noise hidden to 2^-{summary['flooding_distance_bits']:.1f}"
    return f"{summary['flooding_bits']} bits over the noise, {hidden}"


def _in_words_stacks(images: Mapping[str, int], size: int) -> dict[str, str]:
    if not images:
        return {}
    most = max(images.values())
    return {
        "together": f"{len(images)} layers prepare up to {most} images at once, with {size / 1e9:.2f} GB of weights"
    }


def _signing_key(name: str) -> PrivateKey | None:
    """The key that a setting names, made where there is none."""
    if not name:
        return None
    if not (path := Path(name)).exists():
        public = make_keys(path)
        show("export: a new signing key", {"secret": path, "public": f"{public}, for model_key= of server and clients"})
    return read_private(path)


def _in_words_bounds(summary: Facts) -> str:
    seen = summary["bounds_exceeded"]
    return "proved" if seen is None else f"measured; {seen['beyond']} of {seen['images']} held-out images go beyond"


def _in_words_rehearsal(summary: Facts) -> str:
    bits, found = summary["guard_bits"], summary["rehearsal"]
    if found is None:
        return f"{bits}"
    refused = f", {found['refused']} more are refused" if found["refused"] else ""
    more = min(bits + 3, MOST_GUARD_BITS)
    remedy = f"; he.guard_bits={more} he.least_guard_bits={more} makes that rarer"
    spoiled = found["changed"] + found["refused"] > 0
    return (
        f"{bits}; random truncations change the class of {found['changed']} of {found['images']} held-out images"
        f"{refused}{remedy if spoiled and more > bits else ''}"
    )


def _in_words(facts: dict[str, object], bound: str) -> str:
    failure, unnoticed = facts["failure_per_image_log2"], facts["unnoticed_per_image_log2"]
    hidden, most = f"{facts['masks']} masks, hiding {facts['hiding']}", "at most" if bound == "proved" else "about"
    if failure is None:
        return f"{hidden}, never wrong"
    return f"{hidden}, an image is wrong with probability {most} 2^{failure:.1f}, unnoticed about 2^{unnoticed:.1f}"
