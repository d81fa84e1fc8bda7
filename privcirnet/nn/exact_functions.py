"""Functions that are no polynomials: tables of few bits, and softmax and layer norms in pieces that run exactly.

The pieces are sums, maxima, products, and tables. Tokens are (N, T, C), channels last. The divisor is one number for
each token (and head): its inverse is looked up, and multiplies in the end.

* Layer norm: d = C x - sum(x), local and exact; then d / sqrt(sum of d^2). Factors of d cancel, so it is divided by the
  power of two beside C. The factor sqrt(C) and the norm's own scales and shifts are left to the layers behind. A group
  norm is one of tokens, of C H W / g values each. An RMS norm has d = x.
* Softmax attention: e = exp(s - max s) of scores s = q k^T, in which q is divided by sqrt(d) already; then
  (e v) / sum(e). The largest e is 1, so that neither a sum nor its inverse can leave its table, whatever the scores.

The least bits of quantized results are those with which CIFAR-10's ViT loses nothing
(docs/mathematics.md, "Softmax and layer norm").
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from privcirnet.nn.activations import Square
from privcirnet.nn.moves import HeadProduct, HeadTranspose, Rearrange, ScoreConstants, SliceChannels


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


class Centered(nn.Module):
    """C x - sum(x) over the C channels of each token, divided by the least power of two that is not under C.

    Args:
        width: C.

    >>> Centered(2)(torch.tensor([[[1.0, 4.0]]])).tolist()
    [[[-1.5, 1.5]]]
    """

    result_bits = 12

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    @property
    def bits(self) -> int:
        """log2 of its divisor."""
        return (self.width - 1).bit_length()

    def forward(self, x: Tensor) -> Tensor:
        """Return the centered channels: (N, T, C); ``x``: (N, T, C)."""
        return (self.width * x - x.sum(-1, keepdim=True)) * 2.0**-self.bits


class Rounded(nn.Identity):
    """A value that is quantized once more, for its square."""

    result_bits = 12


class SubtractMax(nn.Module):
    """Distance of each channel below the largest of its group: x - max x, at most 0.

    Args:
        groups: g, side by side.

    >>> SubtractMax(2)(torch.tensor([[[1.0, 4.0, 3.0, 2.0]]])).tolist()
    [[[-3.0, 0.0, 0.0, -1.0]]]
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Return the differences: (N, T, g k); ``x``: (N, T, g k)."""
        grouped = x.unflatten(-1, (self.groups, -1))
        return (grouped - grouped.amax(-1, keepdim=True)).flatten(-2)


class SumChannels(nn.Module):
    """Sums over the channels of each group, and a constant.

    Args:
        groups: g, side by side.
        constant: constant that is added.

    >>> SumChannels(2)(torch.tensor([[[1.0, 4.0, 3.0, 2.0]]])).tolist()
    [[[5.0, 5.0]]]
    """

    bias: Tensor

    def __init__(self, groups: int, constant: float = 0.0) -> None:
        super().__init__()
        self.groups = groups
        self.bias = nn.Parameter(torch.full((groups,), constant), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums: (N, T, g); ``x``: (N, T, g k)."""
        return x.unflatten(-1, (self.groups, -1)).sum(-1) + self.bias


class DecomposedLayerNorm(nn.Module):
    """d / sqrt(sum of d^2 + c) of tokens with d = :class:`Centered`: a layer norm's result divided by sqrt(C).

    An RMS norm has d = x.

    Args:
        width: C.
        tokens: T.
        eps: constant that the norm adds to the variance.
        enter: module that turns the input into tokens; None for tokens.
        leave: modules that follow on normalized tokens, one after the other.
        centers: whether the mean is subtracted.

    >>> x = torch.randn(2, 3, 5)
    >>> torch.allclose(5**0.5 * DecomposedLayerNorm(5, 3, 1e-5)(x), nn.functional.layer_norm(x, (5,)), atol=1e-5)
    True
    """

    def __init__(
        self,
        width: int,
        tokens: int,
        eps: float,
        enter: Rearrange | None = None,
        leave: Sequence[nn.Module] = (),
        *,
        centers: bool = True,
    ) -> None:
        super().__init__()
        self.enter, self.leave = enter, nn.Sequential(*leave)
        centered = Centered(width)
        self.centered, self.square = centered if centers else Rounded(), Square()
        self.total = SumChannels(1, eps * width**3 / 4.0**centered.bits if centers else eps * width)
        self.inverse, self.turn, self.turn_inverse = TableFunction("rsqrt"), HeadTranspose(1), HeadTranspose(1)
        self.scale, self.back = HeadProduct(tokens), HeadTranspose(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized tokens, (N, T, C), behind ``leave``; ``x``: tokens, or the input of ``enter``."""
        centered = self.centered(x if self.enter is None else self.enter(x))
        inverse = self.inverse(self.total(self.square(centered)))
        return self.leave(self.back(self.scale(self.turn(centered), self.turn_inverse(inverse))))


class DecomposedSoftmax(nn.Module):
    """e / sum(e) with e = exp(x - max x): a softmax over the channels of each token.

    Args:
        tokens: T.

    >>> x = torch.randn(2, 3, 5)
    >>> torch.allclose(DecomposedSoftmax(3)(x), x.softmax(-1), atol=1e-6)
    True
    """

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.below, self.exponential = SubtractMax(1), TableFunction("exp")
        self.total, self.inverse = SumChannels(1), TableFunction("reciprocal")
        self.turn, self.turn_inverse = HeadTranspose(1), HeadTranspose(1)
        self.scale, self.back = HeadProduct(tokens), HeadTranspose(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the softmax: (N, T, C); ``x``: (N, T, C)."""
        exponentials = self.exponential(self.below(x))
        inverse = self.inverse(self.total(exponentials))
        return self.back(self.scale(self.turn(exponentials), self.turn_inverse(inverse)))


def constants_of_scores(constants: Tensor | None) -> nn.Module:
    """Return the modules that add constants to scores (N, T, g K), one after the other.

    Args:
        constants: (g, T, K), minus infinity where a pair is masked; None for none.
    """
    if constants is None:
        return nn.Sequential()
    heads, tokens, keys = constants.shape
    rows = constants.transpose(0, 1).flatten(1)
    rest = Rearrange.like(lambda x: x[:, 1:], (tokens + 1, heads * keys), channels_last=True)
    return nn.Sequential(ScoreConstants(rows, rows.isinf()), rest)


class SoftmaxPieces(nn.Module):
    """softmax(q k^T + constants) v for each head.

    Args:
        width: C.
        heads: number of heads, each of C / heads channels.
        tokens: T.
        constants: constants of each head and pair, (heads, T, K), minus infinity where it is masked; None for none.
    """

    def __init__(self, width: int, heads: int, tokens: int, constants: Tensor | None = None) -> None:
        super().__init__()
        self.query, self.key, self.value = (SliceChannels(i * width, width) for i in range(3))
        self.scores, self.below, self.exponential = HeadProduct(heads), SubtractMax(heads), TableFunction("exp")
        self.constants = constants_of_scores(constants)
        self.turn, self.gather = HeadTranspose(heads), HeadProduct(heads, result_bits=13)
        self.total, self.inverse = SumChannels(heads), TableFunction("reciprocal")
        self.turn_gathered, self.turn_inverse = HeadTranspose(heads), HeadTranspose(heads)
        self.scale, self.back = HeadProduct(heads * tokens), HeadTranspose(heads)

    def forward(self, qkv: Tensor) -> Tensor:
        """Return softmax attention of tokens: (N, T, C); ``qkv``: queries, keys and values, (N, T, 3 C)."""
        return self.attend(self.query(qkv), self.key(qkv), self.value(qkv))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return softmax attention, (N, T, C), of three values (N, T, C)."""
        weights = self.exponential(self.below(self.constants(self.scores(query, key))))
        gathered, inverse = self.gather(weights, self.turn(value)), self.inverse(self.total(weights))
        return self.back(self.scale(self.turn_gathered(gathered), self.turn_inverse(inverse)))


class SeparateSoftmaxPieces(SoftmaxPieces):
    """:class:`SoftmaxPieces` of queries, keys and values apart.

    Args:
        enter: modules on the queries before, one after the other.
    """

    def __init__(
        self, heads: int, tokens: int, constants: Tensor | None = None, enter: Sequence[nn.Module] = ()
    ) -> None:
        super().__init__(1, heads, tokens, constants)
        del self.query, self.key, self.value
        self.enter = nn.Sequential(*enter)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # type: ignore[override]
        return self.attend(self.enter(query), key, value)
