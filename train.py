"""Train a dense network, fine-tune it with circulant weights, or train its 8-bit version. `python train.py --help`."""

import time
from dataclasses import asdict
from pathlib import Path

import torch

from privcirnet import distributed
from privcirnet.artifact import write_checkpoint, write_json
from privcirnet.config import TrainConfig
from privcirnet.console import counting, progress_bar, script, show
from privcirnet.data import ImageData, load_for
from privcirnet.training import checkpoint, record, stages
from privcirnet.training.loop import EpochProgress, Step, accuracy, fit
from privcirnet.training.network import checkpoint_of


@script(TrainConfig)
@distributed.joined()
def main(config: TrainConfig) -> None:
    """One stage: start from what the stage before left, train, save."""
    started, out, recipe = time.perf_counter(), Path(config.out), config.recipe
    with counting("Decoding images") as progress, distributed.first_goes_first():
        data = load_for(config.data, progress)
    if config.evaluate:
        evaluate(config, data)
        return
    torch.manual_seed(config.seed)
    with progress_bar(f"{recipe.stage} (preparation)", 1) as done:
        start = stages.begin(recipe, config.quant, config.model, data)
        done()
    model = start.model.to(device := distributed.own_device(config.device))
    teacher = stages.load_network(recipe.teacher, data).to(device) if recipe.teacher else None
    top1_before = accuracy(model, data, data.test_images, data.test_labels)

    settings = asdict(config) | {"block_sizes": start.block_sizes}
    resumed = distributed.from_first(lambda: checkpoint.load(out, settings)) if config.resume else None
    bar = progress_bar(f"{recipe.stage} (epochs)", recipe.epochs)
    events = config.tensorboard and distributed.rank() == 0
    with record.Record(out, events, resumed, top1_before) as book, bar as advance:
        if resumed:
            advance("resumed", to=resumed.epoch)

        def after_step(step: Step) -> None:
            advance(book.step(step), to=step.epochs)

        def after_epoch(progress: EpochProgress) -> None:
            line = book.epoch(progress.history)
            checkpoint.save(out, progress, settings)
            advance(line, to=progress.epoch)

        history = fit(model, data, recipe, config.seed, teacher, resumed, after_epoch, after_step)

    top1 = accuracy(model, data, data.test_images, data.test_labels)
    if distributed.rank() > 0:
        return
    name = out / stages.CHECKPOINT
    write_checkpoint(name, checkpoint_of(start, recipe.stage))
    summary = {
        "stage": recipe.stage,
        "model": start.name,
        "data": config.data.name,
        "top1": top1,
        "top1_before": top1_before,
        "test_images": len(data.test_labels),
        "parameters": sum(p.numel() for p in model.parameters()),
        "block_sizes": start.block_sizes,
        "bits": start.bits,
        "epochs": recipe.epochs,
        "seconds": time.perf_counter() - started,
        "checkpoint": str(name),
        "history": history,
        "config": asdict(config),
    }
    write_json(out / "summary.json", summary)
    title = f"{recipe.stage}: {start.name} on {config.data.name}"
    record.picture(out, history, title)
    checkpoint.remove(out)
    shown = f"{top1:.2f} % of {len(data.test_labels)} held-out images (was {top1_before:.2f} %)"
    show(title, {"top-1": shown, "numbers": f"{summary['parameters']:,} trained", "saved": name})


def evaluate(config: TrainConfig, data: ImageData) -> None:
    """Measure a checkpoint's accuracy."""
    held, out, started = stages.load_checkpoint(Path(config.evaluate), data), Path(config.out), time.perf_counter()
    top1 = accuracy(held.model.to(distributed.own_device(config.device)), data, data.test_images, data.test_labels)
    if distributed.rank() > 0:
        return
    facts = {"model": held.name, "block_sizes": held.block_sizes, "bits": held.bits}
    measured = {"top1": top1, "images": len(data.test_labels), "seconds": time.perf_counter() - started}
    about = {"stage": "evaluate", "checkpoint": config.evaluate, "data": config.data.name}
    write_json(out / "summary.json", {**about, **facts, **measured, "config": asdict(config)})
    show(f"evaluate: {held.name} on {config.data.name}", {"top-1": f"{top1:.2f} % of {measured['images']} images"})


if __name__ == "__main__":
    main()
