"""Structured pruning: groups of weights that stay or go together, by their mean magnitude.

A group is what one plaintext of an encrypted layer encodes (:mod:`pruning.layer`). With g(w) the group
of a weight,

    score[i] = mean of |w| over the weights with g(w) = i

and a group goes if its score is at most a threshold that all layers of a network share, unless it is the best of its
output ciphertext, which must keep one.

Cost: one pass over the weights.

Source: SpENCNN (ICML 2023), the baseline of PrivCirNet (Section 4.1), as one-shot magnitude pruning. Departure: its
encoding-aware groups are replaced by the diagonals of this package's plans.
"""

import torch
from torch import Tensor


def mean_magnitudes(weight: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return the mean magnitude of each group of weights.

    Args:
        weight: Of any shape.
        groups: Number of each weight's group in [0, count), of the same shape.

    Returns:
        float64, (count,); 0 for a group without weights.

    >>> mean_magnitudes(torch.tensor([[1.0, -2.0], [4.0, 3.0]]), torch.tensor([[0, 1], [1, 0]]), 2)
    tensor([2., 3.], dtype=torch.float64)
    """
    flat = groups.reshape(-1)
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, flat, weight.detach().cpu().reshape(-1).double().abs())
    return sums / torch.bincount(flat, minlength=count).clamp(min=1)


def relative(scores: Tensor, weight: Tensor) -> Tensor:
    """Return scores as multiples of the layer's mean magnitude, which makes layers of different scales comparable.

    Returns:
        Of the shape of `scores`; as they are if the whole weight is zero.
    """
    mean = weight.detach().double().abs().mean().item()
    return scores / mean if mean else scores


def best_of_each(scores: Tensor, outputs: Tensor) -> Tensor:
    """Return which groups have the largest score of their output; of equal ones, the first.

    Args:
        scores: (count,).
        outputs: Number of the output that each group contributes to, (count,); every number from 0 is used.

    Returns:
        bool, (count,), true once for each output.

    >>> best_of_each(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0, 0, 1])).tolist()
    [False, True, True]
    """
    order = torch.argsort(scores, descending=True, stable=True)
    number = int(outputs.max()) + 1
    first = torch.full((number,), len(scores)).scatter_reduce_(0, outputs[order], torch.arange(len(scores)), "amin")
    best = torch.zeros(len(scores), dtype=torch.bool)
    best[order[first]] = True
    return best


def kept_groups(scores: Tensor, outputs: Tensor, threshold: float) -> Tensor:
    """Return which groups stay: those above the threshold, and the best of each output.

    Args:
        scores: (count,).
        outputs: Number of the output that each group contributes to, (count,).
        threshold: Largest score that goes; minus infinity keeps all.

    Returns:
        bool, (count,).

    >>> kept_groups(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0, 0, 1]), 9.0).tolist()
    [False, True, True]
    """
    return (scores > threshold) | best_of_each(scores, outputs)
