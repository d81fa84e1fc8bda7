"""A data set in memory, as integers (real pixel = integer x 2^log_step), or a user's own images.

Those are tensors or a loader of batches, as the user's network reads them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from privcirnet.errors import RuleError, listed

_SOME = 64
"""Number of training images that are drawn together."""
TEST_BATCH = 256
"""Number of held-out images that run together on a CPU."""
_GPU_TEST_BATCH = 2048
"""Number of held-out images that run together on a GPU, which small batches leave idle."""
_GPU_SHARE = 1 / 4
"""Largest share of a GPU's free memory that images may take."""


class Examples(Protocol):
    """The input of training and search: labelled images, stored in any form, in batches.

    :class:`ImageData` stores integers; :class:`~privcirnet.data.dataset.OwnImages` holds those of a user's own program.
    """

    @property
    def classes(self) -> Sequence[str]:
        """Names by label."""
        ...

    @property
    def levels(self) -> int:
        """Largest stored pixel, of [0, levels]; 0 if pixels are not integers."""
        ...

    @property
    def count(self) -> int:
        """Number of training images."""
        ...

    @property
    def has_tests(self) -> bool:
        """Return whether there are held-out images."""
        ...

    def steps(self, size: int) -> int:
        """Return the number of batches in an epoch."""
        ...

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield stored training images and labels in a new order.

        Args:
            size: images in a batch; the last one may have fewer, or one more.
        """
        ...

    def real(self, images: Tensor) -> Tensor:
        """Return stored images as the input of a network; ``images``: (N, C, H, W)."""
        ...

    def sampled(self, count: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield training images, as the input of a network, and labels; the same ones at every call.

        Args:
            size: images in a batch; the last one may have fewer, or one more.
        """
        ...

    def tests(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the held-out images, as the input of a network, and labels."""
        ...


def some_images(data: Examples, count: int) -> Tensor:
    """Return some training images, as the input of a network; the same ones at every call, all if there are no more."""
    return torch.cat([images for images, _ in data.sampled(min(count, data.count), _SOME)])


@dataclass(frozen=True)
class ImageData:
    """The training and held-out images of a data set.

    Attributes:
        train_images: uint8 (N, C, H, W).
        train_labels: int64 (N,).
        test_images: uint8 (M, C, H, W).
        test_labels: int64 (M,).
        log_step: real pixel = integer x 2^log_step.
        levels: pixels are in [0, levels].
        classes: names by label.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    log_step: int
    levels: int
    classes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of an image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @property
    def count(self) -> int:
        return len(self.train_labels)

    @property
    def has_tests(self) -> bool:
        return len(self.test_labels) > 0

    def steps(self, size: int) -> int:
        return batch_count(self.count, size)

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of integer images and labels in a new order."""
        return batches(self.train_images, self.train_labels, size, generator)

    def sampled(self, count: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images of :meth:`sample`, as the input of a network, and labels."""
        return ((self.real(images), labels) for images, labels in batches(*self.sample(count), size))

    def tests(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = _GPU_TEST_BATCH if self.test_images.is_cuda else TEST_BATCH
        pairs = batches(self.test_images, self.test_labels, size)
        return ((self.real(images), labels) for images, labels in pairs)

    def real(self, images: Tensor) -> Tensor:
        """Return stored images, uint8, as float32 (N, C, H, W)."""
        return images.float() * 2.0**self.log_step

    def sample(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the same random selection of training images at every call; files often come sorted by class.

        Args:
            count: number of images; all, in random order, if there are no more.

        Returns:
            Images (count, C, H, W) and labels (count,).
        """
        indices = torch.randperm(len(self.train_labels), generator=torch.Generator().manual_seed(0))[:count]
        return self.train_images[indices], self.train_labels[indices]

    def held_out(self, count: int) -> tuple[Tensor, Tensor]:
        """Return held-out images, evenly spread over their order because files often come sorted by class.

        Args:
            count: number of images; all of them if there are no more.

        Returns:
            Images (count, C, H, W) and labels (count,).
        """
        available = len(self.test_labels)
        total = min(count, available)
        indices = torch.arange(total) * available // max(1, total)
        return self.test_images[indices], self.test_labels[indices]

    def near(self, device: torch.device) -> "ImageData":
        """Return the same data in a GPU's memory, where it is then augmented, if it takes no more than a quarter of it.

        Args:
            device: device of training; a CPU has the data already.
        """
        if device.type != "cuda":
            return self
        names = "train_images", "train_labels", "test_images", "test_labels"
        free, _ = torch.cuda.mem_get_info(device)
        if sum(getattr(self, name).nbytes for name in names) > _GPU_SHARE * free:
            return self
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def part(self, count: int) -> "ImageData":
        """Return the same data with fewer training images, those of :meth:`sample`."""
        images, labels = self.sample(count)
        return replace(self, train_images=images, train_labels=labels)

    def limited(self, count: int) -> "ImageData":
        """Return the same data with so many images of each split at most, from :meth:`sample` and :meth:`held_out`."""
        images, labels = self.held_out(count)
        return replace(self.part(count), test_images=images, test_labels=labels)


def batches(
    images: Tensor, labels: Tensor, size: int, generator: torch.Generator | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches in order, or shuffled by a generator: images (n, C, H, W) and labels (n,), of (N, ...).

    An image that would be left alone joins the batch before: norms cannot train on one.

    Args:
        size: images in a batch; the last one may have fewer, or one more.
        generator: a permutation is drawn from it; None keeps the order.
    """
    order = torch.arange(len(labels)) if generator is None else torch.randperm(len(labels), generator=generator)
    order = order.to(images.device)
    for part in slices(len(labels), size):
        yield images[order[part]], labels[order[part]]


def slices(count: int, size: int) -> list[slice]:
    """Return the slices of a data set's batches, of which none has one image unless all have.

    Args:
        size: size of a batch; the last one may be smaller, or one larger.

    >>> slices(9, 4)
    [slice(0, 4, None), slice(4, 9, None)]
    """
    starts = range(0, batch_count(count, size) * size, size)
    return [slice(start, count if start == starts[-1] else start + size) for start in starts]


def batch_count(count: int, size: int) -> int:
    """Return the number of batches of a data set.

    >>> [batch_count(count, 4) for count in (0, 1, 8, 9, 10)]
    [0, 1, 2, 2, 3]
    """
    alone = size > 1 and count > size and count % size == 1
    return -(-count // size) - alone


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
        if images.ndim not in (2, 3, 4):
            got, remedy = f"shape {tuple(images.shape)}", "give batches of them, and sequences as (N, C, L)"
            raise RuleError("images must be (N, C, H, W), signals (N, C, L) or a table (N, F)", got=got, remedy=remedy)
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
