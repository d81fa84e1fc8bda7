"""Classify held-out images encrypted and check every step of it. `privcirnet infer --help`."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from privcirnet.artifact import (
    CKKS,
    format_of,
    read_json,
    read_leveled,
    read_program,
    write_arrays,
    write_json,
)
from privcirnet.cli.console import counting, in_words_revealed, inference_bar, progress_bar, show, show_rows, show_text
from privcirnet.cli.settings import script
from privcirnet.config import InferConfig
from privcirnet.data import load_for
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.circuits.weight_cache import WeightCache
from privcirnet.he.planning.profile import LINKS
from privcirnet.he.program.signature import pinned
from privcirnet.he.protocol.noninteractive.session import LeveledClient
from privcirnet.he.protocol.offline.materials import Materials
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.system import threads
from privcirnet.runs.compiled import read_compiled
from privcirnet.runs.evaluation import evaluate, evaluate_apart
from privcirnet.runs.infer import infer
from privcirnet.runs.leveled import evaluate_leveled, evaluate_leveled_apart, infer_leveled
from privcirnet.runs.memory import check_memory
from privcirnet.runs.server_process import ServerTask, start_server
from privcirnet.service.access import ClientAccess
from privcirnet.service.address import parse_address
from privcirnet.service.client import ServiceClient
from privcirnet.train import stages
from privcirnet.train.accuracy import predict

_SHOWN, _REASONS = 10, 3
_TESTS = 12
"""Test images that the page offers."""


@script(InferConfig)
def main(config: InferConfig) -> None:
    """Compare float, integer and encrypted predictions of held-out images."""
    if config.ui:
        _page(config)
        return
    _check_encrypted_run_stays(config)
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    images, labels = data.held_out(config.images)
    if len(labels) < config.images:
        show_text(f"{len(labels)} images: the test set has no more")
    threads.use(config.threads)
    found = (_ask if config.server else _audit)(config, data, images, labels.numpy())
    stage = "client" if config.server else "infer"
    summary = {"stage": stage, "engine": config.engine, **found, "config": asdict(config)}
    out, pictures = Path(config.out), images.permute(0, 2, 3, 1).numpy() * (255 // data.levels)
    write_arrays(out / "images.npz", images=pictures[..., 0] if pictures.shape[-1] == 1 else pictures)
    write_json(out / "summary.json", summary)
    _show(config, summary, data)


def _check_encrypted_run_stays(config: InferConfig) -> None:
    """Raise if a rehearsal would replace the results of encrypted inference."""
    summary, remedy = Path(config.out) / "summary.json", "give another out=, or leave it out"
    if not config.rehearsal or not summary.is_file():
        return
    if read_json(summary, "a run's summary", remedy).get("engine") != config.engine:
        rule = "a rehearsal must not replace an encrypted run"
        raise RuleError(rule, got=f"engine={config.engine} out={config.out}", remedy=remedy)


def _audit(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> dict[str, Any]:
    """Run both parties here and check every step."""
    if config.mode == "leveled":
        ckks = format_of(Path(config.program)) == CKKS
        return (_audit_ckks if ckks else _audit_leveled)(config, data, images, labels)
    made = read_compiled(Path(config.program), pinned(config.model_key))
    check_memory(made.integer, config.weights_gb, config.engine)
    clear = _predicted(config, data, images)
    cache = WeightCache.of(config.weights_gb, config.weights_folder)
    run = evaluate if config.processes == 1 else evaluate_apart
    with inference_bar(len(labels)) as progress:
        integers = images.numpy().astype(np.int64)
        how = {"prepare": config.prepare, "pause_s": config.pause_s, "throttle": config.throttle}
        result = run(made.integer, made.spectra, integers, config.engine, progress, cache, **how)
    return {"processes": config.processes, **result.summary(clear, labels, made.profile, LINKS["local"])}


def _audit_leveled(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> dict[str, Any]:
    """Run both parties of a leveled program here and check every layer."""
    program = read_leveled(Path(config.program), pinned(config.model_key))
    clear = _predicted(config, data, images)
    run = evaluate_leveled if config.processes == 1 else evaluate_leveled_apart
    with inference_bar(len(labels)) as progress:
        integers, cache = images.numpy().astype(np.int64), WeightCache.of(config.weights_gb)
        found = run(program, integers, config.engine, progress, cache, throttle=config.throttle)
    return {"mode": config.mode, "processes": config.processes, **found.summary(clear, labels)}


def _audit_ckks(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> dict[str, Any]:
    """Run client and server of a CKKS program here and compare with the network in clear."""
    from privcirnet.artifact.ckks import read_ckks  # these load the kernels
    from privcirnet.runs.ckks import evaluate_ckks

    config.check_ckks()
    program = read_ckks(Path(config.program), pinned(config.model_key))
    clear, integers = _predicted(config, data, images), images.numpy().astype(np.int64)
    gigabytes = {"weights_gb": config.weights_gb, "keys_gb": config.keys_gb}
    found = evaluate_ckks(program, integers, config.engine, progress_bar, **gigabytes)
    return {"mode": config.mode, "scheme": "ckks", "processes": 1, **found.summary(clear, labels)}


def _ask(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> dict[str, Any]:
    """Run the client alone, without program folder and weights."""
    clear = _predicted(config, data, images) if config.reference else None
    if config.mode == "leveled":
        with _asked(config) as remote, inference_bar(len(labels)) as progress:
            found = infer_leveled(remote, images.numpy().astype(np.int64), progress, throttle=config.throttle)
        return {"mode": config.mode, "server": config.server, **found.summary(clear, labels)}
    keep = bool(config.prepared_folder)
    materials = Materials(Path(config.prepared_folder) if keep else None, note=show_text)
    with closing(materials), _asked(config, materials) as remote:
        with inference_bar(len(labels)) as progress:
            integers = images.numpy().astype(np.int64)
            how = config.prepare, keep, config.pause_s
            result = infer(remote, integers, progress, *how, throttle=config.throttle)
    return {"server": config.server, **result.summary(clear, labels)}


def _page(config: InferConfig) -> None:
    """Serve a page on loopback until it is interrupted; it is the client's."""
    from privcirnet.page.content import Content, TestImages
    from privcirnet.page.server import serve

    threads.use(config.threads)
    tests, classes, notes, levels = None, (), (), 0
    try:
        with counting("Decoding images") as progress:
            data = load_for(config.data, progress)
    except RuleError as error:
        notes = (f"No test images: {error}",)
    else:
        images, labels = data.held_out(_TESTS)
        tests, classes, levels = TestImages(images.numpy(), labels.tolist()), data.classes, data.levels
    place = f"server {config.server}" if config.server else "its server is another process of this machine"
    content = Content(config.data.name, place, not config.rehearsal, classes, tests, notes, levels)
    keep = bool(config.server and config.prepared_folder)
    with closing(Materials(Path(config.prepared_folder) if keep else None, note=show_text)) as materials:
        connect, announce = partial(_connected, config, materials), partial(_show_address, config, place)
        serve(connect, content, config.ui_port, announce, config.prepare)


def _asked(config: InferConfig, materials: Materials | None = None) -> ServiceClient:
    """A connection to the server of the settings."""
    access, key = ClientAccess.of(Path(config.tls) if config.tls else None), pinned(config.model_key)
    address = parse_address(config.server)
    party, named = LeveledClient if config.mode == "leveled" else Client, (config.timeout_s, access, config.served, key)
    return ServiceClient(address, config.engine, *named, materials=materials, party=party)


@contextmanager
def _connected(config: InferConfig, materials: Materials) -> Generator[ServiceClient]:
    """A connection to the server that was asked for, or to one of its own in another process.

    What is prepared with the former outlives a connection; the latter ends with it.
    """
    if config.server:
        with _asked(config, materials) as remote:
            yield remote
        return
    key, leveled = pinned(config.model_key), config.mode == "leveled"
    program, spectra = (
        (read_leveled(Path(config.program), key), {}) if leveled else read_program(Path(config.program), key)
    )
    cache = WeightCache.of(config.weights_gb, config.weights_folder)
    task = ServerTask(program, spectra, config.engine, cache.limit, cache.folder, threads.count(), audited=False)
    party = LeveledClient if leveled else Client
    with (
        start_server(task) as process,
        ServiceClient(process.address, config.engine, config.timeout_s, party=party) as remote,
    ):
        yield remote


def _show_address(config: InferConfig, place: str, address: str) -> None:
    hidden = ", NOTHING IS ENCRYPTED" if config.rehearsal else ""
    facts = {"open": address, "keep": "it to yourself: whoever has it can use the page; Ctrl-C ends it"}
    show(f"infer: a page for {config.data.name}, {place}{hidden}", facts)


def _predicted(config: InferConfig, data: ImageData, images: Tensor) -> np.ndarray:
    return predict(stages.load_network(config.reference, data), data, images).argmax(dim=1).numpy()


def _phases(summary: dict[str, Any]) -> dict[str, str]:
    """What was done before the images, and with them."""
    online, ahead, facts = summary["online"], summary["preparation"], dict[str, str]()
    if online:
        facts["prepared"] = (
            f"{summary['prepared']} of {summary['images']} images: {online['seconds_per_image']:.3f} s, "
            f"{online['bytes_per_image'] / 1e6:.2f} MB and {online['rounds']} rounds each; {_links(online)}"
        )
    if ahead:
        each = f"{ahead['seconds_per_image']:.3f} s and {ahead['bytes_per_image'] / 1e6:.2f} MB an image"
        facts["before"] = f"{each}, for its preparation; {_links(ahead)}"
    if summary["dropped"]:
        facts["unprepared"] = "; ".join(summary["dropped"][-_REASONS:])
    return facts


def _in_words_ckks(summary: dict[str, Any]) -> dict[str, str]:
    """How near results are to those in clear, and what a circuit takes."""
    beyond = f"; {summary['beyond']} are beyond the bounds, not to be used" if summary["beyond"] else ""
    keys, weights, peak = (summary[name] / 1e9 for name in ("bytes_keys_server", "bytes_weights", "peak_bytes"))
    return {
        "equal": f"logits right to {summary['logits_bits']:.1f} bits of the largest one, in the worst of all images; "
        f"{summary['argmax_equal']} with the same class as in clear{beyond}",
        "circuit": f"{summary['bootstrappings']} bootstrappings, {summary['levels']} levels, {summary['rotations']} "
        f"rotations; {summary['processor_seconds_predicted']:.0f} processor seconds predicted",
        "memory": f"{keys:.2f} GB of keys, {weights:.2f} GB of encoded weights, {peak:.2f} GB at most in all",
    }


def _links(phase: dict[str, Any]) -> str:
    links = ", ".join(f"{name} {over['seconds']:.2f} s" for name, over in phase["links"].items())
    return f"{links}, predicted" if links else "messages were held up as on a link"


def _strange(config: InferConfig, predictions: list[dict[str, Any]]) -> dict[str, str]:
    """A doubt about the reference: rounding to integers leaves most classes as they are."""
    both = [(p["float"], p["integer"]) for p in predictions if {"float", "integer"} <= p.keys()]
    agree = sum(float_ == integer for float_, integer in both)
    if 2 * agree >= len(both):
        return {}
    same = f"{agree} of {len(both)} images have the integer network's class in it"
    return {"reference": f"{same}: is {config.reference} what was exported?"}


def _show(config: InferConfig, summary: dict[str, Any], data: ImageData) -> None:
    """Show the result in a few lines; for a client alone also the first images' classes."""
    if config.server:
        names = ("label", "float", "encrypted")
        classes = [*data.classes, "refused"]  # which -1 stands for
        rows = [{n: classes[p[n]] for n in names if n in p} for p in summary["predictions"][:_SHOWN]]
        show_rows(f"infer: the first {len(rows)} images", rows)
    top1 = {n: summary.get(f"top1_{n}") for n in ("float", "integer", "clear", "encrypted")}
    if config.rehearsal:
        top1["rehearsed"] = top1.pop("encrypted")
    facts = {"top-1": ", ".join(f"{name} {value:.2f} %" for name, value in top1.items() if value is not None)}
    facts |= _strange(config, summary["predictions"])
    if "logits_bits" in summary:
        facts |= _in_words_ckks(summary)
    elif not config.server:
        equal = f"{summary['logits_equal']} images follow the integer network exactly, up to {summary['unit']}"
        facts["equal"] = f"{equal}; {summary['argmax_equal']} with the same class"
    if summary["refused"]:
        facts["refused"] = (
            f"{len(summary['refused'])} results wider than right ones, not to be used: {summary['refused']}"
        )
    first, *others = summary["seconds_images"]
    warm = f", {np.median(others):.3f} s the others (median)" if others else ""
    facts["time"] = f"{first:.3f} s the first image{warm}; {summary['seconds_setup']:.1f} s to set up"
    facts["cost"] = (
        f"{summary['bytes_per_image'] / 1e6:.2f} MB and {summary['rounds']} rounds an image, "
        f"keys {summary['bytes_keys'] / 1e6:.2f} MB once"
    )
    facts |= _phases(summary)
    facts |= in_words_revealed(summary["revealed"])
    facts["links"] = _links(summary)
    place = f"server {config.server}" if config.server else f"engine {config.engine}, processes {config.processes}"
    hidden = ", NOTHING WAS ENCRYPTED" if config.rehearsal else ""
    show(
        f"{'rehearsal in clear' if config.rehearsal else 'infer'}: {summary['images']} images, {place}{hidden}",
        {**facts, "saved": Path(config.out) / "summary.json"},
    )
