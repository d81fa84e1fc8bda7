"""The project's networks by name, alone and among timm's."""

import timm
import torch

from privcirnet import models
from privcirnet.models import ENTRY_POINTS, DigitsResNet, register_with_timm


def test_every_network_is_exported_under_its_name():
    assert set(ENTRY_POINTS) == {name for name in models.__all__ if name.islower()} - {"register_with_timm"}
    assert all(getattr(models, name) is entry_point for name, entry_point in ENTRY_POINTS.items())


def test_timm_creates_every_network():
    for _ in range(2):
        register_with_timm()
    assert set(timm.list_models()) >= set(ENTRY_POINTS)
    model = timm.create_model("digits_resnet", num_classes=7, in_chans=3)
    assert type(model) is DigitsResNet
    assert model(torch.ones(2, 3, 8, 8)).shape == (2, 7)
