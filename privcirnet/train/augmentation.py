"""Changes of a batch of images by a recipe before the network sees it, mixed images and labels included.

torchvision and timm, whose mixup and cutmix are drawn from a generator that a resumed run continues, are imported when
they are needed.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from privcirnet.config import RecipeConfig
from privcirnet.data.augment import crop_and_flip, erase
from privcirnet.data.dataset import Examples, ImageData, batches

_AT_ONCE = 16384
"""Number of images that a GPU augments together: it changes many in the time of a batch."""


def augmented_epoch(
    data: Examples, recipe: RecipeConfig, generator: torch.Generator, at_once: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of an epoch, augmented one by one, or many together.

    Args:
        at_once: approximate number of images that are augmented together; 0: many if on a GPU, else a batch.

    Yields:
        Images as the data set stores them (N, C, H, W), and labels (N,).
    """
    size = recipe.batch_size
    near = isinstance(data, ImageData) and data.train_images.is_cuda
    several = (at_once or (_AT_ONCE if near else 0)) // size
    if several < 2:
        for images, labels in data.epoch(size, generator):
            yield augmented(images, recipe, data.levels, generator), labels
        return
    for images, labels in data.epoch(several * size, generator):
        yield from batches(augmented(images, recipe, data.levels, generator), labels, size)


def augmented(images: Tensor, recipe: RecipeConfig, levels: int, generator: torch.Generator) -> Tensor:
    """Return the images as a recipe changes them: crop, flip, RandAugment, erasing, in this order.

    Args:
        images: uint8 (N, C, H, W).
        recipe: changes to make; by default none, and then nothing is drawn.
        levels: pixels are in [0, levels].
    """
    padding = int(recipe.crop)
    if recipe.crop and not padding:
        from privcirnet.data.augment import random_resized_crop

        images = random_resized_crop(images, recipe.crop, generator)
    if padding or recipe.flip:
        images = crop_and_flip(images, padding, generator, flip=recipe.flip)
    if recipe.rand_augment:
        from privcirnet.data.rand_augment import rand_augment

        strength = recipe.rand_augment, recipe.rand_magnitude, recipe.rand_deviation
        images = rand_augment(images, *strength, levels, generator)
    return erase(images, recipe.erase, generator) if recipe.erase else images


# timm re-exports names without saying so to type checkers.
# pyright: reportPrivateImportUsage=false


class Mixer:
    """Mixup (Zhang et al., 2018) or cutmix (Yun et al., 2019), one of them by chance for each batch.

    Args:
        mixup: alpha of mixup's beta distribution; 0 for none.
        cutmix: alpha of cutmix's; 0 for none.
    """

    def __init__(self, mixup: float, cutmix: float, classes: int) -> None:
        from timm.data import Mixup

        self._mixup = Mixup(mixup, cutmix, label_smoothing=0.0, num_classes=classes)

    def __call__(self, images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Mix a batch with itself in reverse order; of an odd batch the last image stays as it is.

        Args:
            images: real, (N, C, H, W).
            labels: int64 (N,).

        Returns:
            (images, probabilities of the classes (N, classes)).
        """
        images = images.clone()  # a user's own tensors may be these
        targets = torch.nn.functional.one_hot(labels, self._mixup.num_classes).to(images.dtype)
        even = len(images) // 2 * 2
        np.random.seed(int(torch.randint(2**31, (), generator=generator)))  # timm draws from NumPy's own state
        if even:
            mixed, mixed_targets = self._mixup(images[:even], labels[:even])
            images[:even], targets[:even] = mixed, mixed_targets.to(targets.dtype)
        return images, targets
