"""Dimensions of a linear layer: a convolution, with groups, or a GEMM as the 1 x 1 convolution that it is."""

from dataclasses import dataclass, replace
from functools import cached_property

from privcirnet.errors import RuleError


@dataclass(frozen=True)
class LinearShape:
    """Dimensions of a convolution or GEMM.

    A GEMM (d1, d2, d3) is the 1 x 1 convolution with C = d2, K = d3 and d1 positions.

    Attributes:
        height: H, input rows (d1 for a GEMM).
        width: W, input columns (1 for a GEMM).
        in_channels: C (d2).
        out_channels: K (d3).
        kernel: R, square kernel.
        stride: same on both axes.
        padding: zeros on each side.
        groups: channel groups; weights are (K, C / groups, R, R). C = K = groups is a depthwise convolution.
    """

    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1

    def __post_init__(self) -> None:
        sizes = self.height, self.width, self.in_channels, self.out_channels, self.kernel, self.stride, self.groups
        if min(sizes) < 1:
            raise RuleError("layer dimensions must be positive", got=self, remedy="give H, W, C, K, R of 1 or more")
        if self.kernel > min(self.height, self.width) + 2 * self.padding or not 0 <= self.padding < max(self.kernel, 1):
            raise RuleError(
                "the kernel must fit the padded input and the padding must be smaller than the kernel",
                got=f"kernel {self.kernel}, padding {self.padding}, input {self.height} x {self.width}",
                remedy="use padding = (kernel - 1) / 2",
            )
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise RuleError(
                "groups must divide both channel counts",
                got=f"{self.groups} for ({self.out_channels}, {self.in_channels})",
                remedy="use a common divisor of both",
            )

    @classmethod
    def gemm(cls, tokens: int, in_features: int, out_features: int) -> "LinearShape":
        """Return the GEMM (d1, d2, d3) = (tokens, in_features, out_features)."""
        return cls(height=tokens, width=1, in_channels=in_features, out_channels=out_features)

    @classmethod
    def product(cls, left: tuple[int, int, int], right: tuple[int, int, int], groups: int) -> "LinearShape":
        """Return the shape of a product of two values (:class:`program.operations.Product`), the right one as weights.

        Args:
            left: shape (g k, A, 1) of what is the layer's input.
            right: shape (g k, B, 1) of what becomes its weights, (g B, k).
            groups: g.
        """
        return cls(left[1], left[2], left[0], groups * right[1] * right[2], groups=groups)

    @property
    def kind(self) -> str:
        """'gemm' for ungrouped 1 x 1 kernels with stride 1, 'depthwise' for a group for each channel, else 'conv'."""
        if self.kernel == self.stride == self.groups == 1:
            return "gemm"
        return "depthwise" if self.groups == self.in_channels == self.out_channels > 1 else "conv"

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of the input, (C, H, W)."""
        return self.in_channels, self.height, self.width

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Shape of the output, (K, H', W')."""
        return self.out_channels, self.rows.outputs, self.columns.outputs

    def weight_shape(self, block_size: int) -> tuple[int, int, int, int]:
        """Return the shape of the stored weight, the first row of each circulant block row.

        Returns:
            (K / b, C / groups, R, R), channels rounded up to whole blocks.
        """
        padded = self.padded(block_size)
        return padded.out_channels // block_size, padded.in_channels // self.groups, self.kernel, self.kernel

    def padded(self, block_size: int) -> "LinearShape":
        """Return the shape with channels up to whole blocks, of the circulant matrix; itself where b divides.

        >>> LinearShape.gemm(1, 845, 100).padded(8).output_shape
        (104, 1, 1)
        """
        if self.groups > 1 or not (self.in_channels % block_size or self.out_channels % block_size):
            return self
        into, out = (-(-channels // block_size) * block_size for channels in (self.in_channels, self.out_channels))
        return replace(self, in_channels=into, out_channels=out)

    def check_block_size(self, block_size: int) -> None:
        """Raise unless the weight can be block circulant: padded to whole blocks, if it has one group."""
        channels = self.out_channels // self.groups, self.in_channels // self.groups
        if self.groups > 1:
            self.check_divides(block_size)
        if not 1 <= block_size <= min(channels):
            got, remedy = f"{block_size} for {channels}", f"use 1 to {min(channels)}"
            raise RuleError("block size must be at most both weight dimensions", got=got, remedy=remedy)

    def check_divides(self, block_size: int) -> None:
        """Raise unless the weight can be block circulant without padding."""
        channels = self.out_channels // self.groups, self.in_channels // self.groups
        if block_size < 1 or any(c % block_size for c in channels):
            got, remedy = f"{block_size} for {channels}", "use a common divisor of both"
            raise RuleError("block size must divide both weight dimensions", got=got, remedy=remedy)

    @cached_property
    def rows(self) -> "Axis":
        """The vertical axis."""
        return Axis(self.height, self.kernel, self.stride, self.padding)

    @cached_property
    def columns(self) -> "Axis":
        """The horizontal axis."""
        return Axis(self.width, self.kernel, self.stride, self.padding)


@dataclass(frozen=True)
class Axis:
    """One image axis of a convolution: y[u] = sum_r w[r] x[stride u + r - padding].

    With r - padding = stride a + phase, that is y[u] = sum over phases and taps a of w x_phase[u + a]: a
    stride-1 correlation of each phase image x_phase[m] = x[stride m + phase].

    Attributes:
        kernel: R.
        stride: s.
        padding: zeros on each side.
    """

    size: int
    kernel: int
    stride: int
    padding: int

    @cached_property
    def outputs(self) -> int:
        """Length of the output."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @cached_property
    def taps(self) -> dict[int, list[tuple[int, int]]]:
        """Pairs (kernel index r, tap offset a) of each phase, phases in ascending order."""
        taps: dict[int, list[tuple[int, int]]] = {}
        for r in range(self.kernel):
            offset, phase = divmod(r - self.padding, self.stride)
            taps.setdefault(phase, []).append((r, offset))
        return dict(sorted(taps.items()))

    @cached_property
    def transformed(self) -> bool:
        """True if a tap reaches beyond its own position, so that the axis needs a transform."""
        return any(offset for taps in self.taps.values() for _, offset in taps)

    def stored(self, phase: int) -> int:
        """Return the number of values of a phase image; ``phase``: in [0, stride)."""
        return len(range(phase, self.size, self.stride))

    def reach(self, phase: int) -> tuple[int, int]:
        """Return the (lowest, highest) tap offset of a phase; ``phase``: one of :attr:`taps`."""
        offsets = [offset for _, offset in self.taps[phase]]
        return min(offsets), max(offsets)
