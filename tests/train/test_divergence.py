"""The score of a plan: the divergence of predictions after the start, none for the dense network."""

import copy

import pytest
import torch
from torch.nn.functional import kl_div

from privcirnet.data import load
from privcirnet.models import DigitsResNet
from privcirnet.passes.convert import circulant_
from privcirnet.train.race import FITTED, Divergence
from tests.nn.networks import assert_unchanged, snapshot

DATA = load("digits")


def test_it_is_that_of_the_fitted_network_on_other_images():
    torch.manual_seed(0)
    model = DigitsResNet(width=8).eval()
    before, sizes = snapshot(model), {"conv1": 4, "conv2": 4, "down": 2}
    divergence = Divergence(model, DATA)
    found = divergence(sizes)
    assert_unchanged(model, before)
    images = torch.cat([x for x, _ in DATA.sampled(3 * FITTED, 64)])
    fitted = circulant_(copy.deepcopy(model), sizes, images=images[:FITTED])
    with torch.no_grad():
        first, second = (m(images[FITTED:]).double().log_softmax(1) for m in (model, fitted.eval()))
    assert found == pytest.approx(kl_div(second, first, log_target=True, reduction="batchmean").item(), rel=1e-3)
    assert divergence(dict.fromkeys(sizes, 1)) == 0.0 < found
    assert divergence(sizes) == found


def test_a_single_image_is_enough():
    data = DATA.part(1)
    assert Divergence(DigitsResNet(width=8).eval(), data)({"conv1": 4}) >= 0
