"""Vision transformers for 32 x 32 and 64 x 64 images, with operations to choose for encrypted inference.

patches -> linear (a strided convolution) -> class token, positions -> blocks -> norm of the class token -> linear. A
block of width C, both halves with a residual: x + proj(attention(qkv(norm1 x))), then x + fc2(act(fc1(norm2 x))).

Two of the usual operations have no cheap encrypted form; each has a polynomial replacement:

- norm="batch": batch norm over the channels of all tokens. In evaluation it is affine with constants, so it is folded
  into the linear layer *behind* it (:mod:`privcirnet.passes.fuse`).
- attention="polynomial": the weights (q k^T / sqrt(d) + c)^2 / tokens instead of softmax(q k^T / sqrt(d)), see
  :mod:`privcirnet.nn.attention`.

Source: Dosovitskiy et al., An Image Is Worth 16x16 Words (ICLR 2021, arXiv 2010.11929); sizes as in PrivCirNet (NeurIPS
2024), Section 4. Departures: no dropout or stochastic depth.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.models.registry import activation as make_activation
from privcirnet.models.registry import downsampled, register
from privcirnet.nn.attention import PolynomialAttention, SoftmaxAttention
from privcirnet.nn.moves import Take, ToTokens
from privcirnet.nn.norm import TokenBatchNorm


@dataclass(frozen=True)
class Size:
    """The dimensions of a vision transformer.

    Attributes:
        image_size: side of the (square) image in pixels, a multiple of `patch`.
        patch: side of a patch in pixels.
        width: C, channels of a token; a multiple of `heads`.
        heads: heads of the attention, each of d = C / heads channels.
        mlp_ratio: channels between fc1 and fc2, as a multiple of C.
    """

    image_size: int
    patch: int
    depth: int
    width: int
    heads: int
    mlp_ratio: int = 2

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise RuleError(
                "the number of heads must divide the width", got=f"{self.heads} for {self.width}", remedy="use fewer"
            )

    @property
    def tokens(self) -> int:
        """Number of patches plus the class token."""
        return downsampled(self.image_size, self.patch) ** 2 + 1


@dataclass(frozen=True)
class Operations:
    """The operations between the linear layers.

    Attributes:
        norm: "layer" or "batch".
        attention: "softmax" or "polynomial".
        activation: see `privcirnet.models.registry`.
    """

    norm: str = "layer"
    attention: str = "softmax"
    activation: str = "gelu"

    def __post_init__(self) -> None:
        for name, choices in (("norm", tuple(_NORMS)), ("attention", ("softmax", "polynomial"))):
            value = getattr(self, name)
            if value not in choices:
                raise RuleError(f"{name} must be a known one", got=repr(value), remedy=f"use {' or '.join(choices)}")


_NORMS: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "batch": TokenBatchNorm}


class Block(nn.Module):
    """Attention and two linear layers, each with a residual.

    Args:
        operations: operations between the linear layers.
    """

    def __init__(self, size: Size, operations: Operations) -> None:
        super().__init__()
        width, hidden = size.width, size.mlp_ratio * size.width
        self.norm1 = _NORMS[operations.norm](width)
        self.qkv = nn.Linear(width, 3 * width)
        softmax, heads = operations.attention == "softmax", size.heads
        self.attention = SoftmaxAttention(heads) if softmax else PolynomialAttention(width, heads, size.tokens)
        self.proj = nn.Linear(width, width)
        self.norm2 = _NORMS[operations.norm](width)
        self.fc1 = nn.Linear(width, hidden)
        self.act = make_activation(operations.activation, hidden, channels_last=True)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output: (N, tokens, C); ``x``: (N, tokens, C)."""
        x = x + self.proj(self.attention(self.qkv(self.norm1(x))))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """The network of this module.

    Args:
        operations: operations between the linear layers.

    Raises:
        RuleError: the patches do not divide the image, or the activation is unknown.
    """

    def __init__(self, size: Size, operations: Operations, num_classes: int = 10, in_chans: int = 3) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(in_chans, size.width, size.patch, stride=size.patch)
        self.tokens = ToTokens(size.tokens, size.width)
        self.blocks = nn.Sequential(*(Block(size, operations) for _ in range(size.depth)))
        self.take = Take()
        self.norm = _NORMS[operations.norm](size.width)
        self.head = nn.Linear(size.width, num_classes)
        nn.init.trunc_normal_(self.tokens.bias, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, S, S)."""
        return self.head(self.norm(self.take(self.blocks(self.tokens(self.patch_embed(x))))))


def _vit(size: Size, **options: Any) -> VisionTransformer:
    """Return a network of this size, except where fields of :class:`Size` or :class:`Operations` are given."""
    parts = [
        {f.name: options.pop(f.name) for f in dataclasses.fields(c) if f.name in options} for c in (Size, Operations)
    ]
    return VisionTransformer(dataclasses.replace(size, **parts[0]), Operations(**parts[1]), **options)


vit_cifar = register("vit_cifar", _vit, Size(32, 4, 7, 256, 4))
"""Vision transformer for 32 x 32 images: 7 blocks of width 256, 65 tokens."""

vit_tiny_imagenet = register("vit_tiny_imagenet", _vit, Size(64, 4, 9, 192, 12), num_classes=200)
"""Vision transformer for Tiny ImageNet's 64 x 64 images: 9 blocks of width 192, 257 tokens."""
