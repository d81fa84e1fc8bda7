"""The update of the weights: optimizer, learning-rate schedule, and the running average of the weights (timm's)."""

# timm re-exports names without saying so to type checkers.
# pyright: reportPrivateImportUsage=false

import math
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from privcirnet.config import RecipeConfig
from privcirnet.errors import RuleError
from privcirnet.nn.quantization_steps import learned_steps

if TYPE_CHECKING:
    from timm.utils import ModelEmaV3

_TIMM_NAMES = {"muon": "nmuon"}
STEPS_LEARNING_RATE = 1e-2
"""Highest learning rate of learned steps: as logarithms they need no scale of their own (TQT)."""


def optimizer_of(model: nn.Module, recipe: RecipeConfig) -> Optimizer:
    """Return AdamW, or SGD or Muon with Nesterov momentum; biases, norms and learned steps do not decay.

    Muon updates matrices, and convolutions as matrices of (outputs, all else), by the orthogonal matrix nearest to
    their momentum (:mod:`.muon`); depthwise kernels, biases and norms are AdamW's. Rates are AdamW's in both parts:
    timm scales an orthogonal update to the root mean square that AdamW's usually has.

    The gradient of a circulant layer's stored row is the sum over its b copies: a recipe for SGD may want a lower rate.

    Source of Muon: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024); of the scale:
    Liu et al., "Muon is scalable for LLM training" (arXiv 2502.16982), Section 2.2.

    Raises:
        RuleError: steps are learned with SGD: their gradients, sums over all values, have no common scale.
    """
    from timm.optim import create_optimizer_v2

    if recipe.optimizer == "muon":
        from privcirnet.train.muon import use_own_precision

        use_own_precision()
    name = _TIMM_NAMES.get(recipe.optimizer, recipe.optimizer)
    optimizer = create_optimizer_v2(model, name, recipe.learning_rate, recipe.weight_decay, momentum=recipe.momentum)
    steps = learned_steps(model)
    if steps and recipe.optimizer != "adamw":
        raise RuleError("learned steps need AdamW", got=recipe.optimizer, remedy="use recipe.optimizer=adamw")
    step_ids = {id(step) for step in steps}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in step_ids]
    if recipe.relative:
        _scale_rates_(optimizer)
    if steps:
        optimizer.add_param_group({"params": steps, "lr": STEPS_LEARNING_RATE, "weight_decay": 0.0})
    return optimizer


def _scale_rates_(optimizer: Optimizer) -> None:
    """Multiply rates by the root mean square of their tensors; each tensor gets a group of its own.

    AdamW moves every weight by about the learning rate, whatever the weight's size. Fused networks have tensors of all
    sizes, because norms and activations are folded into them: 1e-4 is ten times the weights of a projection behind
    polynomial attention.

    Source: Adafactor (Shazeer and Stern, ICML 2018, Section 8). Departure: sizes are those at the start, so that the
    schedule alone changes rates.
    """
    groups, optimizer.param_groups = optimizer.param_groups, []
    for group in groups:
        for parameter in group["params"]:
            size = parameter.detach().square().mean().sqrt().item() or 1.0
            optimizer.add_param_group(group | {"params": [parameter], "lr": size * group["lr"]})


def schedule_of(optimizer: Optimizer, recipe: RecipeConfig, steps_per_epoch: int) -> LambdaLR:
    """Return the schedule that sets the learning rate to :func:`rate` at every step."""
    total, warm_up = recipe.epochs * steps_per_epoch, recipe.warmup_epochs * steps_per_epoch
    lowest = recipe.min_learning_rate / recipe.learning_rate
    return LambdaLR(optimizer, lambda step: rate(step, total, warm_up, lowest))


def rate(step: int, total: int, warm_up: int, lowest: float) -> float:
    """Return the learning rate as a share of the highest: linear warm-up, then a cosine down to ``lowest``.

    Args:
        lowest: rate at the end, as a share of the highest.

    >>> [rate(step, total=10, warm_up=2, lowest=0.0) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warm_up:
        return (step + 1) / warm_up
    done = min((step - warm_up) / max(total - warm_up, 1), 1.0)
    return lowest + (1 - lowest) * (1 + math.cos(math.pi * done)) / 2


def average_of(model: nn.Module, recipe: RecipeConfig) -> "ModelEmaV3 | None":
    """Return the running average of the weights, if any; its decay grows from 0, so that short runs gain too.

    Args:
        recipe: its ``ema`` is the decay; 0 for no average.
    """
    if not recipe.ema:
        return None
    from timm.utils import ModelEmaV3

    return ModelEmaV3(model, decay=recipe.ema, use_warmup=True)
