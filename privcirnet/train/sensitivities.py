"""Sensitivities of a trained network's layers on its training images, measured until the decision is stable.

Information is measured group by group. Whenever the number of images has doubled, the caller makes its decision by the
sensitivities so far. Two equal decisions in a row end the measurement.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from torch import Tensor, nn

from privcirnet.blocksizes.activations import activation_omegas, replacement_errors
from privcirnet.blocksizes.fisher import diagonal_fisher, squared_batch_gradient
from privcirnet.blocksizes.information import Estimate, Information, plain_errors
from privcirnet.data.dataset import Examples
from privcirnet.errors import RuleError, listed
from privcirnet.train.explosions import REMEDY, evaluated
from privcirnet.train.network import weighted_layers

GROUP = 64
"""Number of images in a group, and in a batch of the published shortcut."""
_FIRST = 4
_FITTED = 256
"""Images that polynomials in place of activations are fitted to."""

Omegas = dict[str, dict[int, Estimate]]
"""Omega with its error, by layer name and block size."""


@dataclass(frozen=True)
class MeasuredSensitivities:
    """Sensitivities, and how well they were measured.

    Attributes:
        omegas: in units of the loss (of squared weights for plain errors).
        stable: whether the last doubling left the decision unchanged; None where no two decisions were made.
    """

    omegas: Omegas
    samples: int
    stable: bool | None

    @property
    def values(self) -> dict[str, dict[int, float]]:
        """The sensitivities without their errors."""
        return {name: {b: found.value for b, found in row.items()} for name, row in self.omegas.items()}


def check_trained(model: nn.Module, data: Examples, kind: str, samples: int) -> None:
    """Raise unless a network has finite logits for all images that its sensitivities may be measured on.

    Raises:
        RuleError: it has others; the first layer that explodes is named.
    """
    if kind != "weights" and (found := evaluated(model, data, samples)).exploding:
        raise RuleError("a network must be trained before a search", got=found, remedy=REMEDY)


def measure(  # noqa: PLR0913, PLR0917
    model: nn.Module,
    data: Examples,
    block_sizes: Mapping[str, Sequence[int]],
    kind: str,
    samples: int,
    damping: float,
    decide: Callable[[dict[str, dict[int, float]]], object] | None = None,
    progress: Callable[[int], object] | None = None,
) -> MeasuredSensitivities:
    """Return the sensitivities of layers at their block sizes.

    Args:
        model: trained and dense; left as it was.
        block_sizes: of layers by name; of activations their options (:mod:`..blocksizes.activations`).
        kind: "fisher", "batch_gradient" (the published shortcut) or "weights" (plain squared error, no images).
        decide: makes a decision by sensitivities; None uses all samples.
    """
    layers = weighted_layers(model)
    weights = {name: layers[name].weight.detach() for name in block_sizes if name in layers}
    activations = {name: options for name, options in block_sizes.items() if name not in layers}
    errors = replacement_errors(model, data.sampled(min(samples, _FITTED), GROUP), activations) if activations else {}
    if kind == "weights":
        found = plain_errors(weights, block_sizes)
        return MeasuredSensitivities(
            {n: {b: Estimate(v, 0.0) for b, v in row.items()} for n, row in found.items()}, 0, None
        )
    information, names, done, check, before = Information(), list(weights), 0, _FIRST, None
    stable, group = None, 0
    for images, labels in data.sampled(samples, GROUP):
        batch, group = [(images, labels)], group or len(labels)
        shortcut = kind == "batch_gradient"
        found = squared_batch_gradient(model, batch, names) if shortcut else diagonal_fisher(model, batch, names)
        found |= activation_omegas(model, images, errors) if errors else {}
        if broken := [name for name, values in found.items() if not values.isfinite().all()]:
            raise RuleError("squared gradients must be finite", got=f"others in {listed(broken)}", remedy=REMEDY)
        information.add(found, len(labels) / group)
        done += len(labels)
        if progress:
            progress(done)
        if decide is None or information.groups < check:
            continue
        measured = MeasuredSensitivities(_omegas(information, weights, block_sizes, damping), done, stable)
        decision, check = decide(measured.values), 2 * check
        if decision == before:
            return MeasuredSensitivities(measured.omegas, done, stable=True)
        before, stable = decision, None if before is None else False
    return MeasuredSensitivities(_omegas(information, weights, block_sizes, damping), done, stable)


def _omegas(
    information: Information,
    weights: Mapping[str, Tensor],
    block_sizes: Mapping[str, Sequence[int]],
    damping: float,
) -> Omegas:
    found = Omegas()
    for name, options in block_sizes.items():
        if name in weights:
            found[name] = information.omegas(name, weights[name], options, damping)
        else:
            found[name] = {b: information.estimate(name, itemgetter(index)) for index, b in enumerate(options)}
    return found
