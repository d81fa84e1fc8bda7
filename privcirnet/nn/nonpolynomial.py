"""Functions of single numbers that have a table and no module of torch, and the ends of tables."""

from torch import Tensor, nn


class TableFunction(nn.Module):
    """A function of single numbers that has a table but no module of torch, in double precision, as its table has it.

    Args:
        function: "exp", "reciprocal" or "rsqrt".

    >>> import torch
    >>> TableFunction("rsqrt")(torch.tensor([4.0, 16.0])).tolist()
    [0.5, 0.25]
    """

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function

    @property
    def input_bits(self) -> int:
        """Least number of bits of its argument when it is quantized."""
        return 8 if self.function == "exp" else 12

    @property
    def result_bits(self) -> int:
        """Least number of bits of its result: more than others where it goes from large to small."""
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


def table_ends(function: str, bits: int) -> tuple[int, int]:
    """Return the least and the largest integer of the table of a function whose argument has so many bits.

    exp is for arguments up to 0, reciprocal and rsqrt for positive ones; results of rsqrt then differ 16 times at most.

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
