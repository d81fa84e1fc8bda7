"""The project's networks by name. timm, slow to import, is told of them only when a program uses its names too."""

import functools
from collections.abc import Callable
from typing import TypeVar

from torch import nn

EntryPoint = TypeVar("EntryPoint", bound=Callable[..., nn.Module])

ENTRY_POINTS: dict[str, Callable[..., nn.Module]] = {}
"""Name -> function that takes a network's arguments and returns it with random weights."""


def register(entry_point: EntryPoint) -> EntryPoint:
    """Register a network under the name of the function that makes it.

    Args:
        entry_point: with the signature of timm's, ``(pretrained=False, **arguments)``.

    Returns:
        The same function.
    """
    ENTRY_POINTS[entry_point.__name__] = entry_point
    return entry_point


@functools.cache
def register_with_timm() -> None:
    """Make the networks models of timm, so that ``timm.create_model("digits_resnet")`` creates one.

    Further calls do nothing: timm warns of a name that it knows already.
    """
    from timm.models import register_model

    for entry_point in ENTRY_POINTS.values():
        register_model(entry_point)
