"""A race of plans: some steps of training, as fine-tuning will train the plan that is chosen, and a score.

The score is the divergence of the circulant network from the dense one, right after its start or training.
The plan whose network starts nearest to the dense one need not be nearest after training: layers with norms recover
accuracy that others do not (docs/search.md). A race shows which plan does, at the cost of some steps for each.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from privcirnet.config import RecipeConfig
from privcirnet.data.dataset import Examples, some_images
from privcirnet.nn.graph import evaluating
from privcirnet.nn.materialize import with_plain_weights
from privcirnet.passes.convert import circulant_
from privcirnet.train.loop import fit
from privcirnet.train.record import Step


def train_for_(
    steps: int,
    model: nn.Module,
    data: Examples,
    recipe: RecipeConfig,
    teacher: nn.Module,
    after_step: Callable[[Step], None] | None = None,
) -> None:
    """Train a circulant network in place for some steps, from the first batches of an epoch on.

    Args:
        recipe: recipe of the fine-tuning: optimizer, rates, batches, augmentation, losses are its own. One cosine has
            all the steps. There is no warm-up, no average and no imitation.
        teacher: dense network, whose soft labels are learned if the recipe has distillation.
    """
    short = replace(recipe, epochs=1, warmup_epochs=0, ema=0.0, imitate="", original="", teach_once=False)
    with torch.random.fork_rng():
        fit(model, _Steps(data, steps), short, 0, teacher if recipe.distillation else None, after_step=after_step)


@dataclass(frozen=True)
class _Steps:
    """Training images of which an epoch has a number of batches, from several epochs if one has fewer."""

    data: Examples
    number: int
    has_tests: bool = False

    @property
    def classes(self) -> Sequence[str]:
        return self.data.classes

    @property
    def levels(self) -> int:
        return self.data.levels

    @property
    def count(self) -> int:
        return self.data.count

    def steps(self, size: int) -> int:
        del size
        return self.number

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        batches = itertools.chain.from_iterable(self.data.epoch(size, generator) for _ in itertools.count())
        return itertools.islice(batches, self.number)

    def real(self, images: Tensor) -> Tensor:
        return self.data.real(images)

    def sampled(self, count: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        return self.data.sampled(count, size)

    def tests(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.data.tests()


FITTED = 384
"""Number of images that each plan's network is fitted to."""
_BATCH = 64


class Divergence:
    """The Kullback-Leibler divergence of a dense network's predictions from a circulant one's, fitted without labels.

    Args:
        model: dense network; left as it was.
        data: data with training images: some for the fit, twice as many others for the comparison.
        pad: whether block sizes need not divide.
    """

    def __init__(self, model: nn.Module, data: Examples, *, pad: bool = False) -> None:
        self._dense, self._pad = with_plain_weights(model), pad
        device = next(model.parameters()).device
        images = some_images(data, 3 * FITTED).to(device)
        fitted = max(len(images) // 3, 1)
        self._fitted, self._others = images[:fitted], images[fitted:] if len(images) > 1 else images
        self._wanted = self._predicted(self._dense)

    def __call__(self, block_sizes: Mapping[str, int], train_: Callable[[nn.Module], object] = lambda _: None) -> float:
        """Return the divergence of a plan, in nats; that of the dense network is 0.

        Args:
            train_: function that trains the circulant network in place.
        """
        if all(b == 1 for b in block_sizes.values()):
            return 0.0
        model = circulant_(copy.deepcopy(self._dense), block_sizes, images=self._fitted, pad=self._pad)
        train_(model)
        divergence = kl_div(self._predicted(model), self._wanted, log_target=True, reduction="batchmean")
        return float(divergence) if divergence.isfinite() else float("inf")

    @torch.no_grad()
    def _predicted(self, model: nn.Module) -> Tensor:
        """Return logarithms of the predicted probabilities, (N, classes)."""
        with evaluating(model):
            return torch.cat([model(part).flatten(1).double().log_softmax(1) for part in self._others.split(_BATCH)])
