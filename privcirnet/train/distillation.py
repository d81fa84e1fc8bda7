"""Distillation: a network learns the soft labels of a teacher that runs once, and its blocks imitate the teacher's.

The loss is linear in its targets, so that one cross-entropy with the mixed labels is the sum of the two that
:func:`.accuracy.training_loss` computes. The teacher does not see how an image is cropped or mirrored. In return an
epoch costs what it costs without a teacher.

Source: the fixed labels of Shen and Xing, "A fast knowledge distillation framework for visual recognition" (ECCV 2022),
Section 3. Departure: one label for an image, not one for each of its crops.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from privcirnet.config import RecipeConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.passes.fuse import fuse
from privcirnet.train.accuracy import predict
from privcirnet.train.callbacks import Callback

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


PEAKS = 0.3
"""Weight of an image's farthest position."""
NEAR, FAR = 1.0, 10.0
"""Largest d with which a position goes on as it is, in the first and in the last epoch."""


class FeatureDistillation(Callback):
    """Blocks of a network with new operations imitate those of the original, block by block, while it trains.

    A row of blocks with polynomial operations explodes: attention multiplies three values that all depend on the
    block's input, the activation squares the result, and a position that is a few times too large becomes infinite
    three blocks later. Soft labels at the end do not tell where that began. So each training step also runs the
    original on the same images, and after each of the blocks a position p of image n is this far off::

        d[n, p] = |x[n, p] - t[n, p]|^2 / (C var t)         x: the network's values, t: the original's, C channels

        penalty = sum over the blocks of   mean over n, p of log(1 + d)
                                       + PEAKS x mean over n of max over p of log(1 + d)

    The logarithm keeps a few exploded positions from ruling the gradient; the peaks keep them from being forgotten, few
    as they are. A position with d above a limit goes on with the original's values, so that the blocks behind it learn
    from a sensible input from the first step on. The limit grows from 1 in the first epoch to FAR in the last, so that
    they learn to stand more and more. In evaluation the network is alone, but its statistics are measured in company,
    with a limit of NEAR: one exploded batch in them spoils every image, though no image explodes with good ones. A
    vision transformer had 85.7 % on CIFAR-10 so, its original 86.0, and with the last epoch's limit 10 %.

    Cost: a forward pass of the original in each step.

    Source: the layerwise distillation of MPCFormer (Li et al., ICLR 2023, Section 3.2), which uses the mean squared
    error. Departures: the logarithm, the peaks, and the replacement of far positions.

    Args:
        model: network that trains; changed only by hooks, and only where :meth:`show` is called before.
        original: network with modules of the same names that return values of the same shapes; left as it was.
        pattern: names of the blocks as a shell pattern, "blocks.*"; a star does not match a dot.
    """

    def __init__(self, model: nn.Module, original: nn.Module, pattern: str, epochs: int) -> None:
        blocks, originals = _matching(model, pattern), _matching(original, pattern)
        if not blocks or blocks.keys() != originals.keys():
            got = f"{pattern} matches {len(blocks)} modules in the network, {len(originals)} in the original"
            remedy = "name modules that both have, as recipe.imitate='blocks.*' in a transformer"
            raise RuleError("a network must imitate blocks that the original has", got=got, remedy=remedy)
        self.original, self.limit, self._epochs = original.eval(), NEAR, epochs
        self._wanted: dict[str, Tensor] = {}
        self._losses: list[Tensor] = []
        self._names = list(blocks)
        self._handles = [originals[name].register_forward_hook(self._remembering(name)) for name in self._names]
        self._handles += self._compared(model)

    def epoch(self, number: int) -> AbstractContextManager[object]:
        """Return a context that does nothing, with the limit of an epoch set."""
        self.limit = NEAR * (FAR / NEAR) ** (number / max(self._epochs - 1, 1))
        return nullcontext()

    def show(self, images: Tensor) -> None:
        """Run the original on the images that the network sees next; ``images``: real, (N, C, S, S)."""
        with torch.no_grad():
            self.original(images)

    def penalty(self) -> Tensor | float:
        """Return the penalty of the images just seen, then forget it; 0 if there were none."""
        losses, self._losses, self._wanted = self._losses, [], {}
        return torch.stack(losses).sum() if losses else 0.0

    @contextmanager
    def beside(self, model: nn.Module) -> Iterator[None]:
        """Keep another network, as a running average of the weights is, near whenever it runs; it gets no penalty.

        Yields:
            Nothing; the other network is alone again afterwards.
        """
        handles = [model.register_forward_pre_hook(lambda _, inputs: self.show(*inputs)), *self._compared(model)]
        usual, self.limit = self.limit, NEAR
        try:
            yield
        finally:
            self.limit = usual
            for handle in handles:
                handle.remove()
            self.penalty()

    def detach(self) -> None:
        """Stop observing."""
        for handle in self._handles:
            handle.remove()

    def _compared(self, model: nn.Module) -> list[RemovableHandle]:
        """Compare a network's blocks with the original's last results, until the handles are removed."""
        return [model.get_submodule(name).register_forward_hook(self._comparing(name)) for name in self._names]

    def _remembering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], values: Tensor) -> None:
            self._wanted[name] = values

        return hook

    def _comparing(self, name: str) -> Callable[..., Tensor]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], values: Tensor) -> Tensor:
            if name not in self._wanted:
                return values
            target = self._wanted.pop(name)
            off = distance(values, target)
            steps = off.log1p().flatten(1)
            self._losses.append(steps.mean() + PEAKS * steps.amax(1).mean())
            return torch.where(off <= self.limit, values, target)

        return hook


def distance(values: Tensor, targets: Tensor) -> Tensor:
    """Return the squared distance of each position, as a share of the variance of the targets.

    Args:
        values: tokens (N, T, C), maps (N, C, H, W), or (N, C).
        targets: targets of the same shape.

    Returns:
        (N, T, 1), (N, 1, H, W) or (N, 1), in float32 at least.
    """
    channels = 1 if targets.ndim == 4 else -1
    wide = torch.promote_types(targets.dtype, torch.float32)
    values, targets = values.to(wide), targets.to(wide)
    return (values - targets).square().mean(channels, keepdim=True) / targets.var()


def _matching(model: nn.Module, pattern: str) -> dict[str, nn.Module]:
    depth = pattern.count(".")
    return {
        name: module
        for name, module in model.named_modules()
        if name and name.count(".") == depth and fnmatchcase(name, pattern)
    }
