"""The one training loop: dense training, circulant fine-tuning and QAT differ only in what they are given."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from privcirnet.config import RecipeConfig
from privcirnet.data.dataset import ImageData, batches
from privcirnet.errors import RuleError
from privcirnet.nn.graph import evaluating
from privcirnet.training.losses import training_loss

_EVALUATION_BATCH = 512


@dataclass
class Progress:
    """Where a run is: what a resumed run starts from.

    Attributes:
        epoch: epochs done.
        history: per epoch {"epoch", "loss", "top1"}.
        state: model, optimizer, schedule and generator states.
    """

    epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)


def fit(  # noqa: PLR0913, PLR0917
    model: nn.Module,
    data: ImageData,
    recipe: RecipeConfig,
    seed: int,
    teacher: nn.Module | None = None,
    start: Progress | None = None,
    after_epoch: Callable[[Progress], None] | None = None,
) -> list[dict[str, float]]:
    """Train a model in place.

    Args:
        model: on the device to train on; left in evaluation mode.
        data: images and labels.
        recipe: epochs, batch size, learning rates, losses.
        seed: of the order of batches.
        teacher: dense network whose logits are soft labels; left as it was.
        start: continue from here.
        after_epoch: called after every epoch, with what a resumed run needs.

    Returns:
        per epoch {"epoch", "loss" in nats, "top1" in percent on the held-out images}.

    Raises:
        RuleError: the loss is not finite.
    """
    run = _Run(model, data, recipe, teacher, seed)
    progress = start or Progress()
    if progress.state:
        run.restore(progress.state)
    while progress.epoch < recipe.epochs:
        loss = run.epoch()
        top1 = accuracy(model, data, data.test_images, data.test_labels)
        progress.epoch += 1
        progress.history.append({"epoch": progress.epoch, "loss": loss, "top1": top1})
        progress.state = run.state()
        if after_epoch:
            after_epoch(progress)
    model.eval()
    return progress.history


class _Run:
    """Everything that changes while a model is trained."""

    def __init__(
        self, model: nn.Module, data: ImageData, recipe: RecipeConfig, teacher: nn.Module | None, seed: int
    ) -> None:
        self.model, self.data, self.recipe, self.teacher = model, data, recipe, teacher
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        steps = max(recipe.epochs * -(-len(data.train_labels) // recipe.batch_size), 1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=recipe.min_learning_rate)
        self.optimizer, self.schedule = optimizer, schedule
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)

    def epoch(self) -> float:
        """One pass over the training images; the mean loss in nats."""
        self.model.train()
        device = next(self.model.parameters()).device
        total, data = 0.0, self.data
        for images, labels in batches(data.train_images, data.train_labels, self.recipe.batch_size, self.generator):
            loss = _step(self.model, data.real(images).to(device), labels.to(device), self.teacher, self.recipe)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.item() * len(labels)
        mean = total / len(data.train_labels)
        if not math.isfinite(mean):
            raise RuleError("the training loss must stay finite", got=mean, remedy="lower recipe.learning_rate")
        return mean

    def state(self) -> dict[str, Any]:
        """What :meth:`restore` needs."""
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "schedule")}
        return parts | {"generator": self.generator.get_state(), "torch": torch.get_rng_state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where a run stopped."""
        for name in ("model", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch"])


@torch.no_grad()
def predict(model: nn.Module, data: ImageData, images: Tensor) -> Tensor:
    """Logits (N, classes) in evaluation mode, on the CPU."""
    device = next(model.parameters()).device
    with evaluating(model):
        return torch.cat([model(data.real(part).to(device)).cpu() for part in images.split(_EVALUATION_BATCH)])


def accuracy(model: nn.Module, data: ImageData, images: Tensor, labels: Tensor) -> float:
    """Top-1 in percent."""
    return 100.0 * (predict(model, data, images).argmax(dim=1) == labels).float().mean().item()


def _step(model: nn.Module, images: Tensor, labels: Tensor, teacher: nn.Module | None, recipe: RecipeConfig) -> Tensor:
    teacher_logits = None
    if teacher is not None:
        with torch.no_grad():
            teacher_logits = teacher(images)
    return training_loss(model(images), labels, teacher_logits, recipe.label_smoothing, recipe.distillation)
