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

Padding. Where b does not divide, the weight is the upper left part of a block-circulant matrix of the next multiples of
b: (100, 845) of (104, 848) for b = 8. Rows that are dropped and columns that meet no input cost nothing and are free,
so a diagonal is fitted to those of its entries that the weight has. `rows` are those of the larger matrix,
(ceil(out / b), b ceil(in / b), *kernel). In the last block of both axes some diagonals may have no entry at all: 11 of
16 where 163 x 83 is padded for b = 16. They are zero, and no output depends on them.

Cost: `expand` writes the out * in entries of the dense weight once; `project` reads them b times in strides.

Source: PrivCirNet (NeurIPS 2024), Section 3.3. Departure: where the importance of a whole diagonal is zero, which
leaves the paper's weighted mean undefined, `project` takes the plain mean.
"""

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from privcirnet.errors import RuleError

BLOCK_SIZES = (1, 2, 4, 8, 16)


def padded_size(size: int, block_size: int) -> int:
    """Return the smallest multiple of b that is at least a size.

    >>> padded_size(845, 8)
    848
    """
    return -(-size // block_size) * block_size


def admissible_block_sizes(
    shape: Sequence[int], candidates: Sequence[int] = BLOCK_SIZES, *, pad: bool = False
) -> tuple[int, ...]:
    """Return the candidates that divide both weight dimensions; with padding, those that are not larger than either.

    Args:
        shape: Shape of a dense weight, (out, in, *kernel).
        candidates: Block sizes to choose from, positive.
        pad: Whether blocks need not divide.

    Returns:
        The admissible candidates, in their given order.

    >>> admissible_block_sizes((8, 20))
    (1, 2, 4)
    >>> admissible_block_sizes((10, 20), pad=True)
    (1, 2, 4, 8)
    """
    return tuple(b for b in candidates if _fits(shape, b, pad))


def _fits(shape: Sequence[int], block_size: int, pad: bool) -> bool:
    return block_size <= min(shape[:2]) if pad else not (shape[0] % block_size or shape[1] % block_size)


def check_block_size(shape: Sequence[int], block_size: int, *, pad: bool = False) -> None:
    """Raise unless block size b fits a dense weight of this shape.

    Args:
        shape: Shape of a dense weight, (out, in, *kernel).
        pad: Whether b need not divide; padding then less than doubles a dimension.

    Raises:
        RuleError: The weight has fewer than two dimensions, or b is not positive or does not divide `out` and `in`; for
            a padded one, is larger than either.
    """
    if not isinstance(block_size, Integral):
        raise RuleError("a block size must be an integer", got=repr(block_size), remedy="use 1, 2, 4, 8 or 16")
    if len(shape) < 2:
        raise RuleError(
            "a block-circulant weight must have an output and an input dimension",
            got=f"shape {tuple(shape)}",
            remedy="give the weight of a linear or convolutional layer",
        )
    if block_size >= 1 and _fits(shape, block_size, pad):
        return
    sizes, got = ", ".join(map(str, admissible_block_sizes(shape, pad=pad))), f"{block_size} for {tuple(shape)}"
    if pad:
        rule = "block size must be at most both weight dimensions"
        raise RuleError(rule, got=got, remedy=f"choose one of {sizes}")
    padding = ", or pad the layer (pad=true)" if 1 <= block_size <= min(shape[:2]) else ""
    raise RuleError("block size must divide both weight dimensions", got=got, remedy=f"choose one of {sizes}{padding}")


def check_importance(weight: Tensor, importance: object) -> None:
    """Raise unless `importance` can weigh the entries of `weight`."""
    if not isinstance(importance, Tensor):
        got, remedy = type(importance).__name__, "give one of the weight's shape, or none"
        raise RuleError("importance must be a tensor", got=got, remedy=remedy)
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


def expand(rows: Tensor, block_size: int, size: tuple[int, int] | None = None) -> Tensor:
    """Write out the block-circulant weight whose first rows are `rows`.

    Differentiable; traceable by torch.compile (full graph), torch.export and torch.fx, which is why it leaves the check
    of b to the reshape it makes.

    Args:
        rows: First row of every block row, (out / b, in, *kernel).
        block_size: Block size b; divides `in`.
        size: (out, in) of a weight that was padded: the upper left part of what the rows say.

    Returns:
        The dense weight, (out, in, *kernel), contiguous unless it was padded.

    Raises:
        RuntimeError: b does not divide the rows' length.

    >>> expand(torch.tensor([[1, 2, 3, 4]]), block_size=4).tolist()
    [[1, 2, 3, 4], [4, 1, 2, 3], [3, 4, 1, 2], [2, 3, 4, 1]]
    >>> expand(torch.tensor([[1, 2, 3, 4]]), block_size=2).tolist()
    [[1, 2, 3, 4], [2, 1, 4, 3]]
    """
    if block_size == 1:
        return rows
    first = torch.unflatten(rows, 1, (-1, block_size))  # (out/b, in/b, b, *kernel)
    twice = torch.cat([first[:, :, 1:], first], dim=2)  # its windows of length b are the block's rows, last row first
    windows = twice.unfold(2, block_size, 1).movedim(-1, 3)  # (out/b, in/b, row, column, *kernel)
    whole = windows.transpose(1, 2).flip(1).flatten(2, 3).flatten(0, 1)
    return whole if size is None else whole[: size[0], : size[1]]


def pad_blocks(weight: Tensor, block_size: int) -> Tensor:
    """Return a weight with zero rows and columns up to the next multiples of b.

    Args:
        weight: (out, in, *kernel).

    Returns:
        (b ceil(out / b), b ceil(in / b), *kernel); the weight itself where b divides.
    """
    out, into = (padded_size(size, block_size) for size in weight.shape[:2])
    if (out, into) == tuple(weight.shape[:2]):
        return weight
    padded = weight.new_zeros(out, into, *weight.shape[2:])
    padded[: weight.shape[0], : weight.shape[1]] = weight
    return padded


def diagonals(weight: Tensor, block_size: int) -> Tensor:
    """Line up the entries of each circulant diagonal.

    Args:
        weight: Dense weight, (out, in, *kernel).
        block_size: Block size b; divides `out` and `in`.

    Returns:
        (b, out / b, in, *kernel): entry [i, p, m] is what row i of the blocks of block row p holds on the circulant
        diagonal that `rows[p, m]` stands for. All b slices are equal exactly when the weight is block circulant.

    >>> diagonals(torch.tensor([[1, 2], [3, 4]]), block_size=2).tolist()
    [[[1, 2]], [[4, 3]]]
    """
    rows = torch.unflatten(weight, 1, (-1, block_size))
    blocks = torch.unflatten(rows, 0, (-1, block_size))  # (out/b, b, in/b, b, *kernel)
    return torch.stack([blocks[:, i].roll(-i, dims=2) for i in range(block_size)]).flatten(2, 3)


def project(weight: Tensor, block_size: int, importance: Tensor | None = None, *, pad: bool = False) -> Tensor:
    """Return the rows of the block-circulant weight nearest to `weight`.

    Nearest in sum(F (W - W')^2), whose minimum is the F-weighted mean sum(F w) / sum(F) of each circulant diagonal
    (PrivCirNet, Section 3.3); F = 1 without importance, and on diagonals where F is all zero. Means are taken in
    float64 around the diagonal's first entry, so that a weight that is already block circulant keeps every bit. Of a
    padded weight only its own entries count; a diagonal without any is zero.

    Args:
        weight: Dense weight, (out, in, *kernel).
        importance: F, non-negative, of the shape of `weight`; for example its diagonal Fisher information.

    Returns:
        Rows, (out / b, in, *kernel) rounded up to blocks, of the weight's dtype.

    Raises:
        RuleError: b does not divide the weight's dimensions (is larger than one of them, for a padded weight), or the
            importance does not fit the weight.

    >>> weight = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    >>> project(weight, block_size=2)
    tensor([[2., 3.]])
    >>> project(weight, block_size=2, importance=torch.tensor([[3.0, 1.0], [1.0, 1.0]]))
    tensor([[1.5000, 3.0000]])
    """
    check_block_size(weight.shape, block_size, pad=pad)
    if importance is not None:
        check_importance(weight, importance)
    entries, present = diagonals(pad_blocks(weight, block_size), block_size).double(), _own_entries(weight, block_size)
    anchor = entries.gather(0, present.int().argmax(0, keepdim=True).expand(1, *entries.shape[1:]))[0]
    offsets = (entries - anchor) * present
    shift = offsets.sum(0) / present.sum(0).clamp(min=1)
    if importance is not None:
        mass = diagonals(pad_blocks(importance, block_size), block_size).double()
        total = mass.sum(0)
        shift = torch.where(total > 0, (mass * offsets).sum(0) / total, shift)
    return (anchor + shift).to(weight.dtype)


def _own_entries(weight: Tensor, block_size: int) -> Tensor:
    """Say of each entry of :func:`diagonals` of the padded weight whether the weight has it; bool, (b, ..., 1, ...)."""
    ones = torch.ones(weight.shape[:2], dtype=torch.bool, device=weight.device)
    present = diagonals(pad_blocks(ones, block_size), block_size)
    return present.reshape(*present.shape, *[1] * (weight.ndim - 2))


def is_circulant(weight: Tensor, block_size: int, *, pad: bool = False) -> bool:
    """Say whether every b x b block is circulant, bit for bit.

    Args:
        weight: Dense weight, (out, in, *kernel).
        pad: Whether b need not divide: the last blocks are then parts of circulant ones.

    Returns:
        True if all entries of each circulant diagonal are equal.

    Raises:
        RuleError: b does not divide the weight's dimensions, or is larger than one of a padded weight's.

    >>> is_circulant(torch.tensor([[1, 2], [2, 1]]), block_size=2)
    True
    """
    rows = project(weight, block_size, pad=pad)
    return torch.equal(expand(rows, block_size, (weight.shape[0], weight.shape[1])), weight)


def squared_error(
    weight: Tensor, fisher: Tensor, block_size: int, damping: float = 0.0, *, pad: bool = False
) -> Tensor:
    """Return (W - W')^2 of one layer at block size b, entry by entry: of the weight's shape, float64.

    Args:
        weight: Dense weight W, (out, in, *kernel).
        fisher: Diagonal Fisher information F of the loss in W, of the same shape.
        damping: At least 0; W' is the projection with :func:`damped` information as importance.

    Raises:
        RuleError: b does not divide the weight's dimensions, or `fisher` does not fit the weight.
    """
    weight, importance = weight.double(), damped(fisher.double(), damping)
    nearest = expand(project(weight, block_size, importance, pad=pad), block_size, (weight.shape[0], weight.shape[1]))
    return (weight - nearest).square()


def sensitivity(weight: Tensor, fisher: Tensor, block_size: int, damping: float = 0.0) -> Tensor:
    """Return Omega of one layer at block size b (PrivCirNet, Equation 2).

    It is the increase of the loss from making the layer block circulant, to second order. Around a trained network the
    gradient vanishes. With the Hessian replaced by the diagonal Fisher information F, the change of the loss by
    W -> W' is one half of::

        Omega = sum over the entries of  F (W - W')^2,        W' = the block-circulant weight that minimises Omega

    Like the paper, this leaves out the constant one half. Cost: one projection and one expansion.

    Args:
        weight: Dense weight W, (out, in, *kernel).
        fisher: Diagonal Fisher information F of the loss in W, of the same shape.
        block_size: Block size b.
        damping: See :func:`squared_error`; the paper's is 0.

    Returns:
        Omega, a non-negative float64 scalar, in units of the loss; 0 for b = 1.

    Raises:
        RuleError: See :func:`squared_error`.

    >>> import torch
    >>> sensitivity(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.ones(2, 2), block_size=2)
    tensor(2., dtype=torch.float64)
    """
    return (fisher.double() * squared_error(weight, fisher, block_size, damping)).sum()


def damped(fisher: Tensor, damping: float) -> Tensor:
    """Return F + damping mean(F), the importance of each entry in a projection that is far from the trained network.

    The Fisher information tells how the loss curves at the trained weights. A projection to large blocks changes
    weights by as much as their own size. At that distance most entries matter, even those that the loss was flat in. As
    in the Levenberg-Marquardt method, damping interpolates between the loss-aware projection (0) and the nearest one
    (infinity).

    Args:
        damping: At least 0, without unit.

    Returns:
        Importance, of the shape of `fisher`.

    Source: a departure from PrivCirNet (Section 3.3), which projects with F itself; docs/search.md says why.

    >>> import torch
    >>> damped(torch.tensor([0.0, 2.0]), damping=1.0)
    tensor([1., 3.])
    """
    return fisher + damping * fisher.mean()
