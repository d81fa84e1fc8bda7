"""Turn a trained network into a program folder for encrypted inference. `privcirnet export --help`."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from privcirnet.artifact.program import PLAINTEXTS, folder_bytes
from privcirnet.artifact.records import inputs_to_dict, write_json
from privcirnet.artifact.run import exclusive
from privcirnet.artifact.summaries import CkksExport, InteractiveExport, plain
from privcirnet.cli.console import counting, progress_bar, show
from privcirnet.cli.settings import script
from privcirnet.config import ExportConfig
from privcirnet.data import load_for
from privcirnet.he.program.signature import PrivateKey, make_keys, read_private
from privcirnet.runs.export import export_program
from privcirnet.runs.pictures import inputs_of
from privcirnet.train import stages

Shown = tuple[str, dict[str, object]]
"""Title and facts."""


@script(ExportConfig)
def main(config: ExportConfig) -> None:
    """Make a program, write its folder, and show its cost."""
    with exclusive(asdict(config)):
        started, out = time.perf_counter(), Path(config.out)
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
        exported = export_program(config, stages.load_network(config.init, data), data, progress_bar)
        about = {"inputs": inputs_to_dict(inputs_of(data, config.data.name)), "source": config.init}
        exported.write(out / "program", about, _signing_key(config.signing_key))
        if exported.profile:
            write_json(out / "profile.json", exported.profile.to_dict())
        figures, files = replace(exported.facts, seconds=time.perf_counter() - started), folder_bytes(out / "program")
        summary = {"stage": "export", "program": str(out / "program"), **plain(figures), "files": files}
        write_json(out / "summary.json", summary | {"config": asdict(config)})
        title, facts = _ckks(figures, config) if figures.mode == "ckks" else _interactive(figures, config, files)
        show(f"export: {title}", {**facts, "saved": out / "program"})


def _interactive(summary: InteractiveExport, config: ExportConfig, files: Mapping[str, int]) -> Shown:
    return f"{summary.nodes} nodes, {summary.linear} of them with weights", {
        "parameters": f"n = {summary.ring_degree}, log q = {summary.log_q}, "
        f"t of {summary.plain_modulus_bits} bits, 128-bit security",
        "choice": summary.choice.reason,
        "largest value": f"{summary.max_value_bits} bits, {_in_words_bounds(summary, config.he.bounds)}",
        "flooding": f"{summary.flooding_bits} bits over the noise, an image's noise hidden to "
        f"2^-{summary.flooding_distance_bits:.1f}",
        "guard bits": _in_words_guard_bits(summary),
        "truncation": _in_words_truncation(summary),
        "answer": f"{summary.answer}, absolute values under 2^{summary.output_bits}; a client refuses others",
        "plaintexts": f"{files[PLAINTEXTS]:,} bytes (dense: {summary.bytes_plaintexts_dense:,})",
        **_in_words_stacks(summary.stacks, summary.bytes_stacks),
    }


def _ckks(summary: CkksExport, config: ExportConfig) -> Shown:
    circuit, took = summary.circuit, summary.circuit.processor_seconds_predicted
    return f"CKKS, {summary.depth_squares} squares, {circuit.bootstrappings} bootstrappings", {
        "parameters": f"n = {summary.ring_degree}, log q = {summary.log_q}, {circuit.levels} levels, 128-bit security",
        "precision": f"logits right to 2^-{circuit.precision_bits:.1f} of their bound, by the simulator; "
        f"a bootstrapping fails with probability 2^-{summary.failure_bits}",
        "bounds": f"twice the largest values of {config.he.bound_images} training images, not proved",
        "operations": ", ".join(f"{count} {name}" for name, count in circuit.operations.items()),
        "memory": f"{circuit.bytes_keys_server / 1e9:.1f} GB of keys, {circuit.bytes_weights / 1e9:.1f} GB of encoded "
        "weights",
        "predicted": f"{sum(took.values()):.0f} processor seconds an image, {took['bootstrapping']:.0f} of them "
        "bootstrapping",
    }


def _in_words_stacks(images: Mapping[str, int], size: int) -> dict[str, str]:
    if not images:
        return {}
    largest = max(images.values())
    return {
        "together": f"{len(images)} layers prepare up to {largest} images at once, with {size / 1e9:.2f} GB of weights"
    }


def _signing_key(name: str) -> PrivateKey | None:
    """Return the key that a setting names, made where there is none."""
    if not name:
        return None
    if not (path := Path(name)).exists():
        public = make_keys(path)
        show("export: a new signing key", {"secret": path, "public": f"{public}, for model_key= of server and clients"})
    return read_private(path)


def _in_words_bounds(summary: InteractiveExport, requested: str) -> str:
    check = summary.bounds_exceeded
    if check is None:
        return "proved"
    why = "no parameters carry what is proved" if summary.truncation else "exact steps pay for each bit"
    because = f", as {why}" if requested == "auto" else ""
    return f"measured{because}; {check.beyond} of {check.images} held-out images go beyond"


def _in_words_guard_bits(export: InteractiveExport) -> str:
    bits, tried = export.guard_bits, export.rehearsal
    if tried is None:
        return f"{bits}"
    if export.truncation is None:
        return f"none needed: {tried}"
    refused = f", {tried.refused} more are refused" if tried.refused else ""
    remedy = "; no more fit, but he.truncation=exact changes none" if tried.spoiled else ""
    return (
        f"{bits}; random truncations change the class of {tried.changed} of {tried.images} held-out images"
        f"{refused}{remedy}"
    )


def _in_words_truncation(export: InteractiveExport) -> str:
    if (chance := export.truncation) is None:
        return "exact, never wrong"
    failure, unnoticed = chance.failure_per_image_log2, chance.unnoticed_per_image_log2
    qualifier = "at most" if export.bounds == "proved" else "about"
    return f"random, an image is wrong with probability {qualifier} 2^{failure:.1f}, unnoticed about 2^{unnoticed:.1f}"
