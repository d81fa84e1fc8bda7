"""Turn a quantized network into a program folder for encrypted inference. `privcirnet export --help`."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from privcirnet.artifact import PLAINTEXTS, folder_bytes, write_json, write_leveled, write_program
from privcirnet.cli.console import counting, in_words_revealed, progress_bar, show
from privcirnet.cli.settings import script
from privcirnet.config import ExportConfig
from privcirnet.config.encryption import MOST_GUARD_BITS
from privcirnet.data import load_for
from privcirnet.data.dataset import ImageData
from privcirnet.he.planning.noise_budget import budget
from privcirnet.he.planning.profile import Profile
from privcirnet.he.planning.stacks import weight_bytes
from privcirnet.he.program import bounds, truncation
from privcirnet.he.program.program import Program, layers_of, squares_of
from privcirnet.he.program.signature import PrivateKey, make_keys, read_private
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.export import CHECKED_IMAGES, exceeding, logits_of, lower_for, quantized
from privcirnet.runs.leveled_export import leveled_facts, leveled_program
from privcirnet.runs.rehearsal import rehearsed
from privcirnet.train import stages


@script(ExportConfig)
def main(config: ExportConfig) -> None:
    """Write a program's folder, interactive or leveled."""
    started = time.perf_counter()
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    leveled = _ckks if config.leveled.scheme == "ckks" else _leveled
    (leveled if config.mode == "leveled" else _interactive)(config, data, started)


def _interactive(config: ExportConfig, data: ImageData, started: float) -> None:
    """Lower, prove or measure the bounds, choose the parameters, write."""
    out, network = Path(config.out), quantized(stages.load_network(config.init, data))
    lowered, profile = lower_for(config.he, network, data, progress_bar)
    program, intervals = lowered.program, lowered.fitted.intervals
    hidden = budget(layers_of(program.nodes), program.parameters, squares_of(program.nodes))
    rehearsal = None
    if config.rehearsed_images:
        some = data.held_out(config.rehearsed_images)[0]
        logits = logits_of(network, data.real(some))
        rehearsal = rehearsed(program, some.numpy().astype(np.int64), progress_bar, quantized=logits)
    _write(config, CompiledProgram(program, {}, profile, rehearsal or {}), data.classes, profile)
    summary = {
        "stage": "export",
        "program": str(out / "program"),
        "plain_modulus": program.parameters.plain_modulus,
        "plain_modulus_bits": program.parameters.plain_bits,
        "ring_degree": program.parameters.ring_degree,
        "log_q": program.parameters.log_q,
        "security_bits": SECURITY_BITS,
        "flooding_bits": hidden.flooding,
        "flooding_distance_bits": hidden.distance,
        "max_value_bits": max(bounds.value_bits(interval) for interval in intervals.values()),
        "bounds": program.bounds,
        "bounds_exceeded": exceeding(program, network, data.real(data.held_out(CHECKED_IMAGES)[0])),
        "bounds_bits": {name: bounds.value_bits(interval) for name, interval in intervals.items()},
        "guard_bits": lowered.guard_bits,
        "rehearsal": rehearsal,
        "revealed": program.revealed,
        "answer": program.answer,
        "output_bits": program.output_bits,
        "choice": lowered.choice.to_dict(),
        "truncation": truncation.truncation_facts(program, intervals, lowered.fitted.sizes),
        **_plaintext_bytes(program),
        "stacks": {node.name: stack.images for node, _, stack in program.stacks},
        "bytes_stacks": weight_bytes(program),
        "files": folder_bytes(out / "program"),
        "seconds": time.perf_counter() - started,
        "config": asdict(config),
    }
    write_json(out / "summary.json", summary)
    _show_interactive(summary, program)


def _show_interactive(summary: Mapping[str, Any], program: Program) -> None:
    show(
        f"export: {len(program.nodes)} nodes, {len(program.linear_nodes)} of them with weights",
        {
            "parameters": f"n = {program.parameters.ring_degree}, log q = {program.parameters.log_q}, "
            f"t of {program.parameters.plain_bits} bits, 128-bit security",
            "choice": summary["choice"]["reason"],
            "largest value": f"{summary['max_value_bits']} bits, {_in_words_bounds(summary)}",
            "flooding": f"{summary['flooding_bits']} bits over the noise, an image's noise hidden to "
            f"2^-{summary['flooding_distance_bits']:.1f}",
            "guard bits": _in_words_rehearsal(summary),
            "truncation": _in_words(summary["truncation"], program.bounds),
            "answer": f"{program.answer}, absolute values under 2^{program.output_bits}; a client refuses others",
            **in_words_revealed(program.revealed),
            "plaintexts": f"{summary['files'][PLAINTEXTS]:,} bytes (dense: {summary['bytes_plaintexts_dense']:,})",
            **_in_words_stacks(summary["stacks"], summary["bytes_stacks"]),
            "saved": summary["program"],
        },
    )


def _in_words_stacks(images: Mapping[str, int], size: int) -> dict[str, str]:
    if not images:
        return {}
    most = max(images.values())
    return {
        "together": f"{len(images)} layers prepare up to {most} images at once, with {size / 1e9:.2f} GB of weights"
    }


def _leveled(config: ExportConfig, data: ImageData, started: float) -> None:
    """Round the weights, choose plan and parameters, write."""
    out, network = Path(config.out), stages.load_network(config.init, data)
    program = leveled_program(config.leveled, network, data, config.he.engine)
    about = {"data": config.data.name, "classes": list(data.classes), "source": config.init}
    write_leveled(out / "program", program, about, _signing_key(config.signing_key))
    facts = leveled_facts(program)
    files = folder_bytes(out / "program")
    seconds = {"seconds": time.perf_counter() - started, "config": asdict(config)}
    summary = {"stage": "export", "program": str(out / "program"), **facts, "files": files, **seconds}
    write_json(out / "summary.json", summary)
    operations = ", ".join(f"{count} {name}" for name, count in facts["operations"].items())
    show(
        f"export: leveled, {len(program.chain.layers)} layers, plan {program.planner}",
        {
            "parameters": f"n = {facts['ring_degree']}, log q = {facts['log_q']}, {facts['plain_moduli']} plain moduli "
            f"of {facts['plain_modulus_bits']} bits, 128-bit security",
            "results": f"{facts['max_value_bits']} bits, proved",
            "depth": f"{facts['depth_products']} products with weights, {facts['depth_squares']} squares",
            "operations": f"{operations}, for each plain modulus",
            "flooding": f"{facts['flooding_bits']} bits over the noise, an image's noise hidden to "
            f"2^-{facts['flooding_distance_bits']:.1f}",
            "saved": out / "program",
        },
    )


def _ckks(config: ExportConfig, data: ImageData, started: float) -> None:
    """Fold and scale the weights, let the simulator run the circuit, write."""
    from privcirnet.artifact.ckks import write_ckks  # these load the kernels
    from privcirnet.runs.ckks_export import ckks_facts, ckks_program

    out, network = Path(config.out), stages.load_network(config.init, data)
    program = ckks_program(config.leveled, network, data)
    with progress_bar("Simulating the circuit", 0):
        facts = ckks_facts(program, program.rehearsed(0))
    about = {"data": config.data.name, "classes": list(data.classes), "source": config.init}
    write_ckks(out / "program", program, about, _signing_key(config.signing_key))
    files, seconds = folder_bytes(out / "program"), {"seconds": time.perf_counter() - started, "config": asdict(config)}
    write_json(
        out / "summary.json", {"stage": "export", "program": str(out / "program"), **facts, "files": files, **seconds}
    )
    took, operations = facts["processor_seconds_predicted"], facts["operations"]
    show(
        f"export: CKKS, {len(program.sums.nodes)} squares, {facts['bootstrappings']} bootstrappings",
        {
            "parameters": f"n = {facts['ring_degree']}, log q = {facts['log_q']}, {facts['levels']} levels, "
            "128-bit security",
            "precision": f"logits right to 2^-{facts['precision_bits']:.1f} of their bound, by the simulator; "
            f"a bootstrapping fails with probability 2^-{facts['failure_bits']}",
            "bounds": f"twice the largest values of {config.leveled.examples} training images, not proved",
            "operations": ", ".join(f"{count} {name}" for name, count in operations.items()),
            "memory": f"{facts['bytes_keys_server'] / 1e9:.1f} GB of keys, {facts['bytes_weights'] / 1e9:.1f} GB of "
            "encoded weights",
            "predicted": f"{took['layers'] + took['bootstrapping']:.0f} processor seconds an image, "
            f"{took['bootstrapping']:.0f} of them bootstrapping",
            "saved": out / "program",
        },
    )


def _plaintext_bytes(program: Program) -> dict[str, int]:
    """As they are stored, and as they were if every weight were of its own."""
    compact = [(8 * math.prod(layer.spectrum_shape), layer.block_size) for _, layer in program.linear_nodes]
    dense = sum(size * b for size, b in compact)
    return {"bytes_plaintexts": sum(size for size, _ in compact), "bytes_plaintexts_dense": dense}


def _write(config: ExportConfig, made: CompiledProgram, classes: Sequence[str], profile: Profile) -> None:
    """Write the program's folder, signed or not, and the profile that plans were chosen by."""
    about = {"data": config.data.name, "classes": list(classes), "source": config.init, **made.measured()}
    full, key = config.plaintexts == "full", _signing_key(config.signing_key)
    write_program(Path(config.out) / "program", made.integer, about, full=full, key=key)
    write_json(Path(config.out) / "profile.json", profile.to_dict())


def _signing_key(name: str) -> PrivateKey | None:
    """The key that a setting names, made where there is none."""
    if not name:
        return None
    if not (path := Path(name)).exists():
        public = make_keys(path)
        show("export: a new signing key", {"secret": path, "public": f"{public}, for model_key= of server and clients"})
    return read_private(path)


def _in_words_bounds(summary: Mapping[str, Any]) -> str:
    seen = summary["bounds_exceeded"]
    return "proved" if seen is None else f"measured; {seen['beyond']} of {seen['images']} held-out images go beyond"


def _in_words_rehearsal(summary: Mapping[str, Any]) -> str:
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
