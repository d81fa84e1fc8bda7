"""Layer shapes of the papers' networks: the linear layers that may become circulant, in order.

Source: PrivCirNet, section 4 and its published cost model. MobileNetV2: the expand and project 1 x 1 convolutions of
its 16 inverted residuals with expansion 6 (the stem, the first block, the last 1 x 1 convolution and the classifier
stay dense). ResNet-18: both convolutions and the downsampling of each block. ViT: qkv, proj, fc1 and fc2 of each block,
and the head, which sees the class token only.
"""

from collections.abc import Callable

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape

Shapes = dict[str, LinearShape]

_MOBILENET_STAGES = ((24, 2), (32, 3), (64, 4), (96, 3), (160, 3), (320, 1))
"""(channels, blocks) of each stage after the first."""


def mobilenetv2(size: int, strides: tuple[int, ...]) -> Shapes:
    """Return MobileNetV2's searched layers by name; ``strides``: of each stage after the first."""
    shapes: Shapes = {}
    channels = 16
    for stage, ((out, blocks), first_stride) in enumerate(zip(_MOBILENET_STAGES, strides, strict=True), 1):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            hidden, smaller = 6 * channels, size // stride
            shapes[f"blocks.{stage}.{block}.expand"] = LinearShape(size, size, channels, hidden)
            shapes[f"blocks.{stage}.{block}.project"] = LinearShape(smaller, smaller, hidden, out)
            size, channels = smaller, out
    return shapes


def resnet18(size: int) -> Shapes:
    """Return ResNet-18's block convolutions by name; ``size``: height and width of the map after the stem."""
    shapes: Shapes = {}
    channels = 64
    for stage, out in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            stride = 2 if stage > 1 and block == 0 else 1
            name = f"layer{stage}.{block}"
            shapes[f"{name}.conv1"] = LinearShape(size, size, channels, out, 3, stride, 1)
            if stride > 1:
                shapes[f"{name}.downsample"] = LinearShape(size, size, channels, out, 1, stride)
            size, channels = size // stride, out
            shapes[f"{name}.conv2"] = LinearShape(size, size, out, out, 3, 1, 1)
    return shapes


def vit(tokens: int, width: int, blocks: int, classes: int, mlp_ratio: int = 2) -> Shapes:
    """Return a vision transformer's linear layers by name.

    Args:
        classes: outputs of the head, which sees one token.
        mlp_ratio: hidden features of an MLP over ``width``.
    """
    shapes: Shapes = {}
    for block in range(blocks):
        sizes = {"qkv": (width, 3 * width), "proj": (width, width)}
        sizes |= {"fc1": (width, mlp_ratio * width), "fc2": (mlp_ratio * width, width)}
        shapes |= {f"blocks.{block}.{name}": LinearShape.gemm(tokens, *size) for name, size in sizes.items()}
    return shapes | {"head": LinearShape.gemm(1, width, classes)}


NETWORKS: dict[str, Callable[[], Shapes]] = {
    "mobilenetv2_cifar": lambda: mobilenetv2(32, (1, 2, 2, 1, 2, 1)),
    "mobilenetv2_imagenet": lambda: mobilenetv2(112, (2, 2, 2, 1, 2, 1)),
    "vit_cifar": lambda: vit(65, 256, 7, 10),
    "vit_tiny_imagenet": lambda: vit(257, 192, 9, 200),
    "resnet18_cifar": lambda: resnet18(32),
}
"""Name -> its shapes. mobilenetv2_cifar is also MobileNetV2 for Tiny ImageNet, whose stem has stride 2."""


def network_shapes(name: str) -> Shapes:
    """Return the shapes of a reference network by layer name; ``name``: one of :data:`NETWORKS`."""
    if name not in NETWORKS:
        raise RuleError("the network must be a known one", got=repr(name), remedy=f"use one of {', '.join(NETWORKS)}")
    return NETWORKS[name]()


def allowed_block_size(shape: LinearShape, block_size: int) -> int:
    """Return the largest of a block size, a half, a quarter ... of it that divides both channel counts of a group."""
    channels = shape.in_channels // shape.groups, shape.out_channels // shape.groups
    while any(c % block_size for c in channels):
        block_size //= 2
    return block_size
