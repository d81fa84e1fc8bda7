"""Activations by name: the standard ones, and those that encrypted inference evaluates."""

from torch import nn

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square

_WITHOUT_STATE: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "relu6": nn.ReLU6, "gelu": nn.GELU, "square": Square}

NAMES = (*_WITHOUT_STATE, "aespa")
"""Names accepted by `activation`."""


def activation(name: str, channels: int, channels_last: bool = False) -> nn.Module:
    """Return a new activation.

    Args:
        name: one of `NAMES`; "square" and "aespa" are polynomials of degree 2.
        channels: channels of its input; only "aespa" has parameters for each.
        channels_last: whether its input is (N, tokens, channels) or (N, channels), not (N, channels, H, W).

    >>> activation("square", 16)
    Square()
    """
    if name in _WITHOUT_STATE:
        return _WITHOUT_STATE[name]()
    if name != "aespa":
        raise RuleError("the activation must be a known one", got=repr(name), remedy=f"use one of {', '.join(NAMES)}")
    from privcirnet.nn.activations import Aespa1d, Aespa2d

    return Aespa1d(channels) if channels_last else Aespa2d(channels)
