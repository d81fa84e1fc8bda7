"""Non-polynomial activations, under the names that :mod:`..he.program.nonpolynomial` knows them by."""

from torch import nn

_NAMES: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardswish: "hardswish",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
}


def function_name(module: nn.Module | None) -> str | None:
    """Return the name of an activation's function; None for any other module and for GELU's approximation by tanh.

    >>> function_name(nn.ReLU6()), function_name(nn.GELU(approximate="tanh")), function_name(nn.Flatten())
    ('relu6', None, None)
    """
    if isinstance(module, nn.GELU) and module.approximate != "none":
        return None
    return _NAMES.get(type(module)) if module is not None else None
