"""Handwritten digits, 8 x 8 pixels with 17 levels, 1,797 real images that come with scikit-learn.

Source: the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998), UCI repository.
"""

from importlib import metadata

import numpy as np

from privcirnet.data.images import Allocate

LOG_STEP, LEVELS = -4, 16
"""Real pixel = integer x 2^LOG_STEP; integers are in [0, LEVELS]."""


def release() -> str:
    """Return the version of scikit-learn, on which the images and their split depend; it is not imported."""
    return metadata.version("scikit-learn")


def decode_digits(seed: int, test_fraction: float, allocate: Allocate) -> tuple[str, ...]:
    """Write the digits into arrays, split by class proportions. Images are (N, 1, 8, 8).

    Args:
        seed: of the split.
        test_fraction: share of the images that is held out, between 0 and 1.
        allocate: makes each array.

    Returns:
        The classes, "0" to "9".
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    split = train_test_split(pixels, labels, test_size=test_fraction, random_state=seed, stratify=labels)
    parts = [np.asarray(part) for part in split]
    for part, images, truth in zip(("train", "test"), parts[:2], parts[2:], strict=True):
        allocate(f"{part}_images", (len(images), 1, 8, 8), np.uint8)[...] = images.reshape(-1, 1, 8, 8)
        allocate(f"{part}_labels", truth.shape, np.int64)[...] = truth
    return tuple(str(digit) for digit in range(10))
