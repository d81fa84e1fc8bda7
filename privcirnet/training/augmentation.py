"""What a recipe does to a batch of images before the network sees it; torchvision is imported when it is needed."""

import torch
from torch import Tensor

from privcirnet.config import RecipeConfig
from privcirnet.data.augment import crop_and_flip, erase


def augmented(images: Tensor, recipe: RecipeConfig, levels: int, generator: torch.Generator) -> Tensor:
    """Return the images as a recipe changes them: crop, flip, RandAugment, erasing, in this order.

    Args:
        images: uint8 (N, C, H, W).
        recipe: what is done; by default nothing, and then nothing is drawn.
        levels: pixels are in [0, levels].
        generator: of all chances.

    Returns:
        uint8 (N, C, H, W).
    """
    if recipe.crop_scale:
        from privcirnet.data.resized_crop import random_resized_crop

        images = random_resized_crop(images, recipe.crop_scale, generator)
    if recipe.crop_padding or recipe.flip:
        images = crop_and_flip(images, recipe.crop_padding, generator, flip=recipe.flip)
    if recipe.rand_augment:
        from privcirnet.data.rand_augment import Strength, rand_augment

        strength = Strength(recipe.rand_augment, recipe.rand_magnitude, recipe.rand_deviation)
        images = rand_augment(images, strength, levels, generator)
    return erase(images, recipe.erase, generator) if recipe.erase else images
