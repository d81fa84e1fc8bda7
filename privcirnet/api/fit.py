"""Training of any network on any images, by the one training loop."""

from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import Tensor, nn

from privcirnet.api.settings import bars, configured, verb
from privcirnet.config import FitConfig, RecipeConfig
from privcirnet.data.own import OwnImages, Pairs
from privcirnet.errors import RuleError
from privcirnet.nn.checks import check_finite, check_module, logits_of_one
from privcirnet.nn.graph import evaluating
from privcirnet.train import loop
from privcirnet.train.checkpoint import rollback_on_failure
from privcirnet.train.distillation import teaching
from privcirnet.train.record import EpochProgress, Step


@verb
def fit(  # noqa: PLR0913
    model: nn.Module,
    data: Pairs,
    config: FitConfig | None = None,
    *,
    validation: Pairs | None = None,
    teacher: nn.Module | None = None,
    seed: int = 0,
    progress: bool = True,
    **settings: Any,
) -> list[dict[str, float]]:
    """Train a network in place: dense, circulant or quantized.

    Args:
        model: network on the device to train on; left in evaluation mode, or as it was if its training fails. Norms in
            evaluation mode whose parameters need no gradient are frozen: their statistics stay.
        data: (images (N, C, H, W) or (N, F), labels (N,)), which are shuffled and cut into batches, or a DataLoader,
            whose batches are taken as they come.
        config: settings of the training.
        validation: held-out data in the form of ``data``; the history then has its accuracy.
        teacher: network whose logits are soft labels, with weight ``distillation``; left as it was.
        seed: seed of the order of batches.
        progress: whether a bar is shown.
        settings: fields of ``config`` by name, as ``epochs=20``.

    Returns:
        Per epoch {"epoch", "loss" in nats, "top1" in percent of the validation, "learning_rate", "images_per_second",
        "seconds"}.

    Raises:
        RuleError: a setting is unknown or out of range, the images or labels do not fit the network, or weights, images
            or the loss are not finite.
    """
    check_module(model)
    recipe = RecipeConfig(**asdict(configured("fit", FitConfig, config, settings)))
    if teacher is None and settings.get("distillation"):
        raise RuleError("distillation needs a teacher", got="none", remedy="give teacher=, or leave distillation out")
    check_finite(model)
    images = OwnImages(data, validation, partial(_logits, model, teacher))
    bar = bars(progress)("fit (epochs)", recipe.epochs)
    with rollback_on_failure(model), evaluating(teacher) if teacher else nullcontext(), bar as advance:
        taught_by = teaching(teacher) if teacher else None
        suffix = {"top1": ""}

        def after_epoch(done: EpochProgress) -> None:
            if "top1" in (last := done.history[-1]):
                suffix["top1"] = f", top-1 {last['top1']:.1f} %"

        def after_step(step: Step) -> None:
            advance(f"loss {step.mean_loss:.3f}{suffix['top1']}", to=step.epochs)

        return loop.fit(model, images, recipe, seed, taught_by, after_epoch=after_epoch, after_step=after_step)


def _logits(model: nn.Module, teacher: nn.Module | None, images: Tensor) -> Tensor:
    """Return a network's logits of the first image; raise unless its teacher has as many."""
    logits = logits_of_one(model, images)
    if teacher is not None and (classes := logits_of_one(teacher, images).shape[1]) != logits.shape[1]:
        rule, got = "a teacher must have the network's classes", f"{classes} for {logits.shape[1]}"
        raise RuleError(rule, got=got, remedy="give one that was trained on the same classes")
    return logits
