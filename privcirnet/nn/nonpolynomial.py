"""Non-polynomial activations, under the names that :mod:`..he.program.nonpolynomial` knows them by."""

from torch import Tensor, nn

FUNCTION_MODULES = (
    *(nn.ReLU, nn.ReLU6, nn.Hardswish, nn.GELU, nn.SiLU, nn.Mish, nn.LeakyReLU),
    *(nn.Sigmoid, nn.Hardsigmoid, nn.Tanh, nn.SELU, nn.ELU, nn.CELU, nn.Softplus, nn.Hardtanh),
)
"""Activations and gates that have a name."""
_SLOPE = 0.01
"""Of a leaky ReLU: torch's own."""
_LEAST_THRESHOLD = 20
"""From where a softplus is linear; torch's own: what differs is under 2^-28."""


class Tabulated(nn.Module):
    """A function of single numbers that has a table but no module of torch, in double precision, as its table has it.

    Args:
        function: "exp", "reciprocal" or "rsqrt".

    >>> import torch
    >>> Tabulated("rsqrt")(torch.tensor([4.0, 16.0])).tolist()
    [0.5, 0.25]
    """

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function

    @property
    def input_bits(self) -> int:
        """That its argument has at least when it is quantized."""
        return 8 if self.function == "exp" else 12

    @property
    def result_bits(self) -> int:
        """Likewise its result: more than others where it goes from large to small."""
        return {"exp": 9, "reciprocal": 13, "rsqrt": 12}[self.function]

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's values, of the shape of ``x``."""
        values = x.double()
        match self.function:
            case "exp":
                return values.exp().to(x.dtype)
            case "reciprocal":
                return (1 / values).to(x.dtype)
            case _:
                return (1 / values.sqrt()).to(x.dtype)

    def extra_repr(self) -> str:
        return self.function


def function_name(module: nn.Module | None) -> str | None:  # noqa: PLR0911
    """Return the name of an activation's function, with its numbers; None for any other module.

    >>> function_name(nn.ReLU6()), function_name(nn.GELU(approximate="tanh")), function_name(nn.LeakyReLU(0.2))
    ('relu6', 'gelu_tanh', 'leakyrelu(0.2)')
    """
    match module:
        case Tabulated():
            return module.function
        case _ if type(module) not in FUNCTION_MODULES:
            return None
        case nn.GELU(approximate="tanh"):
            return "gelu_tanh"
        case nn.LeakyReLU(negative_slope=slope) if slope != _SLOPE:
            return f"leakyrelu({float(slope)!r})"
        case nn.ELU(alpha=alpha) | nn.CELU(alpha=alpha):
            return f"{type(module).__name__.lower()}({float(alpha)!r})" if alpha > 0 else None
        case nn.Softplus(beta=beta, threshold=threshold):
            return f"softplus({float(beta)!r})" if beta > 0 and threshold >= _LEAST_THRESHOLD else None
        case nn.ReLU6():
            return "relu6"
        case nn.Hardtanh(min_val=low, max_val=high):
            return f"hardtanh({float(low)!r},{float(high)!r})"
        case _:
            return type(module).__name__.lower()


def table_ends(function: str, bits: int) -> tuple[int, int]:
    """Return the least and the largest integer of the table of a function whose argument has so many bits.

    exp is for what is not positive, reciprocal and rsqrt for what is; results of rsqrt then differ 16 times at most.

    >>> table_ends("gelu", 8), table_ends("exp", 8), table_ends("reciprocal", 12), table_ends("rsqrt", 12)
    ((-128, 127), (-255, 0), (1, 4095), (16, 4095))
    """
    match function:
        case "exp":
            return 1 - 2**bits, 0
        case "reciprocal" | "rsqrt":
            return max(1, 2 ** (bits - 8)) if function == "rsqrt" else 1, 2**bits - 1
        case _:
            return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def has_table(module: nn.Module | None) -> bool:
    """Return whether an exact program looks an activation up in a table, so that what goes in is clipped."""
    return function_name(module) not in (None, "relu", "relu6")


def is_polynomial(network: nn.Module) -> bool:
    """Return whether a network has no activation, gate or maximum that is no polynomial."""
    return not any(function_name(module) or isinstance(module, nn.MaxPool2d) for module in network.modules())
