"""Block-circulant weights: their compact form, and the projection of a dense weight onto them.

A weight of shape (out, in, *kernel) is cut, at every kernel position, into blocks of b x b entries. It is block
circulant when each block is constant along its circulant diagonals::

    block[i, j] = w[(i - j) mod b]        so  block @ x  is the circular convolution of w (its first column) with x

    b = 4:   w0 w3 w2 w1        first row of the block; each row below is the one above, rotated right by one
             w1 w0 w3 w2
             w2 w1 w0 w3
             w3 w2 w1 w0

The stored form, called `rows` everywhere, holds the first row of every block row: ``rows = W[::b]``, of shape
(out / b, in, *kernel). It has the rank and the memory formats of the dense weight, and 1 / b of its entries.

Cost: `expand` writes the out * in entries of the dense weight once; `project` reads them b times in strides.

Source: PrivCirNet (NeurIPS 2024), Section 3.3. Departure: where the importance of a whole diagonal is zero, which
leaves the paper's weighted mean undefined, `project` takes the plain mean.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from privcirnet.errors import RuleError

BLOCK_SIZES = (1, 2, 4, 8, 16)


def admissible_block_sizes(shape: Sequence[int], candidates: Sequence[int] = BLOCK_SIZES) -> tuple[int, ...]:
    """Return the candidates that divide both weight dimensions.

    Args:
        shape: Shape of a dense weight, (out, in, *kernel).
        candidates: Block sizes to choose from, positive.

    Returns:
        The admissible candidates, in their given order.

    >>> admissible_block_sizes((8, 20))
    (1, 2, 4)
    """
    return tuple(b for b in candidates if shape[0] % b == 0 and shape[1] % b == 0)


def check_block_size(shape: Sequence[int], b: int) -> None:
    """Raise unless block size b fits a dense weight of this shape.

    Args:
        shape: Shape of a dense weight, (out, in, *kernel).
        b: Block size.

    Raises:
        RuleError: The weight has fewer than two dimensions, or b is not positive or does not divide `out` and `in`.
    """
    if len(shape) < 2:
        raise RuleError(
            "a block-circulant weight must have an output and an input dimension",
            got=f"shape {tuple(shape)}",
            remedy="give the weight of a linear or convolutional layer",
        )
    if b < 1 or shape[0] % b or shape[1] % b:
        sizes = ", ".join(map(str, admissible_block_sizes(shape)))
        raise RuleError(
            "block size must divide both weight dimensions",
            got=f"{b} for {tuple(shape)}",
            remedy=f"choose one of {sizes}",
        )


def check_importance(weight: Tensor, importance: Tensor) -> None:
    """Raise unless `importance` can weigh the entries of `weight`.

    Args:
        weight: Any tensor.
        importance: One number for each entry of `weight`.

    Raises:
        RuleError: The shapes differ, or an importance is negative, infinite or not a number.
    """
    if importance.shape != weight.shape:
        raise RuleError(
            "importance must have the shape of the weight",
            got=f"{tuple(importance.shape)} for {tuple(weight.shape)}",
            remedy="measure it on the dense layer, before conversion",
        )
    if not bool((torch.isfinite(importance) & (importance >= 0)).all()):
        raise RuleError(
            "importance must be finite and non-negative",
            got=f"values from {importance.min().item():g} to {importance.max().item():g}",
            remedy="use squared gradients",
        )


def expand(rows: Tensor, b: int) -> Tensor:
    """Write out the block-circulant weight whose first rows are `rows`.

    Differentiable; traceable by torch.compile (full graph), torch.export and torch.fx, which is why it leaves the check
    of b to the reshape it makes.

    Args:
        rows: First row of every block row, (out / b, in, *kernel).
        b: Block size; divides `in`.

    Returns:
        The dense weight, (out, in, *kernel), contiguous.

    Raises:
        RuntimeError: b does not divide `in`.

    >>> expand(torch.tensor([[1, 2, 3, 4]]), b=4).tolist()
    [[1, 2, 3, 4], [4, 1, 2, 3], [3, 4, 1, 2], [2, 3, 4, 1]]
    >>> expand(torch.tensor([[1, 2, 3, 4]]), b=2).tolist()
    [[1, 2, 3, 4], [2, 1, 4, 3]]
    """
    if b == 1:
        return rows
    first = torch.unflatten(rows, 1, (-1, b))  # (out/b, in/b, b, *kernel)
    twice = torch.cat([first[:, :, 1:], first], dim=2)  # its windows of length b are the block's rows, last row first
    windows = twice.unfold(2, b, 1).movedim(-1, 3)  # (out/b, in/b, row, column, *kernel)
    return windows.transpose(1, 2).flip(1).flatten(2, 3).flatten(0, 1)


def diagonals(weight: Tensor, b: int) -> Tensor:
    """Line up the entries of each circulant diagonal.

    Args:
        weight: Dense weight, (out, in, *kernel).
        b: Block size; divides `out` and `in`.

    Returns:
        (b, out / b, in, *kernel): entry [i, p, m] is what row i of the blocks of block row p holds on the circulant
        diagonal that `rows[p, m]` stands for. All b slices are equal exactly when the weight is block circulant.

    >>> diagonals(torch.tensor([[1, 2], [3, 4]]), b=2).tolist()
    [[[1, 2]], [[4, 3]]]
    """
    blocks = torch.unflatten(torch.unflatten(weight, 1, (-1, b)), 0, (-1, b))  # (out/b, b, in/b, b, *kernel)
    return torch.stack([blocks[:, i].roll(-i, dims=2) for i in range(b)]).flatten(2, 3)


def project(weight: Tensor, b: int, importance: Tensor | None = None) -> Tensor:
    """Return the rows of the block-circulant weight nearest to `weight`.

    Nearest in sum(F (W - W')^2), whose minimum is the F-weighted mean sum(F w) / sum(F) of each circulant diagonal
    (PrivCirNet, Section 3.3); F = 1 without importance, and on diagonals where F is all zero. Means are taken in
    float64 around the diagonal's first entry, so that a weight that is already block circulant keeps every bit.

    Args:
        weight: Dense weight, (out, in, *kernel).
        b: Block size.
        importance: F, non-negative, of the shape of `weight`; for example its diagonal Fisher information.

    Returns:
        Rows, (out / b, in, *kernel), of the weight's dtype.

    Raises:
        RuleError: b does not divide the weight's dimensions, or the importance does not fit the weight.

    >>> weight = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    >>> project(weight, b=2)
    tensor([[2., 3.]])
    >>> project(weight, b=2, importance=torch.tensor([[3.0, 1.0], [1.0, 1.0]]))
    tensor([[1.5000, 3.0000]])
    """
    check_block_size(weight.shape, b)
    if importance is not None:
        check_importance(weight, importance)
    entries = diagonals(weight, b).double()
    anchor = entries[0]
    offsets = entries - anchor
    shift = offsets.mean(0)
    if importance is not None:
        mass = diagonals(importance, b).double()
        total = mass.sum(0)
        shift = torch.where(total > 0, (mass * offsets).sum(0) / total, shift)
    return (anchor + shift).to(weight.dtype)


def is_circulant(weight: Tensor, b: int) -> bool:
    """Say whether every b x b block is circulant, bit for bit.

    Args:
        weight: Dense weight, (out, in, *kernel).
        b: Block size.

    Returns:
        True if all entries of each circulant diagonal are equal.

    Raises:
        RuleError: b does not divide the weight's dimensions.

    >>> is_circulant(torch.tensor([[1, 2], [2, 1]]), b=2)
    True
    """
    check_block_size(weight.shape, b)
    entries = diagonals(weight, b)
    return bool((entries == entries[:1]).all())
