"""The inputs of a layer's outputs, one row for each, as samples for statistics."""

from torch import Generator, Tensor, nn, randperm


def read_by(layer: nn.Linear | nn.Conv2d, inputs: Tensor) -> Tensor:
    """Return the inputs of each output of a layer: (..., inputs), for a convolution channels first, then the kernel.

    Args:
        layer: layer with groups = 1 and padding by zeros.
        inputs: (..., inputs), or (N, C, H, W) of a convolution.
    """
    if isinstance(layer, nn.Linear):
        return inputs
    if layer.kernel_size == (1, 1) and layer.padding == (0, 0):
        return inputs[:, :, :: layer.stride[0], :: layer.stride[1]].movedim(1, -1)
    return nn.functional.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride).mT


def channel_axis(layer: nn.Module) -> int:
    """Return the axis of a layer's output channels."""
    return -1 if isinstance(layer, nn.Linear) else 1


def some_of(count: int, generator: Generator, *rows: Tensor) -> tuple[Tensor, ...]:
    """Return ``count`` rows of several tensors, the same of each, drawn without repetition; all if there are fewer."""
    if len(rows[0]) <= count:
        return rows
    drawn = randperm(len(rows[0]), generator=generator)[:count].to(rows[0].device)
    return tuple(tensor[drawn] for tensor in rows)
