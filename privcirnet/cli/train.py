"""Train a dense network, fine-tune it with circulant weights, or train its 8-bit version. `privcirnet train --help`.

Under torchrun every process calls these functions with the same arguments (:mod:`privcirnet.distributed`), except
:func:`write`, which the first process calls alone.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from privcirnet import distributed
from privcirnet.artifact.records import (
    Checkpoint,
    InputSpec,
    compacted,
    expanded,
    read_checkpoint,
    write_checkpoint,
    write_json,
)
from privcirnet.artifact.run import exclusive
from privcirnet.cli.console import counting, progress_bar, show, show_text
from privcirnet.cli.settings import script
from privcirnet.config import RecipeConfig, TrainConfig, run_file
from privcirnet.data import ImageData, load_for
from privcirnet.errors import RuleError
from privcirnet.models.pretrained import pretrained
from privcirnet.nn.checks import logits_of_one
from privcirnet.runs.check import left_to_replace
from privcirnet.runs.pictures import inputs_of
from privcirnet.runs.progress import ProgressBar, silent
from privcirnet.train import checkpoint, record, stages
from privcirnet.train.accuracy import accuracy
from privcirnet.train.architectures import maker_of
from privcirnet.train.distillation import distill_labels, parts, teaching
from privcirnet.train.loop import fit
from privcirnet.train.network import BuiltNetwork, checkpoint_of
from privcirnet.train.record import EpochProgress, Step


@dataclass(frozen=True)
class Trained:
    """A network after one stage of training.

    Attributes:
        network: trained network, with the facts to rebuild it.
        top1_before: top-1 accuracy before the first epoch.
        history: history per epoch, see :func:`privcirnet.train.loop.fit`.
        inputs: input format of the network.
        seconds_before: seconds of the epochs of an interrupted run that it continued.
    """

    config: TrainConfig
    network: BuiltNetwork
    top1: float
    top1_before: float
    test_images: int
    history: list[dict[str, float]]
    inputs: InputSpec
    seconds_before: float = 0.0
    mixed: bool = False

    @property
    def title(self) -> str:
        """The stage, network and data set, in words."""
        return f"{self.config.recipe.stage}: {self.network.name} on {self.config.data.name}"

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        return sum(p.numel() for p in self.network.model.parameters())


def train(
    config: TrainConfig,
    data: ImageData,
    bar: ProgressBar = silent,
    tell: Callable[[str], object] = lambda _: None,
    change: stages.CompressionMethod | None = None,
) -> Trained:
    """Run one stage, from the result of the stage before or from the last epoch of an interrupted run.

    The run directory gets its history and, after every epoch, the state that a resumed run needs.

    Args:
        tell: function called before training with the obstacles of later stages, a line each.
        change: change of the network that is fine-tuned; None: the recipe's.

    Returns:
        The trained network; nothing of it is written yet.

    Raises:
        RuleError: a missing or unsuitable input, images that the network cannot take, an interrupted run with other
            settings, a loss that is not finite, or a full disk.
    """
    out, recipe = Path(config.out), config.recipe
    device, settings = distributed.own_device(config.device), asdict(config) | (dict(change.facts) if change else {})
    distributed.from_first(lambda: checkpoint.check(out, settings) if config.resume else None)
    start = _prepared(config, data, bar, tell, change)
    model = start.model.to(device)
    teacher, original = _examples(config, data, device)
    settings["block_sizes"] = start.block_sizes
    resumed = distributed.from_first(lambda: _resumed(config, settings))
    seconds_before = sum(entry["seconds"] for entry in resumed.history) if resumed else 0.0
    progress = resumed or EpochProgress()
    before = progress.top1_before
    if before is None:
        before = progress.top1_before = accuracy(model, data)
    if teacher and recipe.teach_once:
        with bar(f"{recipe.stage} (teacher)", parts(data)) as done:
            (data, recipe), teacher = distill_labels(data, recipe, teacher, lambda: done("")), None
    data = data.near(torch.device(device))
    torch.backends.cudnn.benchmark = True  # of 1,000 images the kernels it guesses took MobileNetV2 five times as long
    epochs = bar(f"{recipe.stage} (epochs)", recipe.epochs)
    events = config.tensorboard and distributed.rank() == 0
    with record.Record(out, events, resumed, before) as book, epochs as advance:
        if resumed:
            advance("resumed", to=resumed.epoch)

        def after_step(step: Step) -> None:
            advance(book.step(step), to=step.epochs)

        def after_epoch(progress: EpochProgress) -> None:
            line = book.epoch(progress.history)
            checkpoint.save(out, progress, settings)
            advance(line, to=progress.epoch)

        history = fit(model, data, recipe, config.seed, teacher, progress, after_epoch, after_step, original)
    top1 = history[-1]["top1"] if history else before
    mixed = progress.state.get("mixed", False)
    inputs = inputs_of(data, config.data.name)
    return Trained(config, start, top1, before, len(data.test_labels), history, inputs, seconds_before, mixed)


def _prepared(
    config: TrainConfig,
    data: ImageData,
    bar: ProgressBar,
    tell: Callable[[str], object],
    change: stages.CompressionMethod | None,
) -> BuiltNetwork:
    """Return the starting network of a stage, once it has taken an image, and tell of layers left to replace."""
    recipe = config.recipe
    if recipe.init and not (recipe.stage == "train" and pretrained(recipe.init)):
        made_by = "train.py recipe=finetune" if recipe.stage == "qat" else "train.py"
        run_file(recipe.init, stages.CHECKPOINT, made_by, "recipe.init")
    if _learns_from_teacher(recipe):  # which is read after long work
        run_file(recipe.teacher, stages.CHECKPOINT, "train.py", "recipe.teacher")
    torch.manual_seed(config.seed)
    with bar(f"{recipe.stage} (preparation)", 1) as done:
        start = stages.begin(recipe, config.quant, config.model, data, change=change)
        done(f"new weights for {', '.join(start.fresh)}" if start.fresh else "")
    image = data.real(data.train_images[:1])
    try:
        logits_of_one(start.model, image)
    except RuleError as error:
        got = f"{config.model.name} for {config.data.name}, {error.got}"
        remedy = (
            "give another model=, as model=resnet18_cifar for 32 x 32 pixels, or model.name= of timm or torchvision"
        )
        raise RuleError(error.rule, got=got, remedy=remedy) from error
    if recipe.stage != "qat" and (remaining := left_to_replace(start.model, image)):
        tell(remaining)
    return start


def _learns_from_teacher(recipe: RecipeConfig) -> bool:
    return bool(recipe.epochs and recipe.teacher and recipe.distillation)


def _examples(config: TrainConfig, data: ImageData, device: str) -> tuple[nn.Module | None, nn.Module | None]:
    """Return the networks that a recipe learns from, if any: one by its logits, one by its blocks."""
    recipe = config.recipe
    taught = _learns_from_teacher(recipe)
    teacher = teaching(stages.load_network(recipe.teacher, data)).to(device) if taught else None
    original = (
        stages.load_network(recipe.original or recipe.init, data).to(device)
        if recipe.epochs and recipe.imitate
        else None
    )
    return teacher, original


def _resumed(config: TrainConfig, settings: dict[str, Any]) -> EpochProgress | None:
    """Return the state to continue from; an unwanted one is removed at once, or a kill would leave it."""
    if config.resume:
        return checkpoint.load(Path(config.out), settings)
    checkpoint.remove(Path(config.out))
    return None


def write(trained: Trained, seconds: float) -> Path:
    """Write checkpoint, summary and curves into the run directory, then remove the state of an interrupted run.

    Returns:
        The checkpoint's path.

    Raises:
        RuleError: the disk is full.
    """
    out = Path(trained.config.out)
    path = out / stages.CHECKPOINT
    write_checkpoint(path, checkpoint_of(trained.network, trained.config.recipe.stage, trained.inputs))
    write_json(out / "summary.json", summary(trained, seconds, path))
    record.picture(out, trained.history, trained.title)
    checkpoint.remove(out)
    return path


def summary(trained: Trained, seconds: float, path: Path) -> dict[str, Any]:
    """Return the facts of a run as plain data, for summary.json."""
    config, network = trained.config, trained.network
    return {
        "stage": config.recipe.stage,
        "model": network.name,
        "data": config.data.name,
        "top1": trained.top1,
        "top1_before": trained.top1_before,
        "test_images": trained.test_images,
        "parameters": trained.parameters,
        "block_sizes": network.block_sizes,
        "bits": network.bits,
        "fresh": list(network.fresh),
        "epochs": config.recipe.epochs,
        "activation": kind if isinstance(kind := config.model.arguments.get("activation"), str) else None,
        "precision": "bfloat16" if trained.mixed else "float32",
        "seconds": trained.seconds_before + seconds,
        "checkpoint": str(path),
        "history": trained.history,
        "config": asdict(config),
    }


def evaluate(config: TrainConfig, data: ImageData) -> dict[str, Any]:
    """Measure the accuracy of the checkpoint that ``config.evaluate`` names, or write a smaller copy and measure that.

    Returns:
        The facts as plain data, for summary.json.
    """
    started, path = time.perf_counter(), run_file(config.evaluate, stages.CHECKPOINT, "train.py", "evaluate")
    stored = read_checkpoint(path)
    if config.compact:
        stored = replace(stored, inputs=inputs_of(data, config.data.name))
        path = Path(config.out) / stages.CHECKPOINT
        if path.resolve() == Path(config.evaluate).resolve():
            raise RuleError("a smaller copy must not replace the network", got=path, remedy="give another out=")
        stored = _compact(stored, config.compact, path)
    network = stages.built(stored, data)
    top1 = accuracy(network.model.to(distributed.own_device(config.device)), data)
    about = {"stage": "evaluate", "checkpoint": str(path), "data": config.data.name}
    facts = {"model": network.name, "block_sizes": network.block_sizes, "bits": network.bits}
    measured = {"top1": top1, "images": len(data.test_labels), "seconds": time.perf_counter() - started}
    return {**about, **facts, **measured, "config": asdict(config)}


def _compact(stored: Checkpoint, kind: str, path: Path) -> Checkpoint:
    """Write a smaller copy of a checkpoint, and return its contents."""
    small = compacted(stored.tensors, kind, stored.bits.weight if stored.bits else 0)
    if distributed.rank() == 0:
        write_checkpoint(path, replace(stored, tensors=small))
    return replace(stored, tensors=expanded(small))


@script(TrainConfig)
@distributed.joined
def main(config: TrainConfig) -> None:
    """Run one stage: start from the result of the stage before, train, save."""
    if config.evaluate:
        _evaluate(config, _decoded(config))
        return
    maker_of(config.model.name)  # a typo is said before a run that is complete
    with exclusive(asdict(config), writes=distributed.rank() == 0):
        _train(config)


def _decoded(config: TrainConfig) -> ImageData:
    with counting("Decoding images") as progress, distributed.first_goes_first():
        return load_for(config.data, progress)


def _train(config: TrainConfig) -> None:
    """Train, save, and show the accuracy."""
    started = time.perf_counter()
    trained = train(config, _decoded(config), progress_bar, show_text)
    if distributed.rank() > 0:
        return
    path = write(trained, time.perf_counter() - started)
    top1 = f"{trained.top1:.2f} % of {trained.test_images} held-out images (was {trained.top1_before:.2f} %)"
    facts = {"top-1": top1, "parameters": f"{trained.parameters:,}", "saved": path}
    show(trained.title, facts | ({"precision": "bfloat16"} if trained.mixed else {}))


def _evaluate(config: TrainConfig, data: ImageData) -> None:
    """Measure a checkpoint's accuracy."""
    summary = evaluate(config, data)
    if distributed.rank() > 0:
        return
    write_json(Path(config.out) / "summary.json", summary)
    title = f"evaluate: {summary['model']} on {summary['data']}"
    show(title, {"top-1": f"{summary['top1']:.2f} % of {summary['images']} images"})
