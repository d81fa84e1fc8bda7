"""Handwritten digits, 8 x 8 pixels with 17 levels, 1,797 real images that come with scikit-learn.

Source: the test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998), UCI repository.
"""

import torch
from sklearn import datasets
from sklearn.model_selection import train_test_split

from privcirnet.data.dataset import ImageData


def load_digits(seed: int, test_fraction: float) -> ImageData:
    """Return the digits, split by class proportions.

    Args:
        seed: of the split.
        test_fraction: share of the images that is held out, between 0 and 1.

    Returns:
        Images (N, 1, 8, 8) with pixels in [0, 16].
    """
    pixels, labels = datasets.load_digits(return_X_y=True)
    parts = train_test_split(pixels, labels, test_size=test_fraction, random_state=seed, stratify=labels)
    train_images, test_images, train_labels, test_labels = (torch.from_numpy(part) for part in parts)
    return ImageData(
        train_images.reshape(-1, 1, 8, 8).to(torch.uint8),
        train_labels.long(),
        test_images.reshape(-1, 1, 8, 8).to(torch.uint8),
        test_labels.long(),
        log_step=-4,
        levels=16,
        classes=tuple(str(d) for d in range(10)),
    )
