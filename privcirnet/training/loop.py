"""The one training loop: dense training, circulant fine-tuning and QAT differ only in what they are given."""

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
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    steps = recipe.epochs * -(-len(data.train_labels) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1), eta_min=recipe.min_learning_rate)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    progress = start or Progress()
    if progress.state:
        for name, part in parts.items():
            part.load_state_dict(progress.state[name])
        generator.set_state(progress.state["generator"])
        torch.set_rng_state(progress.state["torch"])
    else:
        torch.manual_seed(seed)
    while progress.epoch < recipe.epochs:
        model.train()
        total = 0.0
        for images, labels in batches(data.train_images, data.train_labels, recipe.batch_size, generator):
            loss = _step(model, data.real(images).to(device), labels.to(device), teacher, recipe)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(labels)
        progress.epoch += 1
        mean_loss = total / len(data.train_labels)
        if not torch.isfinite(torch.tensor(mean_loss)):
            raise RuleError("the training loss must stay finite", got=mean_loss, remedy="lower recipe.learning_rate")
        top1 = accuracy(model, data, data.test_images, data.test_labels)
        progress.history.append({"epoch": progress.epoch, "loss": mean_loss, "top1": top1})
        progress.state = {name: part.state_dict() for name, part in parts.items()}
        progress.state |= {"generator": generator.get_state(), "torch": torch.get_rng_state()}
        if after_epoch:
            after_epoch(progress)
    model.eval()
    return progress.history


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
