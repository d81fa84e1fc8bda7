"""Ranges of values on images, and images whose values explode."""

import torch
from torch import nn

from privcirnet.nn.activations import Square
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from tests.nn.quantized import INPUT_STEP, pixels


def test_an_image_whose_values_explode_does_not_set_the_steps():
    """Of 64 images one has 30 times the values of the others, squared twice."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), Square(), nn.Conv2d(4, 4, 1), Square(), nn.Flatten(), nn.Linear(4 * 36, 2)
    )
    usual = pixels(64)
    exploding = torch.cat([usual, 30 * usual[:1]])
    steps = [
        [int(m.log_step) for m in quantize(fuse(model), [images], INPUT_STEP).modules() if hasattr(m, "log_step")]
        for images in (usual, exploding)
    ]
    assert steps[0] == steps[1]
