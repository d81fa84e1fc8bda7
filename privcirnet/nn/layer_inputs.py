"""The inputs of a layer's outputs, one row for each: what statistics of its inputs are made of."""

from torch import Generator, Tensor, nn, randperm


def read_by(layer: nn.Linear | nn.Conv2d, inputs: Tensor) -> Tensor:
    """Return what each output of a layer reads: (..., inputs), for a convolution channels first, then the kernel.

    Args:
        layer: with groups = 1 and padding by zeros.
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


def some_of(most: int, generator: Generator, *rows: Tensor) -> tuple[Tensor, ...]:
    """Return the same rows of several tensors, drawn without repetition, if they have more than that."""
    if len(rows[0]) <= most:
        return rows
    drawn = randperm(len(rows[0]), generator=generator)[:most].to(rows[0].device)
    return tuple(tensor[drawn] for tensor in rows)
