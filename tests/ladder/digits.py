"""DigitsResNet: stride, a residual, squares, circulant layers of every block size."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from privcirnet.he.planning.planner import candidate_layers
from privcirnet.models import DigitsResNet
from privcirnet.passes.convert import circulant_
from tests.ladder.case import Case, real

BLOCKS = {"stem": 1, "down": 4, "conv1": 8, "conv2": 16, "classifier": 2}


def rotations_of(layer):
    """Rotations of baby steps, of giant steps and of folds."""
    plans = [placed.plan for placed in layer.placed]
    kinds = ("baby_rotations", "giant_rotations", "fold_rotations")
    return [sum(len(getattr(plan, kind)) for plan in plans) for kind in kinds]


@contextmanager
def plans_that_rotate() -> Iterator[None]:
    """These layers are so small that no plan worth its price rotates: take the ones that rotate most."""

    def restless(shape, b, profile, *_):
        layers = candidate_layers(shape, b, profile.ring_degree)
        return max(layers, key=lambda layer: (all(rotations_of(layer)), layer.rotations))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("privcirnet.he.planning.plan_program.planned_layer", restless)
        yield


def dense(images: Tensor) -> nn.Module:
    """The network before it is circulant."""
    torch.manual_seed(0)
    model = DigitsResNet().double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        for _ in range(30):
            model(real(images))
    return model.eval()


def circulant(model: nn.Module) -> nn.Module:
    """A copy with circulant weights."""
    return circulant_(copy.deepcopy(model), {name: b for name, b in BLOCKS.items() if b > 1}).eval()


DIGITS = Case("digits", (1, 8, 8), lambda images: circulant(dense(images)), BLOCKS, plans=plans_that_rotate)
