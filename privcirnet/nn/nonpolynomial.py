"""Non-polynomial activations, under the names that :mod:`..he.program.nonpolynomial` knows them by."""

from torch import nn

FUNCTION_MODULES = nn.ReLU, nn.ReLU6, nn.Hardswish, nn.GELU, nn.SiLU
"""Modules that a client can compute in clear."""
TABLE_MODULES = nn.Hardswish, nn.GELU, nn.SiLU
"""Those that an exact program looks up in tables, so that what goes in is clipped."""


def function_name(module: nn.Module | None) -> str | None:
    """Return the name of an activation's function; None for any other module and for GELU's approximation by tanh.

    >>> function_name(nn.ReLU6()), function_name(nn.GELU(approximate="tanh")), function_name(nn.Flatten())
    ('relu6', None, None)
    """
    if isinstance(module, nn.GELU) and module.approximate != "none":
        return None
    return type(module).__name__.lower() if type(module) in FUNCTION_MODULES else None
