"""Training of any network on any images, by the one training loop."""

from contextlib import nullcontext
from functools import partial
from typing import Any

from torch import nn

from privcirnet.api.progress import bars
from privcirnet.api.settings import arguments_named, known_settings
from privcirnet.config import RecipeConfig
from privcirnet.config.recipe import FIT
from privcirnet.data.own import OwnImages, Pairs
from privcirnet.errors import RuleError
from privcirnet.nn.checks import check_finite, check_module, logits_of_one
from privcirnet.nn.graph import evaluating
from privcirnet.train import loop
from privcirnet.train.progress import EpochProgress, Step
from privcirnet.train.restoring import restored_on_failure
from privcirnet.train.taught import teaching

DISTILLATION = 0.5
"""Weight of a teacher's soft labels, where nothing else is asked for."""
_OF_STAGES = (
    "soup",
    "stage",
    "init",
    "plan",
    "uniform",
    "pad",
    "projection",
    "damping",
    "teacher",
    "teach_once",
    "imitate",
    "original",
)
"""Settings of train.py alone."""
_OF_INTEGERS = ("crop_scale", "erase", "rand_augment", "rand_magnitude", "rand_deviation")
"""Augmentation of pixels that are integers."""


@arguments_named()
def fit(
    model: nn.Module,
    images: Pairs,
    *,
    validation: Pairs | None = None,
    teacher: nn.Module | None = None,
    seed: int = 0,
    progress: bool = True,
    **settings: Any,
) -> list[dict[str, float]]:
    """Train a network in place: dense, circulant or quantized.

    Args:
        model: on the device to train on; left in evaluation mode, or as it was if its training fails.
        images: (images (N, C, H, W), labels (N,)), which are shuffled and cut into batches, or a DataLoader, whose
            batches are taken as they come.
        validation: the same, held out; the history then has its accuracy.
        teacher: network whose logits are soft labels, with weight ``distillation`` (0.5); left as it was.
        seed: of the order of batches.
        progress: whether a bar is shown.
        settings: those of :class:`privcirnet.config.RecipeConfig` that concern the training itself, as ``epochs`` (10),
            ``batch_size`` (64, of tensors), ``learning_rate`` (1e-3, the start of a cosine), ``weight_decay`` (0.01),
            ``optimizer`` ("adamw"), ``clip_gradient`` (1), ``ema``, ``crop_padding`` and ``flip``.

    Returns:
        Per epoch {"epoch", "loss" in nats, "top1" in percent of the validation, "learning_rate", "images_per_second",
        "seconds"}.

    Raises:
        RuleError: a setting is unknown or out of range, the images or labels do not fit the network, or weights, images
            or the loss are not finite.
    """
    check_module(model)
    recipe = _recipe(settings, teacher)
    check_finite(model)
    data = OwnImages(images, validation, partial(logits_of_one, model))
    bar = bars(progress)("fit (epochs)", recipe.epochs)
    with restored_on_failure(model), evaluating(teacher) if teacher else nullcontext(), bar as advance:
        taught_by = teaching(teacher) if teacher else None
        said = {"top1": ""}

        def after_epoch(done: EpochProgress) -> None:
            if "top1" in (last := done.history[-1]):
                said["top1"] = f", top-1 {last['top1']:.1f} %"

        def after_step(step: Step) -> None:
            advance(f"loss {step.mean_loss:.3f}{said['top1']}", to=step.epochs)

        return loop.fit(model, data, recipe, seed, taught_by, after_epoch=after_epoch, after_step=after_step)


def _recipe(settings: dict[str, Any], teacher: nn.Module | None) -> RecipeConfig:
    own = known_settings("fit", settings, RecipeConfig, _OF_STAGES + _OF_INTEGERS)
    if teacher is None and settings.get("distillation"):
        raise RuleError("distillation needs a teacher", got="none", remedy="give teacher=, or leave distillation out")
    taught: dict[str, Any] = {"distillation": DISTILLATION} if teacher else {}
    return RecipeConfig(**{**FIT, **taught, **own})
