"""Structured pruning of a whole network to a latency budget: the baseline that searched block sizes are held against.

Every layer has its dense plan (b = 1). All groups of weights of all layers are ordered by mean magnitude, and the first
ones go, as few as meet the budget: a binary search, because latency falls as groups go. Layers without diagonals to
spare, such as depthwise convolutions, stay as they are.

Source: SpENCNN (ICML 2023), as the baseline of PrivCirNet (Section 4.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from papers.pruning import scores
from papers.pruning.layer import DiagonalGroups, PrunedLayer
from papers.pruning.plan import cheapest_pruned
from privcirnet.blocksize_search.latency import CostPrediction, figures_of_layer
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import Profile

SCORES = ("magnitude", "relative")
"""magnitude: mean |w| of a group; relative: as a multiple of its layer's mean |w|."""


@dataclass(frozen=True)
class PrunedNetwork:
    """What pruning to a budget found.

    Attributes:
        masks: whether each weight stays, bool, by layer name.
        figures: predictions for all layers together.
    """

    masks: dict[str, Tensor]
    layers: dict[str, PrunedLayer]
    figures: CostPrediction
    threshold: float

    @property
    def sparsity(self) -> float:
        """Share of the weights that went."""
        kept = sum(int(mask.sum()) for mask in self.masks.values())
        return 1 - kept / sum(mask.numel() for mask in self.masks.values())


class Pruning:
    """A network's weights in groups, scored once for all budgets.

    Args:
        weights: dense weights by layer name.
        shapes: dimensions of the same layers.
        link: network between client and server.
        scores: one of :data:`SCORES`.

    Raises:
        RuleError: unknown scores, or a layer that no ciphertext holds.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        shapes: Mapping[str, LinearShape],
        profile: Profile,
        link: NetworkLink,
        scores: str = "magnitude",
    ) -> None:
        if scores not in SCORES:
            raise RuleError("scores must be known ones", got=repr(scores), remedy=f"use {' or '.join(SCORES)}")
        self._layers = {
            name: _Layer(weight, shapes[name], profile, link, scores == "relative") for name, weight in weights.items()
        }

    def to_budget(self, budget: float, what: str = "seconds") -> PrunedNetwork:
        """Return the network with as few groups pruned as meet a budget.

        Args:
            budget: seconds an image.
            what: attribute of :class:`Figures` that the budget limits: "seconds" or "server".

        Raises:
            RuleError: it cannot be met, however much is pruned.
        """
        thresholds = [-np.inf, *np.unique(np.concatenate([layer.scores.numpy() for layer in self._layers.values()]))]
        low, high = 0, len(thresholds) - 1
        least = getattr(self._figures(thresholds[-1]), what)
        if least > budget:
            remedy = "use a larger budget: messages and transforms cannot be pruned"
            raise RuleError(
                "a budget must be within reach of pruning", got=f"{budget:.4g} < {least:.4g} s", remedy=remedy
            )
        while low < high:
            middle = (low + high) // 2
            if getattr(self._figures(thresholds[middle]), what) <= budget:
                high = middle
            else:
                low = middle + 1
        return self.at(float(thresholds[low]))

    def at(self, threshold: float) -> PrunedNetwork:
        """Return the network without the groups up to a threshold, but for one of each output ciphertext."""
        masks = {name: layer.mask(threshold) for name, layer in self._layers.items()}
        layers = {name: layer.planned(threshold) for name, layer in self._layers.items()}
        return PrunedNetwork(masks, layers, self._figures(threshold), threshold)

    def _figures(self, threshold: float) -> CostPrediction:
        return sum((layer.figures(threshold) for layer in self._layers.values()), CostPrediction())


class _Layer:
    """A layer's groups and their scores; what was planned for a set of groups is remembered."""

    def __init__(self, weight: Tensor, shape: LinearShape, profile: Profile, link: NetworkLink, relative: bool) -> None:
        self._groups = _groups(shape, profile, link)
        self._numbers = torch.from_numpy(self._groups.weights).reshape(weight.shape)
        found = scores.mean_magnitudes(weight, self._numbers, self._groups.count)
        self.scores = scores.relative(found, weight) if relative else found
        self._profile, self._link = profile, link
        self._known: dict[bytes, tuple[PrunedLayer, CostPrediction]] = {}

    @cached_property
    def _outputs(self) -> Tensor:
        return torch.from_numpy(self._groups.outputs)

    def _kept(self, threshold: float) -> Tensor:
        return scores.kept_groups(self.scores, self._outputs, threshold)

    def mask(self, threshold: float) -> Tensor:
        """Whether each weight stays."""
        return self._kept(threshold)[self._numbers]

    def planned(self, threshold: float) -> PrunedLayer:
        """Its plan."""
        return self._found(threshold)[0]

    def figures(self, threshold: float) -> CostPrediction:
        """Its predictions."""
        return self._found(threshold)[1]

    def _found(self, threshold: float) -> tuple[PrunedLayer, CostPrediction]:
        kept = self._kept(threshold).numpy()
        key = kept.tobytes()
        if key not in self._known:
            layer = cheapest_pruned(self._groups, kept, self._profile, self._link)
            self._known[key] = layer, figures_of_layer(layer, self._profile, self._link)
        return self._known[key]


@lru_cache(maxsize=256)
def _groups(shape: LinearShape, profile: Profile, link: NetworkLink) -> DiagonalGroups:
    """Layers of the same shape share their groups."""
    layer = cheapest_layer(shape, 1, profile, link)
    assert isinstance(layer, SpectralLayer)
    return DiagonalGroups(layer)
