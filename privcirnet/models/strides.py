"""Arguments of timm's entry points, and sizes that all networks compute."""

from typing import Any

from privcirnet.errors import RuleError

_OF_TIMM = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")


def own_arguments(name: str, pretrained: bool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are the network's own.

    Args:
        arguments: keyword arguments of the entry point; those that only timm's downloads use are dropped.

    >>> own_arguments("resnet18_cifar", False, {"width": 16, "cache_dir": None})
    {'width': 16}
    """
    if pretrained:
        raise RuleError(
            "there are no pretrained weights for the networks of privcirnet.models",
            got=f"pretrained=True for {name!r}",
            remedy="create it without, and train it",
        )
    return {key: value for key, value in arguments.items() if key not in _OF_TIMM}


def downsampled(image_size: int, stride: int) -> int:
    """Return the side of the last map, in pixels.

    Args:
        image_size: side of the (square) image, in pixels.

    >>> downsampled(32, 8)
    4
    """
    if image_size < stride or image_size % stride:
        raise RuleError(
            "the network's strides must divide the image size",
            got=f"{image_size} for a stride of {stride}",
            remedy=f"use a multiple of {stride}",
        )
    return image_size // stride
