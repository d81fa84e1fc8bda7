"""A data set in memory, as integers: real pixel = integer x 2^log_step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

TEST_BATCH = 256
"""Held-out images that run together."""


class Examples(Protocol):
    """What training and search read: labelled images, stored in any form, in batches.

    :class:`ImageData` stores integers; :class:`~privcirnet.data.own.OwnImages` is what a user's own program has.
    """

    @property
    def classes(self) -> Sequence[str]:
        """Names by label."""
        ...

    @property
    def levels(self) -> int:
        """Stored pixels are in [0, levels]; 0 if they are not integers."""
        ...

    @property
    def count(self) -> int:
        """Number of training images."""
        ...

    @property
    def has_tests(self) -> bool:
        """Whether there are held-out images."""
        ...

    def steps(self, size: int) -> int:
        """Return the number of batches in an epoch.

        Args:
            size: images in a batch.
        """
        ...

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield stored training images and labels in a new order.

        Args:
            size: images in a batch.
            generator: the order is drawn from it.
        """
        ...

    def real(self, images: Tensor) -> Tensor:
        """Return stored images as the input of a network.

        Args:
            images: (N, C, H, W).
        """
        ...

    def sampled(self, count: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield training images, as the input of a network, and labels; the same ones at every call.

        Args:
            count: number of images at most.
            size: images in a batch at most.
        """
        ...

    def tests(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the held-out images, as the input of a network, and labels."""
        ...


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
        """(C, H, W) of an image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @property
    def count(self) -> int:
        """Number of training images."""
        return len(self.train_labels)

    @property
    def has_tests(self) -> bool:
        """Whether there are held-out images."""
        return len(self.test_labels) > 0

    def steps(self, size: int) -> int:
        """Return the number of batches in an epoch.

        Args:
            size: images in a batch.
        """
        return -(-self.count // size)

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield training images as integers, and labels, in a new order.

        Args:
            size: images in a batch; the last one may have fewer.
            generator: the order is drawn from it.
        """
        return batches(self.train_images, self.train_labels, size, generator)

    def sampled(self, count: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images of :meth:`sample` as the input of a network, and labels.

        Args:
            count: number of images at most.
            size: images in a batch; the last one may have fewer.
        """
        return ((self.real(images), labels) for images, labels in batches(*self.sample(count), size))

    def tests(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the held-out images as the input of a network, and labels."""
        pairs = batches(self.test_images, self.test_labels, TEST_BATCH)
        return ((self.real(images), labels) for images, labels in pairs)

    def real(self, images: Tensor) -> Tensor:
        """Return integer images as the input of a network.

        Args:
            images: uint8 (N, C, H, W).

        Returns:
            float32 (N, C, H, W).
        """
        return images.float() * 2.0**self.log_step

    def sample(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the same random selection of training images at every call; files often come sorted by class.

        Args:
            count: number of images; all, in random order, if there are no more.

        Returns:
            Images (count, C, H, W) and labels (count,).
        """
        chosen = torch.randperm(len(self.train_labels), generator=torch.Generator().manual_seed(0))[:count]
        return self.train_images[chosen], self.train_labels[chosen]

    def held_out(self, count: int) -> tuple[Tensor, Tensor]:
        """Return held-out images, evenly spread over their order because files often come sorted by class.

        Args:
            count: number of images; all of them if there are no more.

        Returns:
            Images (count, C, H, W) and labels (count,).
        """
        available = len(self.test_labels)
        wanted = min(count, available)
        chosen = torch.arange(wanted) * available // max(1, wanted)
        return self.test_images[chosen], self.test_labels[chosen]

    def part(self, count: int) -> "ImageData":
        """Return the same data with fewer training images, those of :meth:`sample`.

        Args:
            count: number of training images.
        """
        images, labels = self.sample(count)
        return replace(self, train_images=images, train_labels=labels)


def batches(
    images: Tensor, labels: Tensor, size: int, generator: torch.Generator | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches in order, or shuffled by a generator.

    Args:
        images: (N, C, H, W).
        labels: (N,).
        size: images in a batch; the last one may have fewer.
        generator: a permutation is drawn from it; None keeps the order.

    Yields:
        Images (n, C, H, W) and labels (n,).
    """
    order = torch.arange(len(labels)) if generator is None else torch.randperm(len(labels), generator=generator)
    for indices in order.split(size):
        yield images[indices], labels[indices]
