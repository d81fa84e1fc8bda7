"""Classify held-out images encrypted and check every step of it. `privcirnet infer --help`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from privcirnet.artifact import read_profile, read_program, write_arrays, write_json
from privcirnet.config import InferConfig
from privcirnet.console import counting, in_words_revealed, inference_bar, show, show_rows
from privcirnet.data import load_for
from privcirnet.data.dataset import ImageData
from privcirnet.he.engines.weight_cache import WeightCache
from privcirnet.he.planning.profile import LINKS
from privcirnet.he.ring import threads
from privcirnet.pipeline.evaluation import evaluate, evaluate_apart
from privcirnet.pipeline.infer import infer
from privcirnet.service.access import ClientAccess
from privcirnet.service.address import parse_address
from privcirnet.service.client import ServiceClient
from privcirnet.settings import script
from privcirnet.training import stages
from privcirnet.training.accuracy import predict

_SHOWN = 10


@script(InferConfig)
def main(config: InferConfig) -> None:
    """Compare float, integer and encrypted predictions of held-out images.

    Args:
        config: of the command line.
    """
    with counting("Decoding images") as progress:
        data = load_for(config.data, progress)
    images, labels = data.held_out(config.images)
    threads.use(config.threads)
    found = (_ask if config.server else _audit)(config, data, images, labels.numpy())
    stage = "client" if config.server else "infer"
    summary = {"stage": stage, "engine": config.engine, **found, "config": asdict(config)}
    out, pictures = Path(config.out), images.permute(0, 2, 3, 1).numpy() * (255 // data.levels)
    write_arrays(out / "images.npz", images=pictures[..., 0] if pictures.shape[-1] == 1 else pictures)
    write_json(out / "summary.json", summary)
    _show(config, summary, data)


def _audit(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> dict[str, Any]:
    """Run both parties here and check every step."""
    program, spectra = read_program(Path(config.program))
    profile = read_profile(Path(config.profile))
    clear = _predicted(config, data, images)
    cache = WeightCache.of(config.weights_gb, config.weights_folder)
    run = evaluate if config.processes == 1 else evaluate_apart
    with inference_bar(program, len(labels)) as progress:
        result = run(program, spectra, images.numpy().astype(np.int64), config.engine, progress, cache)
    return {"processes": config.processes, **result.summary(clear, labels, profile, LINKS["local"])}


def _ask(config: InferConfig, data: ImageData, images: Tensor, labels: np.ndarray) -> dict[str, Any]:
    """Run the client alone, without program folder and weights."""
    clear = _predicted(config, data, images) if config.reference else None
    access = ClientAccess.of(Path(config.tls) if config.tls else None)
    with ServiceClient(parse_address(config.server), config.engine, config.timeout_s, access, config.served) as remote:
        with inference_bar(remote.client.program, len(labels)) as progress:
            result = infer(remote, images.numpy().astype(np.int64), progress)
    return {"server": config.server, **result.summary(clear, labels)}


def _predicted(config: InferConfig, data: ImageData, images: Tensor) -> np.ndarray:
    return predict(stages.load_network(config.reference, data), data, images).argmax(dim=1).numpy()


def _show(config: InferConfig, summary: dict[str, Any], data: ImageData) -> None:
    """Show the result in a few lines; for a client alone also the first images' classes."""
    if config.server:
        names = ("label", "float", "encrypted")
        rows = [{n: data.classes[p[n]] for n in names if n in p} for p in summary["predictions"][:_SHOWN]]
        show_rows(f"infer: the first {len(rows)} images", rows)
    top1 = {n: summary.get(f"top1_{n}") for n in ("float", "integer", "encrypted")}
    facts = {"top-1": ", ".join(f"{name} {value:.2f} %" for name, value in top1.items() if value is not None)}
    if not config.server:
        equal = f"{summary['logits_equal']} images follow the integer network exactly, up to {summary['unit']}"
        facts["equal"] = f"{equal}; {summary['argmax_equal']} with the same class"
    first, *others = summary["seconds_images"]
    warm = f", {np.median(others):.3f} s the others (median)" if others else ""
    facts["time"] = f"{first:.3f} s the first image{warm}; {summary['seconds_setup']:.1f} s to set up"
    facts["cost"] = (
        f"{summary['bytes_per_image'] / 1e6:.2f} MB and {summary['rounds']} rounds an image, "
        f"keys {summary['bytes_keys'] / 1e6:.2f} MB once"
    )
    facts |= in_words_revealed(summary["revealed"])
    facts["links"] = ", ".join(f"{name} {x['seconds']:.2f} s" for name, x in summary["links"].items()) + ", predicted"
    place = f"server {config.server}" if config.server else f"engine {config.engine}, processes {config.processes}"
    hidden = ", NOTHING WAS ENCRYPTED" if config.engine == "cleartext" else ""
    show(f"infer: {summary['images']} images, {place}{hidden}", {**facts, "saved": Path(config.out) / "summary.json"})
