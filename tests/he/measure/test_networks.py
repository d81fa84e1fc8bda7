"""Whole networks from their layers' shapes alone, against the counts that the papers' cost model gives for them."""

from functools import cache

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.measure.networks import NETWORKS, allowed_block_size, network_shapes
from tests.he.layers import paper_layer

PMULT = 0.135
"""A product in rotations."""
BLOCK_SIZES = (1, 2, 4, 8, 16)
PAPERS = {
    "mobilenetv2_cifar": ((1095, 15440), (694, 7720), (429, 3860), (243, 1930), (125, 1064)),
    "mobilenetv2_imagenet": ((1457, 65996), (1096, 23776), (652, 11808), (364, 5880), (178, 3330)),
    "vit_cifar": ((1630, 55392), (1142, 28802), (743, 14466), (487, 7298), (288, 3714)),
    "vit_tiny_imagenet": ((2845, 166272), (1862, 83136), (1096, 41568), (604, 20784), (225, 10416)),
    "resnet18_cifar": ((1036, 30355), (653, 14156), (345, 7491), (202, 3464), (97, 1934)),
}
"""(HE-Rot, HE-Pmult) at b = 1, 2, 4, 8, 16 by PrivCirNet's published cost model, which rounds rotations down and up alike."""
SIZES = {
    "mobilenetv2_cifar": 32,
    "mobilenetv2_imagenet": 32,
    "vit_cifar": 29,
    "vit_tiny_imagenet": 37,
    "resnet18_cifar": 19,
}


@cache
def counts(shape: LinearShape, b: int) -> tuple[int, int]:
    layer = paper_layer(shape, allowed_block_size(shape, b), 8192)
    return layer.rotations, layer.pmults


@pytest.mark.parametrize("name", PAPERS)
def test_whole_networks_take_no_longer_than_the_papers(name: str) -> None:
    """In the papers' unit, with every sum under encryption as they have it."""
    for b, (rotations, pmults) in zip(BLOCK_SIZES, PAPERS[name], strict=True):
        found = [counts(shape, b) for shape in network_shapes(name).values()]
        ours = sum(r for r, _ in found), sum(p for _, p in found)
        assert ours[0] + PMULT * ours[1] <= rotations + PMULT * pmults, f"b = {b}: {ours}"
        assert ours[1] <= pmults, f"b = {b}: {ours}"


def test_the_papers_networks_are_all_there() -> None:
    assert {name: len(network_shapes(name)) for name in NETWORKS} == SIZES
    assert set(PAPERS) == set(NETWORKS)


def test_mobilenetv2() -> None:
    """The expand and project convolutions of 16 inverted residuals, at 32 x 32."""
    shapes = network_shapes("mobilenetv2_cifar")
    assert list(shapes)[:3] == ["blocks.1.0.expand", "blocks.1.0.project", "blocks.1.1.expand"]
    assert shapes["blocks.1.0.expand"] == LinearShape(32, 32, 16, 96)
    assert shapes["blocks.2.0.expand"] == LinearShape(32, 32, 24, 144)
    assert shapes["blocks.2.0.project"] == LinearShape(16, 16, 144, 32)
    assert shapes["blocks.6.0.expand"] == LinearShape(4, 4, 160, 960)
    assert shapes["blocks.6.0.project"] == LinearShape(4, 4, 960, 320)
    assert {name.rsplit(".", 1)[1] for name in shapes} == {"expand", "project"}
    large = network_shapes("mobilenetv2_imagenet")
    assert list(large) == list(shapes)
    assert large["blocks.1.0.expand"] == LinearShape(112, 112, 16, 96)
    assert large["blocks.6.0.project"] == LinearShape(7, 7, 960, 320)


def test_resnet18() -> None:
    """Two convolutions in each of 8 blocks, and 3 downsamplings."""
    shapes = network_shapes("resnet18_cifar")
    assert list(shapes)[:2] == ["layer1.0.conv1", "layer1.0.conv2"]
    assert sum(name.endswith("downsample") for name in shapes) == 3
    assert shapes["layer1.0.conv1"] == LinearShape(32, 32, 64, 64, 3, 1, 1)
    assert shapes["layer2.0.conv1"] == LinearShape(32, 32, 64, 128, 3, 2, 1)
    assert shapes["layer2.0.downsample"] == LinearShape(32, 32, 64, 128, 1, 2)
    assert shapes["layer4.1.conv2"] == LinearShape(4, 4, 512, 512, 3, 1, 1)


def test_vision_transformers() -> None:
    shapes = network_shapes("vit_cifar")
    assert list(shapes)[:4] == ["blocks.0.qkv", "blocks.0.proj", "blocks.0.fc1", "blocks.0.fc2"]
    assert shapes["blocks.6.qkv"] == LinearShape.gemm(65, 256, 768)
    assert shapes["blocks.6.fc1"] == LinearShape.gemm(65, 256, 512)
    assert shapes["blocks.6.fc2"] == LinearShape.gemm(65, 512, 256)
    assert shapes["head"] == LinearShape.gemm(1, 256, 10)
    tiny = network_shapes("vit_tiny_imagenet")
    assert tiny["blocks.8.proj"] == LinearShape.gemm(257, 192, 192)
    assert tiny["head"] == LinearShape.gemm(1, 192, 200)


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_follow_each_other(name: str) -> None:
    """Each reads what an earlier one writes (depthwise layers in between leave the channels as they are)."""
    written: set[int] = set()
    for shape in network_shapes(name).values():
        assert not written or shape.in_channels in written
        written.add(shape.out_channels)
        if name.startswith("vit"):
            written.add(shape.in_channels)


def test_allowed_block_sizes() -> None:
    assert [allowed_block_size(LinearShape.gemm(1, 256, 10), b) for b in BLOCK_SIZES] == [1, 2, 2, 2, 2]
    assert [allowed_block_size(LinearShape.gemm(1, 24, 144), b) for b in BLOCK_SIZES] == [1, 2, 4, 8, 8]
    assert allowed_block_size(LinearShape(4, 4, 16, 16, 3, 1, 1, groups=16), 16) == 1


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(RuleError, match="network must be a known one: got 'lenet'; use one of mobilenetv2_cifar, "):
        network_shapes("lenet")
