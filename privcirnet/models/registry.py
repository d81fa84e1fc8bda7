"""The project's networks by name. timm, slow to import, learns of them only when a program uses its names too."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from privcirnet.errors import RuleError

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
