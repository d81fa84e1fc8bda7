"""Handwritten digits, 8 x 8 pixels with 17 levels, 1,797 real images that come with scikit-learn.

Source: the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998), UCI repository.
"""

from importlib import metadata

import numpy as np

from privcirnet.data.cache import Allocate

LOG_STEP, LEVELS = -4, 16
"""Real pixel = integer x 2^LOG_STEP; integers are in [0, LEVELS]."""


def release() -> str:
    """Return the version of scikit-learn, on which the images and their split depend; it is not imported."""
    return metadata.version("scikit-learn")


def decode_digits(seed: int, test_fraction: float, allocate: Allocate) -> None:
    """Write the digits into arrays, split by class proportions. Images are (N, 1, 8, 8).

    Args:
        test_fraction: share of the images that is held out, between 0 and 1.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    train, test, *truth = train_test_split(pixels, labels, test_size=test_fraction, random_state=seed, stratify=labels)
    arrays = allocate(tuple("0123456789"), (len(train), len(test)), (1, 8, 8))
    for part, images, numbers in zip(("train", "test"), (train, test), truth, strict=True):
        arrays[f"{part}_images"][...] = np.reshape(images, (-1, 1, 8, 8))
        arrays[f"{part}_labels"][...] = numbers
