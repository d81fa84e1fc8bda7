"""A data set in memory, as integers: real pixel = integer x 2^log_step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

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

    :class:`ImageData` stores integers; :class:`~privcirnet.data.own.OwnImages` holds those of a user's own program.
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
