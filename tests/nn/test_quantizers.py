"""Quantizers of weights, biases and activations."""

import pytest
import torch
from torch import nn

from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import expand, is_circulant
from privcirnet.nn.functional.quantize import quantize_weight
from privcirnet.nn.quantizers import ActivationQuantizer, WeightQuantizer, quantizer_of
from tests.nn.networks import rows_of
from tests.nn.quantized import BLOCK_SIZES, pixels, quantized


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_weights_are_quantized_rows_written_out_and_stay_circulant(bits):
    graph = quantized(weight_bits=bits)
    for name, b in BLOCK_SIZES.items():
        layer = graph.get_submodule(name)
        quantizer = quantizer_of(layer)
        steps = [int(quantizer.log_step) + exponent for exponent in quantizer.exponents.tolist()]
        assert block_size_of(layer) == b
        assert is_circulant(layer.weight, b)
        assert rows_of(layer).shape[0] == layer.weight.shape[0] // b == len(steps)
        rows = [quantize_weight(row, step, bits) for row, step in zip(rows_of(layer).split(1), steps, strict=True)]
        assert torch.equal(layer.weight, expand(torch.cat(rows), b))
        assert torch.equal(layer.weight, layer.parametrizations.weight[-1](expand(rows_of(layer), b)))
        for row, step in zip(layer.weight.split(b), steps, strict=True):
            integers = row / 2.0**step
            assert torch.equal(integers, integers.round())
            assert integers.abs().max() <= 2 ** (bits - 1) - 1
            assert step == int(quantizer.log_step) or 2 ** (bits - 2) - 1 < integers.abs().max()


def test_training_rounds_at_random_and_evaluation_to_nearest():
    graph, images = quantized(), pixels()
    assert torch.equal(graph(images), graph(images))
    graph.train()
    assert not torch.equal(graph(images), graph(images))


def test_in_training_an_image_that_explodes_leaves_gradients_finite():
    layers = nn.Sequential(nn.Linear(1, 1), *[nn.Sequential(Square(), ActivationQuantizer(8, -7)) for _ in range(12)])
    with torch.no_grad():
        layers[0].weight.fill_(1.0)
        layers[0].bias.fill_(0.0)
    images = torch.tensor([[1.0], [0.5], [40.0]])
    layers.eval()
    assert not layers(images).isfinite().all(), "nothing is clipped"
    layers.train()(images).sum().backward()
    assert layers[0].weight.grad.isfinite().all()
    quantizer = ActivationQuantizer(8, -3).train()
    torch.testing.assert_close(quantizer(torch.tensor([1e9, -1e9, 3.0])), torch.tensor([128.0, -128.0, 3.0]))


@pytest.mark.parametrize("training", [False, True])
def test_what_a_table_takes_is_clipped(training):
    quantizer = ActivationQuantizer(4, -1).train(training)
    quantizer.clips = True
    x = torch.tensor([-9.0, -4.0, 3.5, 3.9, 9.0, 1.0], requires_grad=True)
    found = quantizer(x)
    assert found.tolist() == [-4.0, -4.0, 3.5, 3.5, 3.5, 1.0]
    assert quantizer.ends == (-8, 7)
    found.sum().backward()
    assert x.grad[[0, 4, 5]].tolist() == [0.0, 0.0, 1.0]


def test_a_quantizers_text_says_its_step():
    assert "ActivationQuantizer(bits=8, log_step=-3)" in repr(ActivationQuantizer(8, -3))
    assert quantizer_of(nn.Linear(2, 2)) is None
    assert isinstance(quantizer_of(quantized().conv1), WeightQuantizer)
