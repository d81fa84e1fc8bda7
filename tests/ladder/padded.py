"""LoLa's kind of network: channels and vectors that no block divides, so that its circulant layers are padded."""

import torch
from torch import Tensor, nn

from privcirnet.nn.activations import Square
from privcirnet.passes.convert import circulant_
from tests.ladder.case import Case, measured

BLOCKS = {"0": 1, "2": 4, "6": 8, "8": 4}
"""5 -> 7 channels as 8 x 8; 63 values as 64 to 13 as 16; 13 as 16 to 5 as 8."""


def build(images: Tensor) -> nn.Module:
    """Squares between layers; the largest layer behind a pool, whose divisor is folded into it."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 5, 3, padding=1), nn.Conv2d(5, 7, 3, stride=2, padding=1)
    model = nn.Sequential(
        *(first, Square(), second, Square()),
        *(nn.AvgPool2d(1), nn.Flatten(), nn.Linear(63, 13), Square(), nn.Linear(13, 5)),
    )
    return circulant_(model.double(), BLOCKS, pad=True)


PADDED = Case("padded", (1, 6, 6), build, BLOCKS, target=measured())
