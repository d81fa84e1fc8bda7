"""Data sets as they are loaded, compared with what was written."""

import numpy as np
import torch

from privcirnet.data import Files, load


def loaded(name, root, **settings):
    """Without a cache."""
    return load(name, files=Files(str(root), cache="", **settings))


def check(data, expected, classes=None):
    """Images of both parts, and labels by class if there are as many of each."""
    for part in ("train", "test"):
        pixels, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        assert pixels.dtype == torch.uint8
        assert labels.dtype == torch.int64
        assert np.array_equal(pixels.numpy(), expected[part])
        if classes:
            assert labels.tolist() == sorted(list(range(len(classes))) * (len(labels) // len(classes)))
    assert classes is None or data.classes == tuple(classes)
    assert (data.log_step, data.levels) == (-8, 255)
