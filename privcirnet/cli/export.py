"""Turn a trained network into a program folder for encrypted inference. `privcirnet export --help`."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from privcirnet.artifact import PLAINTEXTS, folder_bytes, write_json
from privcirnet.artifact.run import check_replaced
from privcirnet.artifact.summaries import ExportSummary, Truncation, plain
from privcirnet.cli.console import counting, progress_bar, show
from privcirnet.cli.settings import script
from privcirnet.config import ExportConfig
from privcirnet.data import load_for
from privcirnet.he.program.signature import PrivateKey, make_keys, read_private
from privcirnet.runs.export import export_program
from privcirnet.runs.rehearsal import in_words, spoiled
from privcirnet.train import stages


@script(ExportConfig)
def main(config: ExportConfig) -> None:
    """Make a program, write its folder, and show its cost."""
    check_replaced(asdict(config))
    started, out = time.perf_counter(), Path(config.out)
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    exported = export_program(config, stages.load_network(config.init, data), data, progress_bar)
    about = {"data": config.data.name, "classes": list(data.classes), "source": config.init}
    exported.write(out / "program", about, _signing_key(config.signing_key))
    if exported.profile:
        write_json(out / "profile.json", exported.profile.to_dict())
    figures = replace(exported.facts, files=folder_bytes(out / "program"), seconds=time.perf_counter() - started)
    summary = {"stage": "export", "program": str(out / "program"), **plain(figures), "config": asdict(config)}
    write_json(out / "summary.json", summary)
    title, facts = (_ckks if figures.ckks else _interactive)(figures, config)
    show(f"export: {title}", {**facts, "saved": out / "program"})


def _interactive(summary: ExportSummary, config: ExportConfig) -> tuple[str, dict[str, object]]:
    files = f"{summary.files[PLAINTEXTS]:,} bytes (dense: {summary.bytes_plaintexts_dense:,})"
    return f"{summary.nodes} nodes, {summary.linear} of them with weights", {
        "parameters": f"n = {summary.ring_degree}, log q = {summary.log_q}, "
        f"t of {summary.plain_modulus_bits} bits, 128-bit security",
        "choice": summary.choice and summary.choice.reason,
        "largest value": f"{summary.max_value_bits} bits, {_in_words_bounds(summary, config.he.bounds)}",
        "flooding": _in_words_flooding(summary),
        "guard bits": _in_words_guard_bits(summary),
        "truncation": _in_words(summary.truncation or Truncation(), summary.bounds),
        "answer": f"{summary.answer}, absolute values under 2^{summary.output_bits}; a client refuses others",
        "plaintexts": files,
        **_in_words_stacks(summary.stacks or {}, summary.bytes_stacks or 0),
    }


def _ckks(summary: ExportSummary, config: ExportConfig) -> tuple[str, dict[str, object]]:
    took, keys, weights = summary.processor_seconds_predicted or {}, summary.bytes_keys_server, summary.bytes_weights
    return f"CKKS, {summary.depth_squares} squares, {summary.bootstrappings} bootstrappings", {
        "parameters": f"n = {summary.ring_degree}, log q = {summary.log_q}, {summary.levels} levels, 128-bit security",
        "precision": f"logits right to 2^-{summary.precision_bits:.1f} of their bound, by the simulator; "
        f"a bootstrapping fails with probability 2^-{summary.failure_bits}",
        "bounds": f"twice the largest values of {config.he.bound_images} training images, not proved",
        "operations": _in_words_counts(summary),
        "memory": f"{(keys or 0) / 1e9:.1f} GB of keys, {(weights or 0) / 1e9:.1f} GB of encoded weights",
        "predicted": f"{sum(took.values()):.0f} processor seconds an image, "
        f"{took.get('bootstrapping', 0.0):.0f} of them bootstrapping",
    }


def _in_words_counts(summary: ExportSummary) -> str:
    return ", ".join(f"{count} {name}" for name, count in (summary.operations or {}).items())


def _in_words_flooding(summary: ExportSummary) -> str:
    hidden = f"an image's noise hidden to 2^-{summary.flooding_distance_bits:.1f}"
    return f"{summary.flooding_bits} bits over the noise, {hidden}"


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


def _in_words_bounds(summary: ExportSummary, requested: str) -> str:
    check = summary.bounds_exceeded
    if check is None:
        return "proved"
    exact = summary.truncation and summary.truncation.exact
    why = "exact steps pay for each bit" if exact else "no parameters carry what is proved"
    because = f", as {why}" if requested == "auto" else ""
    return f"measured{because}; {check.beyond} of {check.images} held-out images go beyond"


def _in_words_guard_bits(export: ExportSummary) -> str:
    bits, tried = export.guard_bits or 0, export.rehearsal
    if tried is None:
        return f"{bits}"
    if export.truncation and export.truncation.exact:
        return f"none needed: {in_words(asdict(tried))}"
    refused = f", {tried.refused} more are refused" if tried.refused else ""
    remedy = "; no more fit, but he.truncation=exact changes none" if spoiled(asdict(tried)) else ""
    return (
        f"{bits}; random truncations change the class of {tried.changed} of {tried.images} held-out images"
        f"{refused}{remedy}"
    )


def _in_words(truncation: Truncation, bound: str | None) -> str:
    failure, unnoticed = truncation.failure_per_image_log2, truncation.unnoticed_per_image_log2
    qualifier = "at most" if bound == "proved" else "about"
    if failure is None:
        return "exact, never wrong"
    return f"random, an image is wrong with probability {qualifier} 2^{failure:.1f}, unnoticed about 2^{unnoticed:.1f}"
