import copy
import math

import pytest
import torch
from torch import fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.functional.circulant import is_circulant
from privcirnet.nn.quantization_steps import (
    called_modules,
    fix_steps_,
    follow_learned_steps_,
    incoming_steps,
    learn_steps_,
    learned_steps,
)
from privcirnet.nn.quantizers import FAR, ActivationQuantizer, Quantizer, quantizer_of
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import SUFFIX, quantize
from privcirnet.train.network import create
from tests.nn.quantized import BLOCK_SIZES, INPUT_STEP, Skip, incoming_by_name, log_steps, pixels, quantized, quantizers

BITS = 4


def learning(bits: int = BITS) -> fx.GraphModule:
    return learn_steps_(quantized(weight_bits=bits, activation_bits=bits))


def all_log_steps(graph: nn.Module) -> dict[str, int]:
    return {name: int(m.log_step) for name, m in graph.named_modules() if isinstance(m, Quantizer)}


def learned_of(graph: fx.GraphModule, name: str) -> nn.Parameter:
    found = quantizers(graph)[name + SUFFIX].learned
    assert found is not None
    return found


def set_learned(graph: fx.GraphModule, name: str, value: float) -> None:
    with torch.no_grad():
        learned_of(graph, name).fill_(value)


def test_every_step_is_learned_but_the_inputs_and_the_biases():
    graph = learning()
    assert quantizers(graph)[f"x{SUFFIX}"].learned is None
    for name in BLOCK_SIZES:
        layer = graph.get_submodule(name)
        assert quantizer_of(layer).learned is not None
        assert quantizer_of(layer, "bias").learned is None
    assert all(isinstance(learned_of(graph, name), nn.Parameter) for name in ("stem", "stem_square", "conv1", "square"))
    assert learned_of(graph, "down") is learned_of(graph, "conv2"), "summands share"
    assert len(learned_steps(graph)) == len(BLOCK_SIZES) + 5
    assert {id(p) for p in learned_steps(graph)} < {id(p) for p in graph.parameters()}
    assert learned_steps(quantized()) == []


def test_learning_starts_from_the_calibrated_steps_and_leaves_evaluation_as_it_is():
    calibrated, graph = quantized(weight_bits=BITS, activation_bits=BITS), learning()
    assert all_log_steps(graph) == all_log_steps(calibrated)
    assert torch.equal(graph(pixels(seed=3)), calibrated(pixels(seed=3)))
    follow_learned_steps_(graph)
    assert all_log_steps(graph) == all_log_steps(calibrated)


@pytest.mark.parametrize("bits", [4, 8])
def test_values_are_clipped_in_training_and_carried_in_evaluation(bits):
    graph, large = learning(bits), 100 * pixels()
    for training in (True, False):
        graph.train(training)
        for node, module in called_modules(graph):
            if not isinstance(module, ActivationQuantizer) or module.learned is None:
                continue
            step = 2.0 ** int(module.log_step)
            reach = 2**bits - 1 if "square" in node.name else 2 ** (bits - 1) - 1
            integers = module(large if "square" in node.name else large - large.mean()) / step
            assert torch.equal(integers, integers.round())
            if training:
                assert integers.max() == reach
                assert integers.min() >= (0 if "square" in node.name else -reach)
            else:
                assert integers.max() > 2 * reach
    first = quantizers(graph.train())[f"x{SUFFIX}"]
    far = 2.0 ** (first.bits + FAR - 1 + int(first.log_step))
    assert torch.equal(first(large), large.clamp(max=far)), "steps that are not learned clip only what is far outside"


def test_a_weight_that_is_clipped_is_the_same_in_training_and_evaluation():
    graph = learning()
    quantizer = quantizer_of(graph.conv1)
    with torch.no_grad():
        quantizer.learned -= 2
    follow_learned_steps_(graph)
    layer, weight = graph.conv1, graph.conv1.weight
    assert weight.abs().max() == 2.0 ** int(quantizer.log_step) * (2 ** (BITS - 1) - 1)
    assert torch.equal(graph.train().conv1.weight, weight)
    assert is_circulant(layer.weight, BLOCK_SIZES["conv1"])


def test_training_rounds_at_random_as_the_protocol_truncates():
    quantizer = quantizers(learning().train())[f"stem{SUFFIX}"]
    thirds = torch.full((1000,), 2.0 ** int(quantizer.log_step) / 3)
    assert len(quantizer(thirds).unique()) == 2
    assert len(quantizer.eval()(thirds).unique()) == 1


def test_gradients_reach_weights_and_steps():
    graph = learning().train()
    graph(pixels(64)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in graph.parameters())


@pytest.mark.parametrize("seed", range(8))
def test_the_steps_follow_what_is_learned_and_keep_the_rules(seed):
    graph, random = learning(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learned_steps(graph):
            parameter.add_(6 * torch.rand((), generator=random) - 4)
    wanted = {name: round(q.learned.item()) for name, q in quantizers(graph).items() if q.learned is not None}
    before = all_log_steps(graph)
    follow_learned_steps_(graph)
    steps, incoming = log_steps(graph), incoming_by_name(graph)
    assert all_log_steps(graph) != before
    assert steps[f"x{SUFFIX}"] == INPUT_STEP
    assert steps[f"down{SUFFIX}"] == steps[f"conv2{SUFFIX}"]
    summands = [f"down{SUFFIX}", f"conv2{SUFFIX}"]
    for name, step in wanted.items():
        finest = max(incoming[n] for n in summands) if name in summands else incoming[name]
        assert steps[name] == max(step, finest)
    for node, module in called_modules(graph):
        if quantizer := quantizer_of(module, "bias"):
            step = incoming_steps(graph, INPUT_STEP)[node] + int(quantizer_of(module).log_step)
            assert int(quantizer.log_step) == step
            assert int(quantizer_of(module).log_step) == round(quantizer_of(module).learned.item())


def test_a_step_that_was_raised_does_not_wander_on_below():
    """Else it would take as long to come back."""
    graph = learning()
    set_learned(graph, "stem", -40.0)
    follow_learned_steps_(graph)
    step = log_steps(graph)[f"stem{SUFFIX}"]
    assert step == incoming_by_name(graph)[f"stem{SUFFIX}"] > -40
    assert learned_of(graph, "stem").item() == step - 0.5
    set_learned(graph, "stem", step + 1.2)
    follow_learned_steps_(graph)
    assert log_steps(graph)[f"stem{SUFFIX}"] == step + 1
    assert learned_of(graph, "stem").item() == pytest.approx(step + 1.2)


def test_the_inputs_own_residual_is_not_learned():
    graph = learn_steps_(quantize(fuse(Skip(1 / 16)), pixels(), INPUT_STEP))
    assert len(learned_steps(graph)) == 1, "that of the weight"


def test_a_branch_that_becomes_too_coarse_is_refused():
    graph = learn_steps_(quantize(fuse(Skip(1 / 16)), pixels(), INPUT_STEP))
    with torch.no_grad():
        learned_steps(graph)[0].fill_(3.0)
    with pytest.raises(RuleError, match="branch must not be coarser than what it is added to"):
        follow_learned_steps_(graph)


def test_fixing_leaves_a_network_as_if_calibrated():
    graph, calibrated = learning(), quantized(weight_bits=BITS, activation_bits=BITS)
    set_learned(graph, "conv1", 0.0)
    follow_learned_steps_(graph)
    expected, steps = graph(pixels(seed=3)), all_log_steps(graph)
    fix_steps_(graph)
    assert learned_steps(graph) == []
    assert torch.equal(graph(pixels(seed=3)), expected)
    assert list(graph.state_dict()) == list(calibrated.state_dict())
    calibrated.load_state_dict(graph.state_dict())
    assert all_log_steps(calibrated) == steps
    assert torch.equal(calibrated(pixels(seed=3)), expected)


def test_what_has_no_learned_steps_is_left_alone():
    for model in (nn.Linear(2, 2), quantized()):
        before = copy.deepcopy(model.state_dict())
        follow_learned_steps_(model)
        fix_steps_(model)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_copies_and_conversions_share_among_themselves_only():
    graph = learning()
    twin = copy.deepcopy(graph).double()
    assert learned_of(twin, "down") is learned_of(twin, "conv2")
    set_learned(twin, "conv2", 1.0)
    follow_learned_steps_(twin)
    assert log_steps(twin)[f"down{SUFFIX}"] == 1 != log_steps(graph)[f"down{SUFFIX}"]


def test_squares_that_aespa_became_have_no_sign():
    """And a network with many residuals keeps its rules."""
    torch.manual_seed(0)
    arguments, sizes = {"activation": "aespa", "width": 0.25}, {"blocks.1.0.expand": 8, "blocks.1.0.project": 4}
    model = circulant_(create("mobilenetv2_cifar", 10, (3, 32, 32), arguments), sizes).eval()
    images = torch.randint(16, (2, 3, 32, 32)) / 16
    graph = learn_steps_(quantize(fuse(model), images, INPUT_STEP)).train()
    squares = {node for node, module in called_modules(graph) if isinstance(module, Square)}
    limits = {user.target: graph.get_submodule(user.target).limits for node in squares for user in node.users}
    assert squares
    assert set(limits.values()) == {(0, 255)}
    others = [q.limits for name, q in quantizers(graph).items() if q.learned is not None and name not in limits]
    assert set(others) == {(-127, 127)}
    graph(images).square().mean().backward()
    optimizer = torch.optim.Adam(learned_steps(graph), lr=1.0)
    optimizer.step()
    before = all_log_steps(graph)
    follow_learned_steps_(graph)
    assert all_log_steps(graph) != before
    incoming = incoming_by_name(graph)
    assert all(incoming[name] <= step for name, step in log_steps(graph).items())
    assert math.isfinite(graph.eval()(images).abs().max().item())
