"""Distillation from a teacher that runs once: its soft labels of the training images, mixed with their own labels.

The loss is linear in its targets, so that one cross-entropy with the mixed labels is the sum of the two that
:func:`.losses.training_loss` computes. The teacher does not see how an image is cropped or mirrored. In return an epoch
costs what it costs without a teacher.

Source: the fixed labels of Shen and Xing, "A fast knowledge distillation framework for visual recognition" (ECCV 2022),
Section 3. Departure: one label for an image, not one for each of its crops.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import one_hot
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.config import RecipeConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.passes.fuse import fuse
from privcirnet.train.accuracy import predict

_IMAGES = 2048
"""Number of images that the teacher sees between two reports."""


def distill_labels(
    data: ImageData, recipe: RecipeConfig, teacher: nn.Module, progress: Callable[[], object] | None = None
) -> tuple[ImageData, RecipeConfig]:
    """Return training images with mixed labels, and the recipe that learns them.

    Args:
        teacher: network on the device to run on; left as it was.
        progress: callback after every part; there are :func:`parts` of them.

    Returns:
        Data whose training labels are probabilities (N, classes), and a recipe without smoothing and distillation.
    """
    device, labels = next(teacher.parameters()).device, []
    for images in data.train_images.split(_IMAGES):
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.amp == "true"):
            labels.append(predict(teacher, data, images).float().softmax(dim=-1))
        if progress:
            progress()
    soft, smoothing = torch.cat(labels), recipe.label_smoothing
    hard = one_hot(data.train_labels, len(data.classes)).to(soft).lerp(torch.tensor(1 / len(data.classes)), smoothing)
    soft = torch.where(soft.isfinite().all(dim=-1, keepdim=True), soft, hard)  # an image that explodes in the teacher
    mixed = (1 - recipe.distillation) * hard + recipe.distillation * soft
    return replace(data, train_labels=mixed), replace(recipe, label_smoothing=0.0, distillation=0.0, teach_once=False)


def teaching(network: nn.Module) -> nn.Module:
    """Return a network with the same predictions in two thirds of the time: batch norms are folded, if they can be.

    Args:
        network: network in evaluation mode; left as it was.
    """
    try:
        folded = fuse(network)
    except RuleError:  # a teacher need not be one that could run encrypted
        return network
    has_norms = any(
        isinstance(module, _BatchNorm) for module in folded.modules()
    )  # fuse folds all batch norms, or none
    return network if has_norms else folded


def parts(data: ImageData) -> int:
    """Return how often :func:`taught` reports."""
    return -(-data.count // _IMAGES)
