"""Non-polynomial activations, under the names that :mod:`..he.program.nonpolynomial` knows them by."""

from torch import nn

FUNCTION_MODULES = (
    *(nn.ReLU, nn.ReLU6, nn.Hardswish, nn.GELU, nn.SiLU, nn.Mish, nn.LeakyReLU),
    *(nn.Sigmoid, nn.Hardsigmoid, nn.Tanh),
)
"""Activations and gates that have a name."""
_SLOPE = 0.01
"""Of a leaky ReLU: torch's own."""


def function_name(module: nn.Module | None) -> str | None:
    """Return the name of an activation's function; None for any other module, and for a leaky ReLU of another slope.

    >>> function_name(nn.ReLU6()), function_name(nn.GELU(approximate="tanh")), function_name(nn.LeakyReLU(0.2))
    ('relu6', 'gelu_tanh', None)
    """
    if isinstance(module, nn.GELU) and module.approximate != "none":
        return "gelu_tanh"
    if isinstance(module, nn.LeakyReLU) and module.negative_slope != _SLOPE:
        return None
    return type(module).__name__.lower() if type(module) in FUNCTION_MODULES else None


def has_table(module: nn.Module | None) -> bool:
    """Return whether an exact program looks an activation up in a table, so that what goes in is clipped."""
    return function_name(module) not in (None, "relu", "relu6")
