"""Whole networks from their layers' shapes alone, against the counts that the papers' cost model gives for them."""

from functools import cache

import pytest

from benchmarks.bench.networks import NETWORKS, allowed_block_size, network_shapes
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from tests.he.layer_examples import paper_layer

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


SHAPES = {
    "mobilenetv2_cifar": (32, {"1.0.expand": (32, 16, 96), "2.0.project": (16, 144, 32), "6.0.project": (4, 960, 320)}),
    "mobilenetv2_imagenet": (32, {"1.0.expand": (112, 16, 96), "6.0.project": (7, 960, 320)}),
    "resnet18_cifar": (
        19,
        {
            "layer1.0.conv1": (32, 64, 64, 3, 1, 1),
            "layer2.0.conv1": (32, 64, 128, 3, 2, 1),
            "layer2.0.downsample": (32, 64, 128, 1, 2),
            "layer4.1.conv2": (4, 512, 512, 3, 1, 1),
        },
    ),
    "vit_cifar": (
        29,
        {"6.qkv": (65, 256, 768), "6.fc1": (65, 256, 512), "6.fc2": (65, 512, 256), "head": (1, 256, 10)},
    ),
    "vit_tiny_imagenet": (37, {"8.proj": (257, 192, 192), "head": (1, 192, 200)}),
}
"""Layers, and some of them: side, channels in and out, kernel, stride, padding; or tokens, channels in and out."""


@pytest.mark.parametrize("name", NETWORKS)
def test_the_papers_networks_are_all_there(name: str) -> None:
    found, (count, some) = network_shapes(name), SHAPES[name]
    assert len(found) == count
    for layer, (side, *sizes) in some.items():
        expected = LinearShape.gemm(side, *sizes) if name.startswith("vit") else LinearShape(side, side, *sizes)
        assert found.get(layer, found.get(f"blocks.{layer}")) == expected, layer
    assert set(PAPERS) == set(NETWORKS)


def test_allowed_block_sizes() -> None:
    assert [allowed_block_size(LinearShape.gemm(1, 256, 10), b) for b in BLOCK_SIZES] == [1, 2, 2, 2, 2]
    assert [allowed_block_size(LinearShape.gemm(1, 24, 144), b) for b in BLOCK_SIZES] == [1, 2, 4, 8, 8]
    assert allowed_block_size(LinearShape(4, 4, 16, 16, 3, 1, 1, groups=16), 16) == 1


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(RuleError, match="must be a known one: got 'lenet'; use one of"):
        network_shapes("lenet")
