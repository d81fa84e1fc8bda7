"""A small MobileNetV2 with AESPA: depthwise layers, linear bottlenecks, residuals, seven squares in a row."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.models.mobilenetv2 import InvertedResidual
from privcirnet.models.registry import activation
from privcirnet.passes.convert import circulant_, uniform_sizes
from tests.ladder.case import Case, measured, unsettle_

DEPTHWISE = {"first.depthwise": (8, 1), "down.depthwise": (24, 2), "same.depthwise": (36, 1)}
"""Name -> channels, stride."""
BLOCKS = {"stem": 1, "first.project": 4, "same.expand": 4, "same.project": 4, "last": 4, "classifier": 4}
_SQUARES = 7


class SmallMobileNet(nn.Module):
    """MobileNetV2's blocks of every kind on maps of odd size, with channels that are no powers of two."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.stem_act = activation("aespa", 8)
        self.first = InvertedResidual(8, 12, 1, 1, "aespa")
        self.down = InvertedResidual(12, 12, 2, 2, "aespa")
        self.same = InvertedResidual(12, 12, 1, 3, "aespa")
        self.last, self.last_norm = nn.Conv2d(12, 20, 1, bias=False), nn.BatchNorm2d(20)
        self.last_act, self.pool, self.flatten = activation("aespa", 20), nn.AvgPool2d(4), nn.Flatten()
        self.classifier = nn.Linear(20, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.same(self.down(self.first(self.stem_act(self.stem_norm(self.stem(x))))))
        return self.classifier(self.flatten(self.pool(self.last_act(self.last_norm(self.last(x))))))


@contextmanager
def plans_with_several_ciphertexts() -> Iterator[None]:
    """One ciphertext holds these small maps whole: depthwise layers are split into tiles and unlike pieces."""

    def in_pieces(shape, b, profile, link, lengths):
        if shape.kind != "depthwise":
            return cheapest_layer(shape, b, profile, link)
        _, height, width = shape.output_shape
        tile = (height // 2 + 1, width)
        tiles = SpectralLayout(shape, b, tile).tiles
        some = shape.groups // 3
        pieces = *(Piece(some, tiles, 1, 1),) * 2, Piece(shape.groups - 2 * some, tiles, 4, 1)
        return SpectralLayer(shape, b, profile.ring_degree, tile, pieces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privcirnet.he.planning.plan_program.planned_layer", in_pieces)
        yield


def build(images: Tensor) -> nn.Module:
    """Circulant, its norms and activations measured and no longer what they start from."""
    torch.manual_seed(0)
    dense = SmallMobileNet().double()
    return unsettle_(circulant_(dense, uniform_sizes(dense, 4)), images)


MOBILENETV2 = Case(
    "mobilenetv2",
    (1, 7, 7),
    build,
    BLOCKS,
    folding=1e-10 * 2**_SQUARES,  # an error doubles in each square
    target=measured(margin_bits=1),
    plans=plans_with_several_ciphertexts,
)
COMPOSED = replace(
    MOBILENETV2,
    name="mobilenetv2, composed",
    build=lambda images: MOBILENETV2.circulant,
    blocks={name: b for name, b in BLOCKS.items() if not name.endswith(".project")},
    composed=("down.expand", "same.expand", "last"),
)
"""Pairs of project and expand as one layer each: alone, with y1 kept for a residual, with a residual as a second input."""
