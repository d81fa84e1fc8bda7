"""Dimensions of a linear layer: a convolution, with groups, or a GEMM as the 1 x 1 convolution that it is."""

from dataclasses import astuple, dataclass, replace
from functools import cached_property

from privcirnet.errors import RuleError


@dataclass(frozen=True)
class Window:
    """Windows of a convolution along one axis.

    Attributes:
        kernel: positions of a window.
        stride: positions from one window to the next.
        padding: zeros ahead of the map.
        behind: zeros behind it; None for as many as ahead.
    """

    kernel: int = 1
    stride: int = 1
    padding: int = 0
    behind: int | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """Zeros ahead of the map and behind it."""
        return self.padding, self.padding if self.behind is None else self.behind

    def fits(self, size: int) -> bool:
        """Return whether a map of a size has a window, and none is of zeros alone."""
        return self.kernel <= size + sum(self.ends) and 0 <= min(self.ends) <= max(self.ends) < max(self.kernel, 1)


@dataclass(frozen=True)
class LinearShape:
    """Dimensions of a convolution or GEMM.

    A GEMM (d1, d2, d3) is the 1 x 1 convolution with C = d2, K = d3 and d1 positions.

    Attributes:
        height: H, input rows (d1 for a GEMM).
        width: W, input columns (1 for a GEMM).
        in_channels: C (d2).
        out_channels: K (d3).
        kernel: R, rows of the kernel; its columns, too, without ``across``. The next two are the same.
        stride: rows from one window to the next.
        padding: zeros above.
        groups: channel groups; weights are (K, C / groups, R, S). C = K = groups is a depthwise convolution.
        behind: zeros below; None for as many as above.
        across: windows along the columns, S of a kernel; None where they are those of the rows.
    """

    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1
    behind: int | None = None
    across: Window | None = None

    def __post_init__(self) -> None:
        windows = down, across = self.windows
        sizes = self.height, self.width, self.in_channels, self.out_channels, self.groups
        if min(*sizes, *(min(window.kernel, window.stride) for window in windows)) < 1:
            raise RuleError("layer dimensions must be positive", got=self, remedy="give H, W, C, K, R of 1 or more")
        if not (down.fits(self.height) and across.fits(self.width)):
            kernel, padding = f"kernel {self.kernel}", f"padding {self.padding}"
            if across != Window(self.kernel, self.stride, self.padding):
                kernel = f"kernel {down.kernel} x {across.kernel}"
                padding = "padding {} and {} of rows, {} and {} of columns".format(*down.ends, *across.ends)
            raise RuleError(
                "the kernel must fit the padded input and the padding must be smaller than the kernel",
                got=f"{kernel}, {padding}, input {self.height} x {self.width}",
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
    def convolution(
        cls, input_shape: tuple[int, int, int], out_channels: int, windows: tuple[Window, Window], groups: int = 1
    ) -> "LinearShape":
        """Return the shape of a convolution on (C, H, W).

        Args:
            windows: those along the rows and along the columns.

        >>> LinearShape.convolution((1, 1, 30), 4, (Window(), Window(5, 2, 2, 1))).output_shape
        (4, 1, 15)
        """
        channels, height, width = input_shape
        down, across = (window if len(set(window.ends)) > 1 else replace(window, behind=None) for window in windows)
        sizes = down.kernel, down.stride, down.padding, groups, down.behind
        return cls(height, width, channels, out_channels, *sizes, None if across == down else across)

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
        if self.pointwise and self.groups == 1:
            return "gemm"
        return "depthwise" if self.groups == self.in_channels == self.out_channels > 1 else "conv"

    @property
    def windows(self) -> tuple[Window, Window]:
        """Windows along the rows and along the columns."""
        down = Window(self.kernel, self.stride, self.padding, self.behind)
        return down, self.across or down

    @property
    def kernels(self) -> tuple[int, int]:
        """Rows and columns of the kernel, (R, S)."""
        down, across = self.windows
        return down.kernel, across.kernel

    @property
    def strides(self) -> tuple[int, int]:
        """Rows and columns from one window to the next."""
        down, across = self.windows
        return down.stride, across.stride

    @property
    def taps(self) -> int:
        """Weights of a kernel, R S."""
        return self.kernels[0] * self.kernels[1]

    @property
    def pointwise(self) -> bool:
        """True if each position is computed by itself: 1 x 1 kernels with stride 1."""
        return self.kernels == self.strides == (1, 1)

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
            (K / b, C / groups, R, S), channels rounded up to whole blocks.
        """
        padded = self.padded(block_size)
        return padded.out_channels // block_size, padded.in_channels // self.groups, *self.kernels

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
        return Axis(self.height, *astuple(self.windows[0]))

    @cached_property
    def columns(self) -> "Axis":
        """The horizontal axis."""
        return Axis(self.width, *astuple(self.windows[1]))


def by_axis(sizes: tuple[int, int]) -> str:
    """Return a size of rows and columns in words.

    >>> by_axis((3, 3)), by_axis((1, 5))
    ('3', '1 x 5')
    """
    return str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]} x {sizes[1]}"


@dataclass(frozen=True)
class Axis:
    """One image axis of a convolution: y[u] = sum_r w[r] x[stride u + r - padding].

    With r - padding = stride a + phase, that is y[u] = sum over phases and taps a of w x_phase[u + a]: a
    stride-1 correlation of each phase image x_phase[m] = x[stride m + phase].

    Attributes:
        kernel: R.
        stride: s.
        padding: zeros ahead.
        behind: zeros behind; None for as many as ahead.
    """

    size: int
    kernel: int
    stride: int
    padding: int
    behind: int | None = None

    @cached_property
    def outputs(self) -> int:
        """Length of the output."""
        zeros = self.padding + (self.padding if self.behind is None else self.behind)
        return (self.size + zeros - self.kernel) // self.stride + 1

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
