"""The training of a plan in a race: some steps, as fine-tuning will train the plan that is chosen.

The plan whose network starts nearest to the dense one need not be nearest after training: layers with norms recover
accuracy that others do not (docs/search.md). A race shows which plan does, at the cost of some steps for each.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from privcirnet.config import RecipeConfig
from privcirnet.data.dataset import Examples
from privcirnet.train.loop import fit
from privcirnet.train.progress import Step


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
