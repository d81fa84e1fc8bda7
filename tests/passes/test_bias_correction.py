"""Quantized layers get the channel means of the layers before quantization."""

from functools import partial

import torch
from torch import nn

from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import correct_biases_, quantize
from tests.nn.networks import assert_unchanged, snapshot, vit
from tests.nn.quantized import INPUT_STEP, network, pixels

uncorrected = partial(quantize, input_log_step=INPUT_STEP, correct_biases=False)


def test_coarse_weights_cost_less_and_the_fused_network_stays():
    fused, images = fuse(network()), pixels(64)
    before, want = snapshot(fused), fused(images)
    plain, corrected = (uncorrected(fused, images, weight_bits=4, activation_bits=12) for _ in range(2))
    assert correct_biases_(corrected, fused, images) is corrected
    given = quantize(fused, images, INPUT_STEP, weight_bits=4, activation_bits=12)
    assert torch.equal(given(images), corrected(images))
    errors = [(graph(images) - want).norm().item() for graph in (plain, corrected)]
    assert errors[1] < 0.8 * errors[0]
    assert_unchanged(fused, before)


def test_the_median_image_has_no_shift_left():
    """Of every layer, with all layers before it corrected; up to the grid of biases."""
    fused, images = fuse(network()), pixels(63)
    graph = quantize(fused, images, INPUT_STEP, weight_bits=4)
    off = (graph(images) - fused(images)).median(0).values
    spread = fused(images).std(0)
    assert (off.abs() < 1e-2 * spread).all()


def test_an_image_that_explodes_does_not_count():
    fused, images = fuse(network()), pixels(15)
    wild = torch.cat([images, torch.full_like(images[:1], torch.inf)])
    graphs = [uncorrected(fused, images, weight_bits=4) for _ in range(2)]
    correct_biases_(graphs[0], fused, images)
    correct_biases_(graphs[1], fused, wild)
    for name, value in graphs[1].state_dict().items():
        assert torch.isfinite(value.double()).all(), name


def test_layers_without_a_bias_are_left_alone_and_transformers_run():
    fused = fuse(nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.Flatten(), nn.Linear(144, 3, bias=False)))
    graph = quantize(fused, pixels(8), INPUT_STEP)
    before = snapshot(graph)
    correct_biases_(graph, fused, pixels(8))
    assert_unchanged(graph, before)
    model, images = vit().double().eval(), torch.rand(8, 3, 8, 8, dtype=torch.float64)
    fused = fuse(model)
    graph = uncorrected(fused, images, weight_bits=5)
    errors = [(graph(images) - fused(images)).norm().item()]
    correct_biases_(graph, fused, images)
    assert (graph(images) - fused(images)).norm().item() < errors[0]
