"""Train a dense network, fine-tune it with circulant weights, or train its 8-bit version. `privcirnet train --help`."""

import time
from dataclasses import asdict
from pathlib import Path

from privcirnet import distributed
from privcirnet.artifact import write_json
from privcirnet.artifact.run import check_replaced
from privcirnet.cli.console import counting, progress_bar, show, show_text
from privcirnet.cli.settings import script
from privcirnet.config import TrainConfig
from privcirnet.data import ImageData, load_for
from privcirnet.runs import train
from privcirnet.train.architectures import maker_of


@script(TrainConfig)
@distributed.joined
def main(config: TrainConfig) -> None:
    """Run one stage: start from the result of the stage before, train, save."""
    started = time.perf_counter()
    if not config.evaluate:
        maker_of(config.model.name)  # a typo is said before a run that is complete
        check_replaced(asdict(config))
    with counting("Decoding images") as progress, distributed.first_goes_first():
        data = load_for(config.data, progress)
    if config.evaluate:
        _evaluate(config, data)
        return
    trained = train.train(config, data, progress_bar, show_text)
    if distributed.rank() > 0:
        return
    path = train.write(trained, time.perf_counter() - started)
    top1 = f"{trained.top1:.2f} % of {trained.test_images} held-out images (was {trained.top1_before:.2f} %)"
    facts = {"top-1": top1, "parameters": f"{trained.parameters:,}", "saved": path}
    show(trained.title, facts | ({"precision": "bfloat16"} if trained.mixed else {}))


def _evaluate(config: TrainConfig, data: ImageData) -> None:
    """Measure a checkpoint's accuracy."""
    summary = train.evaluate(config, data)
    if distributed.rank() > 0:
        return
    write_json(Path(config.out) / "summary.json", summary)
    title = f"evaluate: {summary['model']} on {summary['data']}"
    show(title, {"top-1": f"{summary['top1']:.2f} % of {summary['images']} images"})
