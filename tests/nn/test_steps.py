"""Steps of a fake-quantized graph: calibrated, refined, and kept by the rules."""

import math

import pytest
import torch
from torch import Tensor, fx, nn

from privcirnet.nn.activations import Square
from privcirnet.nn.functional.quantize import quantize_activation
from privcirnet.nn.quantization_steps import refine
from privcirnet.nn.quantizers import quantizer_of
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import SUFFIX, quantize
from tests.nn.networks import assert_unchanged, snapshot
from tests.nn.quantized import (
    BLOCK_SIZES,
    INPUT_STEP,
    incoming_by_name,
    log_steps,
    network,
    pixels,
    quantized,
    quantizers,
)


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_calibrated_values_fit_the_bits_with_the_finest_step(bits):
    fused, images = fuse(network()), pixels()
    graph = quantize(fused, images, INPUT_STEP, activation_bits=bits)
    seen = {}
    for name, module in fused.named_modules():
        module.register_forward_hook(
            lambda _, inputs, output, name=name: seen.update({name: output.abs().max().item()})
        )
    fused(images)
    steps, incoming = log_steps(graph), incoming_by_name(graph)
    assert steps[f"x{SUFFIX}"] == INPUT_STEP
    wanted = {}
    for name in ("stem", "stem_square", "down", "conv1", "square", "conv2"):
        reach = 2**bits - 1 if "square" in name else 2 ** (bits - 1) - 1
        wanted[name] = next(s for s in range(-40, 40) if seen[name] <= reach * 2.0**s)
        assert seen[name] <= reach * 2.0 ** steps[name + SUFFIX]
    wanted["down"] = wanted["conv2"] = max(wanted["down"], wanted["conv2"])
    for name, step in wanted.items():
        assert steps[name + SUFFIX] == max(step, incoming[name + SUFFIX])


@pytest.mark.parametrize("bits", [3, 8])
def test_all_values_are_multiples_of_the_steps_said(bits):
    graph = quantized(activation_bits=bits).double()
    incoming = incoming_by_name(graph)

    class Check(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            arguments, _ = self.fetch_args_kwargs_from_env(n)
            for argument in arguments if n.op in ("call_module", "call_function", "output") else ():
                scaled = argument / 2.0 ** incoming[n.name]
                assert torch.equal(scaled, scaled.round()), n
            return super().run_node(n)

    Check(graph).run(pixels(seed=2).double())


class Cancelling(nn.Module):
    """Large weights whose contributions nearly cancel: the sums are finer than the activation's bits could be."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.square, self.last = nn.Conv2d(2, 2, 1, bias=False), Square(), nn.Conv2d(2, 2, 1)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([[64.0, -64.0], [64.0, -64.0]]).reshape(2, 2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.square(self.conv(x)))


def test_a_step_finer_than_the_sum_is_raised_to_it():
    x = torch.full((2, 2, 2, 2), 0.5)
    graph = quantize(fuse(Cancelling()), x, INPUT_STEP)
    weight_step = int(quantizer_of(graph.conv).log_step)
    assert weight_step == 0
    assert log_steps(graph) == {
        f"x{SUFFIX}": INPUT_STEP,
        f"conv{SUFFIX}": INPUT_STEP,
        f"square{SUFFIX}": 2 * INPUT_STEP,
    }
    assert int(quantizer_of(graph.last, "bias").log_step) == 2 * INPUT_STEP + int(quantizer_of(graph.last).log_step)


class Chain(nn.Module):
    """Three summands in two sums, and a fourth behind dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Conv2d(1, 1, 1) for _ in range(4))
        self.drop, self.last = nn.Dropout(0.5), nn.Conv2d(1, 1, 1)
        for scale, conv in zip((1, 10, 100, 1000), (self.a, self.b, self.c, self.d), strict=True):
            nn.init.constant_(conv.weight, scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.a(x)) + self.b(x) + self.c(x) + self.d(x))


def test_chained_sums_share_one_step():
    steps = log_steps(quantize(fuse(Chain()), pixels(), INPUT_STEP))
    assert len({steps[name + SUFFIX] for name in "abcd"}) == 1
    assert steps[f"d{SUFFIX}"] >= math.ceil(math.log2(1000 / 127))


def test_the_input_keeps_its_step_and_its_values():
    graph = quantized(activation_bits=2).train()
    quantizer, image = quantizers(graph)[f"x{SUFFIX}"], pixels()
    assert int(quantizer.log_step) == INPUT_STEP
    assert torch.equal(quantizer(image), image)


def test_biases_are_on_the_grid_of_their_layers_sums():
    graph = quantized()
    incoming = incoming_by_name(graph)
    for name in BLOCK_SIZES:
        layer = graph.get_submodule(name)
        step = incoming[name] + int(quantizer_of(layer).log_step)
        original = layer.parametrizations.bias.original
        assert int(quantizer_of(layer, "bias").log_step) == step
        assert torch.equal(layer.bias, quantize_activation(original.detach(), step))


def test_refining_keeps_more_fractional_bits_and_leaves_the_graph():
    graph, images = quantized(), pixels()
    before, expected = snapshot(graph), graph(images)
    refined = refine(graph, 3)
    assert_unchanged(graph, before)
    assert torch.equal(graph(images), expected)
    incoming = incoming_by_name(refined)
    for name, step in log_steps(graph).items():
        assert log_steps(refined)[name] == (step if name == f"x{SUFFIX}" else max(step - 3, incoming[name]))
    for name in BLOCK_SIZES:
        assert torch.equal(refined.get_submodule(name).weight, graph.get_submodule(name).weight)
    assert log_steps(refine(graph, 0)) == log_steps(graph)


def test_refining_as_far_as_it_goes_is_exact_and_keeps_summands_together():
    graph = refine(quantized(), 200)
    steps, incoming = log_steps(graph), incoming_by_name(graph)
    assert steps[f"down{SUFFIX}"] == steps[f"conv2{SUFFIX}"]
    assert all(steps[name] == incoming[name] for name in steps if name not in (f"down{SUFFIX}", f"conv2{SUFFIX}"))
