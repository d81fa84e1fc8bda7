"""The project's networks by name, and what they share: activations by name, sizes after their strides.

timm, slow to import, learns of the networks only when a program uses its names too.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square

_WITHOUT_STATE: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "relu6": nn.ReLU6, "gelu": nn.GELU, "square": Square}

ACTIVATIONS = (*_WITHOUT_STATE, "aespa")
"""Names accepted by `activation`."""


def activation(name: str, channels: int, channels_last: bool = False) -> nn.Module:
    """Return a new activation.

    Args:
        name: one of `ACTIVATIONS`; "square" and "aespa" are polynomials of degree 2.
        channels: channels of its input; only "aespa" has parameters for each.
        channels_last: whether its input is (N, tokens, channels) or (N, channels), not (N, channels, H, W).

    >>> activation("square", 16)
    Square()
    """
    if name in _WITHOUT_STATE:
        return _WITHOUT_STATE[name]()
    if name != "aespa":
        raise RuleError(
            "the activation must be a known one", got=repr(name), remedy=f"use one of {', '.join(ACTIVATIONS)}"
        )
    from privcirnet.nn.activations import Aespa1d, Aespa2d

    return Aespa1d(channels) if channels_last else Aespa2d(channels)


Network = TypeVar("Network", bound=nn.Module)

ENTRY_POINTS: dict[str, Callable[..., nn.Module]] = {}
"""Name -> function that takes a network's arguments and returns it with random weights."""
_OF_TIMM = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
"""Arguments that only timm's downloads use."""


def register(name: str, network: Callable[..., Network], *first: Any, **defaults: Any) -> Callable[..., Network]:
    """Register a network by name.

    Returns:
        Function that returns the network, called as timm's entry points are: ``(pretrained=False, **arguments)``.
    """

    def make(pretrained: bool = False, **arguments: Any) -> Network:
        if pretrained:
            raise RuleError(
                "there are no pretrained weights for the networks of privcirnet.models",
                got=f"pretrained=True for {name!r}",
                remedy="create it without, and train it",
            )
        return network(*first, **defaults | {key: value for key, value in arguments.items() if key not in _OF_TIMM})

    make.__name__, make.__qualname__, make.__module__ = name, name, network.__module__
    ENTRY_POINTS[name] = make
    return make


@functools.cache
def register_with_timm() -> None:
    """Make the networks models of timm, so that ``timm.create_model("digits_resnet")`` creates one.

    Further calls do nothing: timm warns of a name that it knows already.
    """
    from timm.models import register_model

    for entry_point in ENTRY_POINTS.values():
        register_model(entry_point)


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
