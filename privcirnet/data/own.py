"""Images of a user's own program, as its network reads them: tensors, or a loader of batches."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from privcirnet.data.dataset import TEST_BATCH, batch_count, batches, slices
from privcirnet.errors import RuleError, listed

Pairs = tuple[Tensor, Tensor] | Iterable[Any]
"""Images (N, C, H, W) and labels (N,), or an iterable of such batches that can be started again, as a DataLoader."""


class OwnImages:
    """Labelled images for training and search (:class:`~privcirnet.data.dataset.Examples`).

    Batches of a loader are taken as they come: their size, order and augmentation are the loader's. A single image
    joins the batch before, as in :func:`~privcirnet.data.dataset.batches`.

    Args:
        tests: held-out images; None for none.
        logits: logits of the network for one image (1, C, H, W), whose number is that of the classes.
    """

    levels = 0

    def __init__(self, train: Pairs, tests: Pairs | None, logits: Callable[[Tensor], Tensor]) -> None:
        self._train, self._tests = _checked(train), None if tests is None else _checked(tests)
        self.first = next(_pairs(self._train))[0][:1]
        self.classes = tuple(map(str, range(logits(self.first).shape[1])))
        check_classes(len(self.classes))
        for source in (self._train, self._tests):
            if isinstance(source, tuple):
                self._check(source, *source)

    @property
    def count(self) -> int:
        """Number of training images; an estimate for a loader whose data set has no length."""
        if isinstance(self._train, tuple):
            return len(self._train[0])
        try:
            return len(self._train.dataset)  # type: ignore[attr-defined]
        except (AttributeError, TypeError):
            return self.steps(1) * len(next(_pairs(self._train))[0])

    @property
    def has_tests(self) -> bool:
        return self._tests is not None

    def steps(self, size: int) -> int:
        """Return the number of batches in an epoch.

        Args:
            size: images in a batch of tensors; a loader has its own.
        """
        if isinstance(self._train, tuple):
            return batch_count(len(self._train[0]), size)
        try:
            return len(self._train)  # type: ignore[arg-type]
        except TypeError:
            got, remedy = type(self._train).__name__, "give a DataLoader of a data set with a length, or tensors"
            raise RuleError("a loader must know its number of batches", got=got, remedy=remedy) from None

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield training images and labels; a loader determines size and order of its batches."""
        return self._batches(self._train, size, generator)

    def real(self, images: Tensor) -> Tensor:
        """Return the images themselves."""
        return images

    def sampled(self, count: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield training images and labels, of a loader the first ones."""
        generator = torch.Generator().manual_seed(0)
        for images, labels in self._batches(self._train, size, generator):
            part_count = min(count, len(images))
            yield from ((images[part], labels[part]) for part in slices(part_count, size))
            count -= part_count
            if not count:
                return

    def tests(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(()) if self._tests is None else self._batches(self._tests, TEST_BATCH)

    def _batches(
        self, source: Pairs, size: int, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        if isinstance(source, tuple):
            images, labels = source
            yield from batches(images, _numbers(labels), size, generator)
            return
        waiting: tuple[Tensor, Tensor] | None = None
        for images, labels in _pairs(source):
            self._check(source, images, labels)
            batch = images, _numbers(labels)
            if waiting and len(images) == 1 < len(waiting[0]):  # norms cannot train on one
                batch, waiting = (torch.cat([waiting[0], images]), torch.cat([waiting[1], batch[1]])), None
            if waiting:
                yield waiting
            waiting = batch
        if waiting:
            yield waiting

    def _check(self, source: Pairs, images: Tensor, labels: Tensor) -> None:
        """Raise unless images are finite, each with a label in range; probabilities of classes are labels too."""
        held_out = "" if source is self._train else "validation "
        _check_finite(f"{held_out}images", images)
        _check_finite(f"{held_out}labels", labels)
        count = len(self.classes)
        labels = _numbers(labels)
        if labels.is_floating_point() and labels.ndim < 2:
            broken = labels[labels != labels.round()].flatten()[0]
            remedy = "give the number of each image's class, or probabilities (N, classes)"
            raise RuleError("labels must be numbers of classes", got=f"{broken:g}", remedy=remedy)
        shape = (len(images), count) if labels.is_floating_point() else (len(images),)
        if tuple(labels.shape) != shape:
            got, remedy = f"labels {tuple(labels.shape)} for {len(images)} images", "give the number of its class"
            raise RuleError("each image must have one label", got=got, remedy=remedy)
        if labels.is_floating_point():
            return
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= count:
            got, remedy = f"{low} to {high}", "number the classes from 0, or give the network more logits"
            raise RuleError(f"labels must be in [0, {count - 1}], as the network has logits", got=got, remedy=remedy)


def _checked(source: Pairs) -> Pairs:
    if _is_pair(source):
        return source[0], source[1]  # type: ignore[index]
    again = isinstance(source, Iterable) and not isinstance(source, Tensor | Iterator | str | tuple | list)
    if not again:
        rule, remedy = "images must be tensors (images, labels) or a loader", "give two tensors, or a DataLoader"
        raise RuleError(rule, got=_said(source), remedy=remedy)
    return source


def check_classes(logits: int) -> None:
    """Raise unless a network has logits to choose a class from, which training on labels needs."""
    if logits < 2:
        remedy = "give it a logit for each class, or train one output by a loop of your own: fuse and compile take it"
        raise RuleError("a network must have two logits or more", got=logits, remedy=remedy)


def _pairs(source: Pairs) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a source's tensors, or its batches, once each is known to be one."""
    empty = True
    for pair in [source] if isinstance(source, tuple) else source:
        if not _is_pair(pair):
            got, remedy = _said(pair), "let its data set return an image and its class"
            raise RuleError("a loader must give batches of images and labels", got=got, remedy=remedy)
        images, labels = pair
        if images.ndim not in (2, 4):
            got, remedy = f"shape {tuple(images.shape)}", "reshape them, sequences (N, C, L) to (N, C, 1, L)"
            raise RuleError("images must be (N, C, H, W), or a table (N, F)", got=got, remedy=remedy)
        if len(images):
            empty = False
            yield images, labels
    if empty:
        raise RuleError("there must be images", got="none", remedy="give at least one batch")


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(part, Tensor) for part in value)


def _said(value: Any) -> str:
    parts = f" of {', '.join(type(part).__name__ for part in value)}" if isinstance(value, tuple | list) else ""
    return f"{type(value).__name__}{parts}"


def _check_finite(what: str, values: Tensor) -> None:
    """Raise unless each image, or its label, is finite: norms never forget one that is not."""
    if (finite := values.isfinite()).all():
        return
    broken = (~finite.reshape(len(values), -1).all(1)).nonzero().flatten().tolist()
    got = f"NaN or infinity in number {listed([str(i) for i in broken])} of {len(values)}"
    raise RuleError(f"{what} must be finite", got=got, remedy="leave such images out")


def _numbers(labels: Tensor) -> Tensor:
    """Return labels as torch's losses take them: probabilities as they are, classes of any type as int64."""
    whole = not labels.is_floating_point() or (labels.ndim < 2 and torch.equal(labels, labels.round()))
    return labels.long() if whole else labels
