"""The increase of the loss from making one layer block circulant, to second order.

Around a trained network the gradient vanishes. With the Hessian replaced by the diagonal Fisher information F, the
change of the loss by W -> W' is one half of::

    Omega = sum over the entries of  F (W - W')^2,        W' = the block-circulant weight that minimises Omega

Cost: one projection and one expansion for each block size.

Source: PrivCirNet (NeurIPS 2024), Equations 1 and 2. Like the paper, this leaves out the constant one half.

:func:`damped` gives the importance of the entries for a projection that training continues from.
"""

from torch import Tensor

from privcirnet.nn.functional.circulant import expand, project


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
