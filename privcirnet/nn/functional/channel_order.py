"""The order of the channels between two layers in which their block-circulant weights lose least.

A block of b channels shares its weights, so it matters which channels are in it, and in which places. The channels that
one layer gives and another reads may stand in any order: the rows of the first weight and the columns of the second
move alike, and the network computes what it did, at the same cost.

Each layer explains of its outputs' variance a sum over blocks. With channel c at place k of its block:

* The layer that gives the channels, on inputs of covariance S, by least squares (:mod:`.least_squares`)::

      | sum over k of  L^-1 P_k S w_c |^2        L L^T = sum over k of P_k S P_k^T,  P_k: the shift by k within blocks

* The layer that reads them, as if they were uncorrelated, of variances s_c::

      | sum over k of  s_c P_k v_c |^2  /  sum over k of s_c        v_c: the column of the channel

Both are sums of one vector for each channel and place. Two channels are exchanged wherever that explains more of the
two layers' variances, each as a part of the whole.

Cost: in each round C b / 2 exchanges are tried, of two vectors each, of at most 256 numbers: long ones are projected
onto the directions in which they are longest (Halko et al., 2011).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Generator, Tensor

from privcirnet.nn.functional.least_squares import RIDGE

_linalg = cast(Any, torch.linalg)  # torch does not give its type
ROUNDS = 100
"""Number of rounds of exchanges."""
_DIRECTIONS = 256
"""Largest number of directions of vectors."""
_LEAST = 1e-7
"""Least gain of an exchange that is made."""


@dataclass(frozen=True)
class ExplainedVariance:
    """The part of a layer's variance that it explains with channels in some order.

    Attributes:
        vectors: (C, b, D), for each channel and place.
        sizes: (C,); a block's sum of vectors is squared and divided by its sum of sizes.
    """

    vectors: Tensor
    sizes: Tensor

    @cached_property
    def squares(self) -> Tensor:
        """The squared lengths of the vectors, (C, b)."""
        return self.vectors.square().sum(-1)

    def projected(self, directions: int) -> "ExplainedVariance":
        """Return it with vectors in the directions in which they are longest, of which they have so many at most."""
        rows = self.vectors.flatten(0, 1)
        if min(rows.shape) <= directions:
            return self
        sketch = torch.randn(rows.shape[1], directions, generator=Generator().manual_seed(0))
        basis, _ = _linalg.qr(rows.T @ (rows @ sketch))
        return ExplainedVariance(self.vectors @ basis, self.sizes)

    @property
    def block_size(self) -> int:
        """The block size b."""
        return self.vectors.shape[1]

    def of(self, order: Tensor) -> Tensor:
        """Return the explained part; ``order``: (C,), the channel of each place."""
        sums, sizes = self._blocks(order)
        return (sums.square().sum(1) / sizes).sum()

    def gains(self, order: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """Return how much more is explained after an exchange of two channels, for each two places of a pair of runs.

        Args:
            order: (C,), the channel of each place.
            near: places of the first of the runs, (pairs, run): whole blocks.
            far: those of the second: other blocks, or the same tensor.

        Returns:
            (pairs, run, run): for place i of the first and j of the second.
        """
        b, (sums, sizes) = self.block_size, self._blocks(order)
        here, there, at = order[near], order[far], torch.arange(near.shape[1]) % b  # ``at``: places within a block
        before, size_before = sums[near // b], sizes[near // b]
        after, size_after = sums[far // b], sizes[far // b]
        near_rest, far_rest = before - self.vectors[here, at], after - self.vectors[there, at]
        comes, goes = self.vectors[there][:, :, at], self.vectors[here][:, :, at]  # (pairs, j, i, D), (pairs, i, j, D)
        larger = self.sizes[there][:, None] - self.sizes[here][:, :, None]
        first = torch.einsum("pid,pjid->pij", near_rest, comes) * 2 + self.squares[there][:, :, at].mT
        second = torch.einsum("pjd,pijd->pij", far_rest, goes) * 2 + self.squares[here][:, :, at]
        first = (first + near_rest.square().sum(-1)[:, :, None]) / (size_before[:, :, None] + larger)
        second = (second + far_rest.square().sum(-1)[:, None]) / (size_after[:, None] - larger)
        now = (before.square().sum(-1) / size_before)[:, :, None]
        gains = first + second - now - (after.square().sum(-1) / size_after)[:, None]
        if far is not near:
            return gains
        both = near_rest[:, :, None] - self.vectors[there, at][:, None] + comes.transpose(1, 2) + goes
        inside = both.square().sum(-1) / size_before[:, :, None] - now
        return torch.where((near // b)[:, :, None] == (far // b)[:, None], inside, gains)

    def _blocks(self, order: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums of all blocks' vectors, (C / b, D), and of their sizes, (C / b,)."""
        channels = order.reshape(-1, self.block_size)
        return self.vectors[channels, torch.arange(self.block_size)].sum(1), self.sizes[channels].sum(1)


def by_outputs(weight: Tensor, inputs: Tensor, block_size: int) -> ExplainedVariance:
    """Return the variance that a layer explains with its outputs in some order.

    Args:
        weight: dense weight, (C, in, *kernel); b divides C and in.
        inputs: covariance of its input channels, (in, in); the kernel's positions count as uncorrelated.
    """
    rows = weight.double().reshape(*weight.shape[:2], -1).mT  # (C, positions, in)
    shifts = _shifts(weight.shape[1], block_size)
    ridge = RIDGE * inputs.diagonal().mean().clamp(min=1e-12)
    identity = torch.eye(len(inputs), dtype=inputs.dtype)
    shared = sum((inputs[shift][:, shift] for shift in shifts), ridge * identity)
    factor, read = _linalg.solve_triangular(_linalg.cholesky(shared), identity, upper=False).float(), rows @ inputs
    columns = [(read[..., shift].float() @ factor.T).flatten(1) for shift in shifts]
    total = (read * rows).sum().clamp(min=1e-30)
    vectors = torch.stack(columns, 1) / total.sqrt().float()
    return ExplainedVariance(vectors.float(), torch.full((len(weight),), 1 / block_size))


def by_inputs(weight: Tensor, variances: Tensor, block_size: int) -> ExplainedVariance:
    """Return the variance that a layer explains with its inputs in some order.

    Args:
        weight: dense weight, (out, C, *kernel); b divides out and C.
        variances: variances of its input channels, (C,).
    """
    sizes = variances.double() + RIDGE * variances.double().mean().clamp(min=1e-12)
    columns = weight.double().reshape(*weight.shape[:2], -1).transpose(0, 1)  # (C, out, positions)
    columns = columns * sizes[:, None, None]
    total = (columns.square().sum((1, 2)) / sizes).sum().clamp(min=1e-30)
    shifts = _shifts(weight.shape[0], block_size)
    vectors = torch.stack([columns[:, shift].flatten(1) for shift in shifts], 1) / total.sqrt()
    return ExplainedVariance(vectors.float(), sizes.float())


def best_order(layers: Sequence[ExplainedVariance], rounds: int = ROUNDS) -> Tensor:
    """Return the order of channels in which layers explain most in sum, (C,), by greedy exchanges.

    In each round all blocks are paired at random, and each pair makes the one exchange that explains most. So the
    pairs' gains add up. In every eighth round each block is paired with itself.

    Args:
        layers: what each layer explains; one or more, of the same channels.
        rounds: number of rounds.
    """
    layers = [layer.projected(_DIRECTIONS) for layer in layers]
    count, run = len(layers[0].sizes), math.lcm(*(layer.block_size for layer in layers))
    order, random = torch.arange(count), Generator().manual_seed(0)
    runs = order.clone().reshape(-1, run)
    for number in range(rounds):
        mixed = runs[torch.randperm(len(runs), generator=random)]
        half = len(runs) // 2
        near, far = (runs, runs) if number % 8 == 7 or not half else (mixed[:half], mixed[half : 2 * half])
        gains = torch.stack([layer.gains(order, near, far) for layer in layers]).sum(0).flatten(1)
        best = gains.argmax(1)
        pairs = (gains.amax(1) > _LEAST).nonzero()[:, 0]
        here, there = near[pairs, best[pairs] // run], far[pairs, best[pairs] % run]
        order[here], order[there] = order[there], order[here]
    return order


def _shifts(count: int, block_size: int) -> list[Tensor]:
    """Return the places, (count,), from which values come when they are shifted within blocks, for each shift."""
    places = torch.arange(count)
    return [places - places % block_size + (places + shift) % block_size for shift in range(block_size)]
