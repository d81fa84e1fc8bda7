"""Train a dense network, fine-tune it with circulant weights, or train its 8-bit version. `privcirnet train --help`."""

import time
from pathlib import Path

from privcirnet import distributed
from privcirnet.artifact import read_json, write_json
from privcirnet.cli.console import counting, progress_bar, show, show_text
from privcirnet.cli.settings import script
from privcirnet.config import TrainConfig
from privcirnet.data import ImageData, load_for
from privcirnet.runs import train
from privcirnet.runs.ladder import Stage


@script(TrainConfig)
@distributed.joined
def main(config: TrainConfig) -> None:
    """Run one stage: start from what the stage before left, train, save."""
    started = time.perf_counter()
    with counting("Decoding images") as progress, distributed.first_goes_first():
        data = load_for(config.data, progress)
    if config.evaluate:
        _evaluate(config, data)
        return
    _say_what_is_replaced(config)
    trained = train.train(config, data, progress_bar, show_text)
    if distributed.rank() > 0:
        return
    path = train.write(trained, time.perf_counter() - started)
    shown = f"{trained.top1:.2f} % of {trained.test_images} held-out images (was {trained.top1_before:.2f} %)"
    facts = {"top-1": shown, "parameters": f"{trained.parameters:,}", "saved": path}
    show(trained.title, facts | ({"precision": "bfloat16"} if trained.mixed else {}))


def _say_what_is_replaced(config: TrainConfig) -> None:
    """Name a complete run in the same folder while there is time to keep it."""
    stage = Stage(config.recipe.stage, "train", [], config)
    changes = stage.changes()
    if changes is None:
        return
    top1 = read_json(stage.summary, "a summary", "remove it")["top1"]
    facts = {"folder": config.out, "top-1": f"{top1:.2f} %", "changed": ", ".join(changes) or "nothing"}
    show("a complete run will be replaced", facts | {"kept": "until this one is complete; another out= keeps both"})


def _evaluate(config: TrainConfig, data: ImageData) -> None:
    """Measure a checkpoint's accuracy."""
    summary = train.evaluate(config, data)
    if distributed.rank() > 0:
        return
    write_json(Path(config.out) / "summary.json", summary)
    title = f"evaluate: {summary['model']} on {summary['data']}"
    show(title, {"top-1": f"{summary['top1']:.2f} % of {summary['images']} images"})
