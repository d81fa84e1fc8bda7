"""Train a dense network, fine-tune it with circulant weights, or train its 8-bit version. `privcirnet train --help`."""

import time
from dataclasses import asdict
from pathlib import Path

from privcirnet import distributed
from privcirnet.artifact import read_json, write_json
from privcirnet.artifact.run import SUMMARY, Run
from privcirnet.cli.console import counting, progress_bar, show, show_text
from privcirnet.cli.settings import script
from privcirnet.config import TrainConfig
from privcirnet.data import ImageData, load_for
from privcirnet.errors import RuleError
from privcirnet.runs import train
from privcirnet.runs.ladder import MACHINES


@script(TrainConfig)
@distributed.joined
def main(config: TrainConfig) -> None:
    """Run one stage: start from what the stage before left, train, save."""
    started = time.perf_counter()
    if not config.evaluate:
        _check_replaced(config)
    with counting("Decoding images") as progress, distributed.first_goes_first():
        data = load_for(config.data, progress)
    if config.evaluate:
        _evaluate(config, data)
        return
    trained = train.train(config, data, progress_bar, show_text)
    if distributed.rank() > 0:
        return
    path = train.write(trained, time.perf_counter() - started)
    shown = f"{trained.top1:.2f} % of {trained.test_images} held-out images (was {trained.top1_before:.2f} %)"
    facts = {"top-1": shown, "parameters": f"{trained.parameters:,}", "saved": path}
    show(trained.title, facts | ({"precision": "bfloat16"} if trained.mixed else {}))


def _check_replaced(config: TrainConfig) -> None:
    """Raise if a complete run in the same folder has other settings, unless it may be replaced."""
    summary = Path(config.out) / SUMMARY
    if config.overwrite or not summary.is_file():
        return
    held = read_json(summary, "a summary", "remove it")
    if not (changes := Run(summary.parent, asdict(config), MACHINES).changes(held.get("config", {}))):
        return
    accuracy = f", which has {held['top1']:.2f} % top-1" if "top1" in held else ""
    got = f"{', '.join(changes)} for {config.out}{accuracy}"
    remedy = "give another out=, which keeps both, or overwrite=true, which replaces it"
    raise RuleError("a complete run must not be replaced unasked", got=got, remedy=remedy)


def _evaluate(config: TrainConfig, data: ImageData) -> None:
    """Measure a checkpoint's accuracy."""
    summary = train.evaluate(config, data)
    if distributed.rank() > 0:
        return
    write_json(Path(config.out) / "summary.json", summary)
    title = f"evaluate: {summary['model']} on {summary['data']}"
    show(title, {"top-1": f"{summary['top1']:.2f} % of {summary['images']} images"})
