"""Sensitivities of a trained network's layers on its training images, measured until the decision is stable.

Information is measured group by group. Whenever the number of images has doubled, the caller makes its decision by the
sensitivities so far. Two equal decisions in a row end the measurement. :func:`loss_rises`
measures what they predict: the power of Omega.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from privcirnet.blocksize_search import curvature
from privcirnet.blocksize_search.activations import activation_omegas, replacement_errors
from privcirnet.data.dataset import Examples, ImageData
from privcirnet.errors import RuleError, listed
from privcirnet.nn.functional.circulant import expand, project
from privcirnet.passes.convert import circulant_
from privcirnet.train.accuracy import predict
from privcirnet.train.network import weighted_layers
from privcirnet.train.recalibration import REMEDY, evaluated, recalibrate_

GROUP = 64
"""Number of images in a group, and in a batch of the published shortcut."""
_FIRST = 4
_FITTED = 256
"""Number of images that polynomials in place of activations are fitted to."""

Omegas = dict[str, dict[int, curvature.SensitivityEstimate]]
"""Omega with its error, by layer name and block size."""


_INFORMATION = {"kfac": "kfac", "energy": "fisher", "fisher": "fisher", "batch_gradient": "batch_gradient"}
"""Kind of sensitivity -> information that weighs its errors. Plain weight errors have none."""


@dataclass(frozen=True)
class MeasuredSensitivities:
    """Sensitivities of one kind, and the quality of their measurement.

    Attributes:
        omegas: sensitivities in units of the loss (of squared weights for plain errors).
        stable: whether the last doubling left the decision unchanged; None where no two decisions were made.
    """

    omegas: Omegas
    samples: int
    stable: bool | None

    @property
    def values(self) -> dict[str, dict[int, float]]:
        """Sensitivities without their errors."""
        return _values(self.omegas)


def check_trained(model: nn.Module, data: Examples, kind: str, samples: int) -> None:
    """Raise unless a network has finite logits for all images that its sensitivities may be measured on.

    Raises:
        RuleError: some are not; the first layer that explodes is named.
    """
    if kind != "weights" and (explosions := evaluated(model, data, samples)).exploding:
        raise RuleError("a network must be trained before a search", got=explosions, remedy=REMEDY)


def measure(  # noqa: PLR0913, PLR0917
    model: nn.Module,
    data: Examples,
    block_sizes: Mapping[str, Sequence[int]],
    kinds: Sequence[str],
    samples: int,
    damping: float,
    decide: Callable[[dict[str, dict[int, float]]], object] | None = None,
    progress: Callable[[int], object] | None = None,
) -> dict[str, MeasuredSensitivities]:
    """Return the sensitivities of layers at their block sizes, by kind, from one pass over the images.

    Args:
        model: trained, dense network; left as it was.
        block_sizes: block sizes of layers, options of activations, by name (:mod:`..blocksize_search.activations`).
        kinds: "kfac" (errors of the outputs after the least-squares fit), "energy" (squared weights of the b entries
            that become one), "fisher" (PrivCirNet's), "batch_gradient" (the published shortcut) or "weights" (plain
            squared error, no images).
        decide: function that makes a decision by the sensitivities of one kind so far; None uses all samples.
    """
    statistics = _Statistics(model, data, block_sizes, kinds, samples, damping)
    if not statistics.informed:
        return {kind: MeasuredSensitivities(statistics.omegas(kind), 0, None) for kind in kinds}
    stable, done, check, before, group = None, 0, _FIRST, None, 0
    for images, labels in data.sampled(samples, GROUP):
        group = group or len(labels)
        statistics.add(images, labels, len(labels) / group)
        done += len(labels)
        if progress:
            progress(done)
        if decide is None or statistics.groups < check:
            continue
        decisions = [decide(_values(statistics.omegas(kind))) for kind in kinds]
        check *= 2
        stable, before = None if before is None else decisions == before, decisions
        if stable:
            break
    return {kind: MeasuredSensitivities(statistics.omegas(kind), done, stable) for kind in kinds}


class _Statistics:
    """The information behind some kinds of sensitivities, group by group; arguments as for :func:`measure`."""

    def __init__(
        self,
        model: nn.Module,
        data: Examples,
        block_sizes: Mapping[str, Sequence[int]],
        kinds: Sequence[str],
        samples: int,
        damping: float,
    ) -> None:
        layers = weighted_layers(model)
        self._model, self._sizes, self._damping = model, block_sizes, damping
        self._layers = {name: layers[name] for name in block_sizes if name in layers}
        self._weights = {name: layer.weight.detach() for name, layer in self._layers.items()}
        self._curvature = curvature.OutputCurvature(
            {n: layer for n, layer in self._layers.items() if len(block_sizes[n]) > 1}
        )
        activations = {name: options for name, options in block_sizes.items() if name not in layers}
        fitted = data.sampled(min(samples, _FITTED), GROUP) if activations else []
        self._errors = replacement_errors(model, fitted, activations) if activations else {}
        named = [_INFORMATION[kind] for kind in kinds if kind in _INFORMATION]
        self._information = {
            name: curvature.Information() for name in [*named, *(["activations"] if activations else [])]
        }

    @property
    def informed(self) -> bool:
        """Return whether any kind depends on images."""
        return bool(self._information)

    @property
    def groups(self) -> int:
        """Number of groups so far."""
        return next(iter(self._information.values())).groups

    def add(self, images: Tensor, labels: Tensor, size: float) -> None:
        """Count a group of images, of a size relative to the first."""
        for source, information in self._information.items():
            gradients = self._found(source, images, labels)
            if broken := [name for name, values in gradients.items() if not values.isfinite().all()]:
                raise RuleError("squared gradients must be finite", got=f"others in {listed(broken)}", remedy=REMEDY)
            information.add(gradients, size)

    def _found(self, source: str, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        batch, names = [(images, labels)], list(self._weights)
        match source:
            case "kfac":
                return self._curvature.add(self._model, images, labels)
            case "fisher":
                return curvature.diagonal_fisher(self._model, batch, names)
            case "batch_gradient":
                return curvature.squared_batch_gradient(self._model, batch, names)
            case _:
                return activation_omegas(self._model, images, self._errors)

    def omegas(self, kind: str) -> Omegas:
        """Return the sensitivities of one kind so far."""
        return {name: self._row(kind, name, options) for name, options in self._sizes.items()}

    def _row(self, kind: str, name: str, options: Sequence[int]) -> dict[int, curvature.SensitivityEstimate]:
        if name not in self._weights:
            information = self._information["activations"]
            return {b: information.estimate(name, itemgetter(index)) for index, b in enumerate(options)}
        estimates = self._estimates(kind, name, [b for b in options if b > 1])
        return {b: estimates.get(b, curvature.SensitivityEstimate(0.0, 0.0)) for b in options}

    def _estimates(self, kind: str, name: str, block_sizes: Sequence[int]) -> dict[int, curvature.SensitivityEstimate]:
        """Return a layer's Omega at block sizes above 1."""
        if not block_sizes:
            return {}
        weight = self._weights[name]
        if kind == "weights":
            errors = curvature.weight_errors(weight, torch.ones_like(weight), block_sizes, 0.0)
            return {b: curvature.SensitivityEstimate(float(error.sum()), 0.0) for b, error in errors.items()}
        information = self._information[_INFORMATION[kind]]
        match kind:
            case "kfac":
                errors = self._curvature.errors(name, block_sizes)
            case "energy":
                errors = curvature.energies(weight, block_sizes)
            case _:
                errors = curvature.weight_errors(weight, information.mean(name), block_sizes, self._damping)
        return information.omegas(name, errors)


def _values(omegas: Omegas) -> dict[str, dict[int, float]]:
    return {name: {b: estimate.value for b, estimate in row.items()} for name, row in omegas.items()}


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
    """Measure how much the loss on held-out images rises when one layer alone is projected: what Omega predicts.

    Two measurements for each layer and block size: of the weight alone; and as fine-tuning starts, with the batch norm
    behind it shared by blocks and all statistics measured anew.

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
