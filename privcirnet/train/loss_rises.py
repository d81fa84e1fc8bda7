"""The predictive power of Omega: the measured change of the loss when one layer of a trained network is projected.

Two measurements for each layer and block size: of the weight alone; and as fine-tuning starts, with the batch norm
behind it shared by blocks and all statistics measured anew.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privcirnet.data.dataset import ImageData
from privcirnet.nn.functional.circulant import expand, project
from privcirnet.passes.convert import circulant_
from privcirnet.train.accuracy import predict
from privcirnet.train.network import weighted_layers
from privcirnet.train.recalibration import recalibrate_


def loss(model: nn.Module, images: tuple[Tensor, Tensor], data: ImageData) -> float:
    """Return the mean cross-entropy on images, in nats; ``images``: uint8 (N, C, H, W) and labels (N,)."""
    return nn.functional.cross_entropy(predict(model, data, images[0]), images[1]).item()


def loss_rises(
    dense: nn.Module,
    data: ImageData,
    block_sizes: Mapping[str, Sequence[int]],
    importance: Mapping[str, Tensor],
    images: int = 2000,
    progress: Callable[[str], object] | None = None,
) -> list[dict[str, Any]]:
    """Measure how much the loss on held-out images rises when one layer alone is projected.

    Returns:
        A row for each layer and block size: "layer", "b", "weight" (the weight alone) and "start" (as fine-tuning
        starts), nats.
    """
    some = data.held_out(images)
    before, rows = loss(dense, some, data), []
    for name, b in [(name, b) for name, sizes in block_sizes.items() for b in sizes if b > 1]:
        alone, start = copy.deepcopy(dense), copy.deepcopy(dense)
        with torch.no_grad():
            weight = weighted_layers(alone)[name].weight
            weight.copy_(expand(project(weight.double(), b, importance[name]), b))
        circulant_(start, {name: b}, {name: importance[name]})
        recalibrate_(start, data)
        rises = {"weight": loss(alone, some, data) - before, "start": loss(start, some, data) - before}
        rows.append({"layer": name, "b": b, **rises})
        if progress:
            progress(f"{name}, b = {b}")
    return rows


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation: 1 for the same order, -1 for the opposite one.

    >>> rank_correlation([0.1, 2.0, 30.0], [-5.0, 0.0, 0.1])
    1.0
    """
    ranks = [torch.tensor(values).argsort().argsort().double() for values in (first, second)]
    return round(torch.corrcoef(torch.stack(ranks))[0, 1].item(), 12)
