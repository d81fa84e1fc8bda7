"""What it costs the loss to make one layer block circulant.

Around a trained network the gradient vanishes, and the change of the loss by W -> W' is, to second order and with the
Hessian replaced by the diagonal Fisher information F, one half of::

    Omega = sum over the entries of  F (W - W')^2,        W' = the block-circulant weight that minimises Omega

Cost: one projection and one expansion for each block size.

Source: PrivCirNet (NeurIPS 2024), Equations 1 and 2. The paper leaves out the constant one half; so does this.
"""

from torch import Tensor

from privcirnet.functional.circulant import expand, project


def sensitivity(weight: Tensor, fisher: Tensor, b: int) -> Tensor:
    """Return Omega of one layer at block size b (PrivCirNet, Equation 2).

    Args:
        weight: Dense weight W, (out, in, *kernel).
        fisher: Diagonal Fisher information F of the loss in W, of the same shape.
        b: Block size.

    Returns:
        Omega, a non-negative float64 scalar, in units of the loss; 0 for b = 1.

    Raises:
        RuleError: b does not divide the weight's dimensions, or `fisher` does not fit the weight.

    >>> import torch
    >>> sensitivity(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.ones(2, 2), b=2)
    tensor(2., dtype=torch.float64)
    """
    weight, fisher = weight.double(), fisher.double()
    return (fisher * (weight - expand(project(weight, b, fisher), b)).square()).sum()
