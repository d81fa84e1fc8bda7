"""The block-circulant weight whose outputs are nearest to given targets, in closed form.

Averaging the entries of a circulant diagonal is blind to how the inputs correlate. Here the rows r of a block row
minimise the error of its outputs on the inputs x that the layer will see::

    E sum over i of |z_i - r P_i x - offset|^2  +  ridge |W - W'|^2        P_i: the cyclic shift by i within blocks

    r = (sum over i of  E[z_i (P_i x)^T] + ridge w_i P_i^T)  (sum over i of  E[P_i x (P_i x)^T] + ridge I)^-1

The matrix is the same for all block rows, and it is block circulant itself: an FFT along the blocks leaves b systems of
(inputs / b) unknowns. With uncorrelated inputs and z = W x it is the projection of :func:`.circulant.project`.

Cost: (inputs)^3 / b^2 multiplications, and (inputs)^2 (samples) for the moments.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn, randperm

from privcirnet.nn.functional.circulant import check_block_size, diagonals
from privcirnet.nn.windows import surrounded

_fft, _linalg = cast(Any, torch.fft), cast(Any, torch.linalg)  # torch does not give their types
RIDGE = 1e-2
"""Least weight of the entries' own squared change, in means of the inputs' variances."""


@dataclass
class Moments:
    """Sums over samples of a layer's inputs x and of its target outputs z: float64.

    Attributes:
        inputs: sum of x x^T, (n, n), n the inputs times the kernel's positions.
        cross: sum of z x^T, (out, n).
        input_sum: sum of x, (n,).
        output_sum: sum of z, (out,).
        samples: number of samples.
    """

    inputs: Tensor
    cross: Tensor
    input_sum: Tensor
    output_sum: Tensor
    samples: int = 0

    @classmethod
    def zeros(cls, out: int, into: int, device: torch.device | None = None) -> "Moments":
        """Return the moments of no sample."""
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        return cls(zeros(into, into), zeros(out, into), zeros(into), zeros(out))

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Count samples.

        Args:
            inputs: (samples, n).
            outputs: target outputs, (samples, out).
        """
        self.inputs += inputs.T @ inputs
        self.cross += outputs.T @ inputs
        self.input_sum += inputs.sum(0, dtype=torch.float64)
        self.output_sum += outputs.sum(0, dtype=torch.float64)
        self.samples += len(inputs)

    def towards(self, samples: list[tuple[Tensor, Tensor]]) -> "Moments":
        """Return the moments with other targets for the same inputs: inputs and outputs by batch."""
        cross, total = torch.zeros_like(self.cross), torch.zeros_like(self.output_sum)
        for inputs, outputs in samples:
            cross += outputs.T @ inputs
            total += outputs.sum(0, dtype=torch.float64)
        return Moments(self.inputs, cross, self.input_sum, total, self.samples)

    def through(self, weight: Tensor) -> "Moments":
        """Return the moments with the outputs of a layer as targets: weight (out, in, *kernel)."""
        rows = weight.double().flatten(1)
        return Moments(self.inputs, rows @ self.inputs, self.input_sum, rows @ self.input_sum, self.samples)

    def output_errors(self, change: Tensor) -> Tensor:
        """Return the variance that a change of the weight adds to each output, (out,).

        Its mean is left out, which a bias takes.

        Args:
            change: (out, in, *kernel).
        """
        rows = change.double().flatten(1)
        squares = ((rows @ self.inputs) * rows).sum(1) / self.samples
        return (squares - (rows @ self.input_sum / self.samples).square()).clamp(min=0)

    def ridge(self, block_size: int) -> float:
        """Return the weight of the entries' own change: larger where samples are few for the unknowns."""
        centered = self.inputs.diagonal() / self.samples - (self.input_sum / self.samples).square()
        unknowns = len(self.input_sum) / (block_size * self.samples)
        return max(RIDGE, unknowns / 2) * float(centered.mean().clamp(min=1e-12))


def reachable(targets: Tensor, now: Tensor, low: float, high: float) -> Tensor:
    """Return the values nearest to the present ones that a rectifier maps to the same results as the targets.

    Below ``low`` and above ``high`` all targets are the same to it, so a present value there may stay.

    >>> reachable(torch.tensor([-2.0, -2.0, 3.0, 8.0]), torch.tensor([-1.0, 1.0, -1.0, 7.0]), 0.0, 6.0)
    tensor([-1.,  0.,  3.,  7.])
    """
    inside = torch.where(targets < low, now.clamp(max=low), targets)
    return torch.where(targets > high, now.clamp(min=high), inside)


def fit_rows(
    moments: Moments, weight: Tensor, block_size: int, ridge: float, offset: str = "each"
) -> tuple[Tensor, Tensor]:
    """Return the rows of the block-circulant weight with the nearest outputs, and the offsets of the outputs.

    Args:
        moments: moments of the layer's inputs and targets.
        weight: dense weight W that the ridge holds on to, (out, in, *kernel).
        block_size: b; divides ``out`` and ``in``.
        ridge: weight of a squared change of the weight, in squared outputs.
        offset: "each": every output has one, as with a bias; "block": those of a block share one, as with a batch norm
            that is shared by blocks; "none".

    Returns:
        Rows, (out / b, in, *kernel), and offsets, (out,), float64.

    Raises:
        RuleError: b does not divide the weight's dimensions.

    >>> x, w = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]), torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    >>> moments = Moments.zeros(2, 2)
    >>> moments.add(x, x @ w.T)
    >>> fit_rows(moments, w, block_size=2, ridge=0.0, offset="none")[0]
    tensor([[1.0000, 2.0000]], dtype=torch.float64)
    """
    check_block_size(weight.shape, block_size)
    out, into, kernel = weight.shape[0], weight.shape[1], weight[0, 0].numel()
    second, cross = moments.inputs / moments.samples, moments.cross / moments.samples
    of_inputs, of_outputs = moments.input_sum / moments.samples, moments.output_sum / moments.samples
    if offset == "block":
        of_inputs = _block_means(of_inputs.reshape(into, kernel), block_size).flatten()
        of_outputs = _block_means(of_outputs[:, None], block_size).flatten()
    if offset != "none":
        second = second - torch.outer(of_inputs, of_inputs)
        cross = cross - torch.outer(of_outputs, of_inputs)
    second.diagonal().add_(ridge)
    cross += ridge * weight.double().flatten(1)
    rows = _solved(second, cross.reshape(out, into, kernel), block_size)
    offsets = torch.zeros_like(of_outputs)
    if offset != "none":
        wide = _outputs_of_means(rows, of_inputs.reshape(into, kernel), block_size)
        offsets = of_outputs - wide
    return rows.reshape(out // block_size, into, *weight.shape[2:]), offsets


def _block_means(values: Tensor, block_size: int) -> Tensor:
    """Return values (C, K), each replaced by the mean over its block of b channels."""
    blocks = torch.unflatten(values, 0, (-1, block_size)).mean(1, keepdim=True)
    return blocks.expand(-1, block_size, -1).flatten(0, 1)


def _outputs_of_means(rows: Tensor, means: Tensor, block_size: int) -> Tensor:
    """Return the layer's outputs on the inputs' means, (out,): rows are (out / b, in, K), means (in, K)."""
    shifted = torch.unflatten(means, 0, (-1, block_size))
    shifts = [torch.einsum("pmk,mk->p", rows, shifted.roll(-i, 1).flatten(0, 1)) for i in range(block_size)]
    return torch.stack(shifts, 1).flatten()


def _solved(second: Tensor, cross: Tensor, block_size: int) -> Tensor:
    """Return the rows r, (out / b, in, K), of r H = R: both summed over the rows of a block.

    Args:
        second: E[x x^T], (n, n) with n = in K.
        cross: E[z x^T], (out, in, K).
    """
    _, into, kernel = cross.shape
    groups = into // block_size
    blocks = second.reshape(groups, block_size, kernel, groups, block_size, kernel)
    v = torch.arange(block_size)
    diagonal = torch.stack([blocks[:, (v + d) % block_size, :, :, v].sum(0) for d in range(block_size)])
    systems = _fft.rfft(diagonal.reshape(block_size, groups * kernel, groups * kernel), dim=0)
    summed = torch.unflatten(diagonals(cross, block_size).sum(0), 1, (groups, block_size))  # (out/b, in/b, b, K)
    right = _fft.rfft(summed, dim=2).permute(2, 1, 3, 0).flatten(1, 2)  # (b/2 + 1, in/b K, out/b)
    spectrum = _linalg.solve(systems, right)
    spectrum = spectrum.unflatten(1, (groups, kernel)).permute(3, 1, 0, 2)  # (out/b, in/b, b/2 + 1, K)
    return _fft.irfft(spectrum, block_size, dim=2).flatten(1, 2)


def read_by(layer: nn.Linear | nn.Conv1d | nn.Conv2d, inputs: Tensor) -> Tensor:
    """Return the inputs of each output of a layer: (..., inputs), for a convolution channels first, then the kernel.

    Args:
        layer: layer with groups = 1.
        inputs: (..., inputs), or (N, C, H, W) or (N, C, L) of a convolution.
    """
    if isinstance(layer, nn.Linear):
        return inputs
    if isinstance(layer, nn.Conv1d):
        kernel, dilation, stride = ((1, *size) for size in (layer.kernel_size, layer.dilation, layer.stride))
        return nn.functional.unfold(surrounded(layer, inputs).unsqueeze(2), kernel, dilation, 0, stride).mT
    if layer.kernel_size == (1, 1) and layer.padding == (0, 0):
        return inputs[:, :, :: layer.stride[0], :: layer.stride[1]].movedim(1, -1)
    return nn.functional.unfold(surrounded(layer, inputs), layer.kernel_size, layer.dilation, 0, layer.stride).mT


def channel_axis(layer: nn.Module) -> int:
    """Return the axis of a layer's output channels."""
    return -1 if isinstance(layer, nn.Linear) else 1


def some_of(count: int, generator: Generator, *rows: Tensor) -> tuple[Tensor, ...]:
    """Return ``count`` rows of several tensors, the same of each, drawn without repetition; all if there are fewer."""
    if len(rows[0]) <= count:
        return rows
    drawn = randperm(len(rows[0]), generator=generator)[:count].to(rows[0].device)
    return tuple(tensor[drawn] for tensor in rows)
