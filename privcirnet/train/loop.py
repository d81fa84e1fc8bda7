"""The one training loop: dense training, circulant fine-tuning and QAT differ only in its arguments.

Under torchrun every process runs it, with the same arguments (:mod:`privcirnet.distributed`). A network with AESPA sees
a batch in parts, whose gradients are added (:func:`micro_batch_size`).
"""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from privcirnet import distributed
from privcirnet.config import RecipeConfig
from privcirnet.data.dataset import Examples
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa
from privcirnet.nn.example import layout_of
from privcirnet.nn.quantization_steps import fix_steps_, follow_learned_steps_
from privcirnet.train.accuracy import accuracy, training_loss
from privcirnet.train.augmentation import Mixer, augmented_epoch
from privcirnet.train.callbacks import Callback, OutlierPenalty, SlowConvolutions, is_faster
from privcirnet.train.distillation import FeatureDistillation
from privcirnet.train.optimization import average_of, optimizer_of, schedule_of
from privcirnet.train.recalibration import frozen_norms, recalibrate_, stabilize_statistics_
from privcirnet.train.record import EpochProgress, Step, falls_to_chance

MOST = 128
"""Images that an AESPA measures at once. One trained at 128 has 58 % with statistics over 128, 21 over 512."""


def micro_batch_size(model: nn.Module, batch_size: int) -> int:
    """Return how many images of a batch a network sees at once: all, unless it has an AESPA.

    In a row of squares a few images have values far above the usual. They dominate the variance of a square, the more
    the larger the batch: it is at most B H W times the usual. In training they crush all other images; in evaluation,
    by running averages, nothing bounds them. MobileNetV2 with AESPA, trained on a GPU with batches of 500, went from 28
    to 10 % while its loss fell. After 100 steps of the same 500 images 23 % of them were right with statistics over 500
    images, and 56 % with those over four parts of 125.

    Source: the ghost batches of Hoffer et al., "Train longer, generalize better" (NeurIPS 2017), which are for batch
    norms. Cost: that of more and smaller steps, without more updates of the weights.
    """
    return min(batch_size, MOST) if any(isinstance(module, Aespa) for module in model.modules()) else batch_size


def in_parts(values: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return a batch in parts of about the same size, none of which is a single image.

    Args:
        values: (N, ...).
        size: number of values in a part; one more where one would be alone.

    >>> import torch
    >>> [part.tolist() for part in in_parts(torch.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    return values.tensor_split(max(1, min(-(-(len(values) - 1) // size), len(values) // 2)))


COMPILE_BACKEND = "inductor"
"""torch.compile's own default; its others only trace, or are for GPUs."""
_AT_CHANCE = (
    "held-out accuracy fell to chance while the training loss fell too; "
    "lower recipe.learning_rate or set recipe.outlier_penalty=0.1"
)


def fit(  # noqa: PLR0913, PLR0917
    model: nn.Module,
    data: Examples,
    recipe: RecipeConfig,
    seed: int,
    teacher: nn.Module | None = None,
    start: EpochProgress | None = None,
    after_epoch: Callable[[EpochProgress], None] | None = None,
    after_step: Callable[[Step], None] | None = None,
    original: nn.Module | None = None,
) -> list[dict[str, float]]:
    """Train a model in place.

    Args:
        model: network on the device to train on; left in evaluation mode, with averaged weights if the recipe says so
            and with learned steps fixed.
        data: images and labels; it sets its own batches if it is a loader.
        teacher: dense network whose logits are soft labels; left as it was.
        after_epoch: callback after every epoch, by the first process only, with the state that a resumed run needs.
        after_step: callback after every step, by the first process only; must be quick.
        original: network whose blocks are imitated as ``recipe.imitate`` says, on the same device; its weights stay.

    Returns:
        Per epoch {"epoch", "loss" in nats, "top1" in percent on the held-out images if there are any (see
        :meth:`_Run.top1`), "learning_rate" at its end, "images_per_second" in training, "seconds" with evaluation}.

    Warns:
        UserWarning: held-out accuracy fell to chance while the loss fell too.

    Raises:
        RuleError: the loss is not finite, steps are learned without AdamW, or they cannot obey their rules.
    """
    progress = start or EpochProgress()
    networks = _Networks(model, teacher, original)
    run = _Run(networks, data, recipe, seed, _mixed(networks, data, recipe, progress))
    if progress.state:
        run.restore(progress.state)
    try:
        while progress.epoch < recipe.epochs:
            started = time.perf_counter()
            measured = run.epoch(progress.epoch, after_step)
            progress.epoch += 1
            if last := progress.epoch == recipe.epochs:
                stabilize_statistics_(run.trained, data, recipe.batch_size, run.schedule.last_epoch, run.frozen)
            if data.has_tests:
                measured["top1"] = run.top1(last)
            progress.history.append({"epoch": progress.epoch, **measured, "seconds": time.perf_counter() - started})
            if falls_to_chance(progress.history, len(data.classes)) and distributed.rank() == 0:
                warnings.warn(_AT_CHANCE, stacklevel=2)
            progress.state = run.state()
            if after_epoch and distributed.rank() == 0:
                after_epoch(progress)
    finally:
        run.close()
    model.load_state_dict(run.trained.state_dict())
    fix_steps_(model.eval())
    return progress.history


class _Networks(NamedTuple):
    """The network that trains, and those it learns from, if any."""

    model: nn.Module
    teacher: nn.Module | None
    original: nn.Module | None


class _Run:
    """The mutable state of a training run."""

    def __init__(self, networks: _Networks, data: Examples, recipe: RecipeConfig, seed: int, mixed: bool) -> None:
        model, self.teacher, _ = networks
        self.frozen = frozen_norms(model)
        self.model, self.data, self.recipe, self.mixed = model, data, recipe, mixed
        distributed.prepare_(model)
        self.network = model
        self.optimizer = optimizer_of(model, recipe)
        self.schedule = schedule_of(self.optimizer, recipe, data.steps(recipe.batch_size))
        self.average = average_of(model, recipe)
        self.together = micro_batch_size(model, recipe.batch_size)
        self.step = torch.compile(_step, backend=COMPILE_BACKEND) if recipe.compile else _step
        mixes = recipe.mixup > 0 or recipe.cutmix > 0
        self.mixer = Mixer(recipe.mixup, recipe.cutmix, len(data.classes)) if mixes else None
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed + distributed.rank())
        self.callbacks = list(_callbacks(networks, recipe, mixed))

    @property
    def trained(self) -> nn.Module:
        """Network that is measured and saved."""
        return self.average.module if self.average else self.model

    def top1(self, last: bool) -> float:
        """Return accuracy on the held-out images, percent: in bfloat16 if it trains in it, but for the last epoch."""
        with torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16, enabled=self.mixed and not last):
            return accuracy(self.trained, self.data)

    def epoch(self, number: int, after_step: Callable[[Step], None] | None) -> dict[str, float]:
        """Train for an epoch, and measure the statistics of averaged weights; return the result of :meth:`_pass`."""
        with _entered(callback.epoch(number) for callback in self.callbacks):
            measured = self._pass(number, after_step)
        if self.average:
            with _entered(callback.beside(self.trained) for callback in self.callbacks):
                recalibrate_(self.trained, self.data, self.together, shared=True, frozen=self.frozen)
        return measured

    def _pass(self, number: int, after_step: Callable[[Step], None] | None) -> dict[str, float]:
        """Make one pass over the training images; return mean loss in nats, learning rate and images per second."""
        self.model.train()
        for name in self.frozen:
            self.model.get_submodule(name).training = False
        self.network = distributed.parallel(self.model)
        started, done = time.perf_counter(), 0
        total, data, mix = 0.0, self.data, self.mixer and not 0 <= self.recipe.mix_epochs <= number
        for images, labels in augmented_epoch(data, self.recipe, self.generator):
            self.optimizer.zero_grad(set_to_none=True)
            if not math.isfinite(here := self._backward(images, labels, self.mixer if mix else None)):
                remedy = "lower recipe.learning_rate or set recipe.clip_gradient=1"
                raise RuleError("the training loss must stay finite", got=here, remedy=remedy)
            if self.recipe.clip_gradient:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_gradient)
            self.optimizer.step()
            follow_learned_steps_(self.model)
            rate = self.recipe.learning_rate * self.schedule.lr_lambdas[0](self.schedule.last_epoch)
            self.schedule.step()
            if self.average:
                self.average.update(self.model, self.schedule.last_epoch)
            total, done = total + here * len(labels), done + len(labels)
            if after_step and distributed.rank() == 0:
                speed = done / (time.perf_counter() - started)
                epochs = number + done / data.count
                after_step(Step(self.schedule.last_epoch, epochs, here, total / done, rate, speed, self.mixed))
        speed = done / (time.perf_counter() - started)
        rate = self.recipe.learning_rate * self.schedule.lr_lambdas[0](self.schedule.last_epoch)
        return {"loss": total / done, "learning_rate": rate, "images_per_second": speed}

    def _backward(self, images: Tensor, labels: Tensor, mixer: Mixer | None) -> float:
        """Add the gradients of this process's part of a batch's mean loss; return the loss of all."""
        recipe, device = self.recipe, next(self.model.parameters()).device
        real, targets = _placed(self.data.real(images.to(device)), recipe, device), labels.to(device)
        if mixer:
            real, targets = mixer(real, targets, self.generator)
        losses: list[Tensor] = []
        parts = [*zip(in_parts(real, self.together), in_parts(targets, self.together), strict=True)]
        for part in parts:
            inputs, target = map(distributed.share, part)
            with distributed.collecting(self.network, more=part is not parts[-1]):
                with torch.autocast(device.type, torch.bfloat16, enabled=self.mixed):
                    loss = distributed.weighted(self._loss(inputs, target), len(target), len(labels))
                (loss * distributed.processes()).backward()  # whose mean over the processes is taken
            losses.append(loss.detach())
        return distributed.total(torch.stack(losses).sum()).item()

    def _loss(self, images: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of some images, with the penalties of the callbacks."""
        for callback in self.callbacks:
            callback.show(images)
        loss = self.step(self.network, images, targets, self.teacher, self.recipe)
        for callback in self.callbacks:
            loss = loss + callback.penalty()
        return loss

    def state(self) -> dict[str, Any]:
        """Return the state that :meth:`restore` needs."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        chance = {"generator": self.generator.get_state(), "torch": distributed.rows(torch.get_rng_state())}
        return parts | chance | {"mixed": self.mixed}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where a run stopped, with this recipe's learning rate."""
        rates = self.schedule.base_lrs
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.schedule.base_lrs = rates
        share = self.schedule.lr_lambdas[0](self.schedule.last_epoch)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        self.generator.set_state(state["generator"])
        torch.set_rng_state(distributed.own_row(state["torch"]))

    def close(self) -> None:
        """Remove everything of the run from the model but the weights."""
        for callback in self.callbacks:
            callback.detach()

    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        return parts | ({"average": self.average} if self.average else {})


def _mixed(networks: _Networks, data: Examples, recipe: RecipeConfig, progress: EpochProgress) -> bool:
    """Return whether a run is in mixed precision: as it began, as the recipe says, or as the first process measures.

    Networks that are quantized stay in float32 unless the recipe says otherwise: 8 bits of mantissa would round the
    sums that their quantizers round.
    """
    if recipe.amp != "auto" or recipe.stage == "qat" or not recipe.epochs:
        return recipe.amp == "true"
    if "mixed" in progress.state:
        return progress.state["mixed"]
    size = micro_batch_size(networks.model, recipe.batch_size)
    real, targets = next(data.sampled(size, size))
    device = next(networks.model.parameters()).device
    real, targets = _placed(real, recipe, device), targets.to(device)

    def loss(tried: nn.Module, mixed: bool) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            return _step(tried.train(), real, targets, networks.teacher, recipe)

    return distributed.from_first(lambda: is_faster(networks.model, loss))


def _callbacks(networks: _Networks, recipe: RecipeConfig, mixed: bool) -> Iterator[Callback]:
    """Yield the callbacks of a recipe, first those that may refuse a network, before anything hooks into it."""
    model, _, original = networks
    if original:
        yield FeatureDistillation(model, original, recipe.imitate, recipe.epochs)
    if recipe.outlier_penalty:
        yield OutlierPenalty(model, recipe.outlier_penalty)
    if mixed:
        yield SlowConvolutions(model)


@contextmanager
def _entered(contexts: Iterable[AbstractContextManager[object]]) -> Iterator[None]:
    """Enter contexts in turn, and leave them in the other order."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def _placed(images: Tensor, recipe: RecipeConfig, device: torch.device) -> Tensor:
    """Return images on the network's device and in the recipe's layout."""
    layout = layout_of(images) if recipe.channels_last else torch.contiguous_format
    return images.to(device).contiguous(memory_format=layout)


def _step(model: nn.Module, images: Tensor, labels: Tensor, teacher: nn.Module | None, recipe: RecipeConfig) -> Tensor:
    teacher_logits = None
    if teacher is not None:
        with torch.no_grad():
            teacher_logits = teacher(images)
    return training_loss(model(images), labels, teacher_logits, recipe.label_smoothing, recipe.distillation)
