import copy
import math

import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.models import DigitsResNet
from privcirnet.nn.activations import Square
from privcirnet.nn.agreement import node_values
from privcirnet.nn.example import FUSED
from privcirnet.nn.functional.circulant import expand, project
from privcirnet.nn.functional.quantize import log_step_for
from privcirnet.nn.graph import trace
from privcirnet.nn.quantization_steps import follow_learned_steps_, learn_steps_, refine
from privcirnet.nn.quantizers import ActivationQuantizer, quantizer_of
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse, fuse_at
from privcirnet.passes.quantize import SUFFIX, quantize, with_quantizers
from tests.nn.networks import Written, assert_unchanged, rows_of, snapshot
from tests.nn.quantized import (
    BLOCK_SIZES,
    INPUT_STEP,
    Skip,
    incoming_by_name,
    log_steps,
    network,
    pixels,
    quantized,
    quantizers,
)


def test_where_quantizers_go():
    after = ["x", "stem", "stem_square", "down", "conv1", "square", "conv2"]
    graph = quantized()
    assert set(quantizers(graph)) == {name + SUFFIX for name in after}
    for node in graph.graph.nodes:
        if node.name in after:
            assert [user.target for user in node.users] == [node.name + SUFFIX]


def test_outputs_are_close_to_the_fused_networks():
    fused, images = fuse(network()), pixels(32, seed=1)
    expected = fused(images)
    graph = quantize(fused, images, INPUT_STEP, weight_bits=8, activation_bits=16)
    assert (graph(images) - expected).abs().max() < 0.05 * (expected.max() - expected.min())
    coarse = quantize(fused, images, INPUT_STEP, weight_bits=2, activation_bits=2)
    assert (coarse(images) - expected).abs().max() > (graph(images) - expected).abs().max()


def test_a_quantile_of_the_images_sets_steps():
    """One of ten images has four times the values of the others; with 0.9 its values are carried, with 1 they count."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(256, 3, bias=False))
    images = pixels(10) / 4
    images[3] = 4 * images[4]
    fine, coarse = (quantize(fuse(model), images, INPUT_STEP, quantile=q) for q in (0.9, 1.0))
    others = images[[n for n in range(10) if n != 3]]
    assert log_steps(fine) == log_steps(quantize(fuse(model), others, INPUT_STEP))
    largest = model[0](images).abs().amax((1, 2, 3)).sort().values
    for graph, held, carried in ((fine, largest[8], largest[9]), (coarse, largest[9], math.inf)):
        assert held <= 127 * 2.0 ** log_steps(graph)["_0" + SUFFIX] < carried


def test_small_outputs_have_finer_steps_where_sums_have_room():
    """Of a depthwise layer whose outputs are 1, 1/16 and 1/1024 as large, and zero; the last layer has longer sums.

    Polynomials alone would have random truncations, and one step for all outputs of a layer.
    """
    torch.manual_seed(0)
    depthwise, images = nn.Conv2d(4, 4, 3, groups=4), pixels(16)
    with torch.no_grad():
        depthwise.weight.mul_(torch.tensor([1, 2**-4, 2**-10, 0]).view(4, 1, 1, 1))
    model = nn.Sequential(nn.Conv2d(1, 4, 1), depthwise, nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).double()
    with torch.no_grad():
        model[4].weight.abs_()
    images = images.double()
    graph, values = quantize(fuse(model), images, INPUT_STEP), node_values(fuse(model), images)
    incoming, sums, alike = incoming_by_name(graph), {}, {}
    for name, layer in ((name, graph.get_submodule(name.strip("_"))) for name in ("_0", "_1", "_4")):
        counted = values[name].abs().max() * 2.0 ** -incoming[name]
        sums[name] = (counted * 2.0 ** -int(quantizer_of(layer).log_step)).item()
        alike[name] = (counted * 2.0 ** -log_step_for(layer.weight.abs().max().item(), 8)).item()
    room = max(alike.values())
    assert max(sums.values()) == room == alike["_4"]
    assert alike["_1"] < sums["_1"], "finer"
    assert sums["_1"] > room / 2, "as far as there is room"
    exponents = quantizer_of(graph.get_submodule("1")).exponents.tolist()
    assert exponents[0] >= 5
    assert exponents[:2] == [exponents[1] + 4, exponents[1]]
    assert exponents[2:] == [0, exponents[0]], "zeros take the coarsest"
    model[2] = Square()
    assert not quantizer_of(quantize(fuse(model), images, INPUT_STEP).get_submodule("1")).exponents.any()


def test_weights_of_one_bit_are_signs_times_a_power_of_two_of_each_block_row():
    """As near to the fused weights as a power of two goes; still circulant; found again in a checkpoint."""
    graph = quantized(weight_bits=1)
    for name, b in BLOCK_SIZES.items():
        layer = graph.get_submodule(name)
        quantizer, fused = quantizer_of(layer), fuse(network()).get_submodule(name).weight
        exponents = quantizer.exponents.repeat_interleave(b)
        scale = torch.exp2(exponents.float() + quantizer.log_step).view(-1, *[1] * (fused.dim() - 1))
        assert torch.equal(layer.weight, fused.sign() * scale)
        assert torch.equal(layer.weight, expand(project(layer.weight, b), b))
        ratio = fused.abs().flatten(1).mean(1) / scale.flatten()
        usual = exponents > 0
        assert ((ratio > 0.7) & (ratio < 1.42))[usual].all()
    twin = with_quantizers(fuse(network()), weight_bits=1)
    twin.load_state_dict(graph.state_dict())
    assert torch.equal(twin(pixels()), graph(pixels()))


def test_signs_are_trained():
    graph = learn_steps_(quantized(weight_bits=1)).train()
    optimizer = torch.optim.Adam(graph.parameters(), 0.05)
    before = graph.conv1.weight.sign()
    for _ in range(10):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(graph(pixels()), torch.arange(8)).backward()
        optimizer.step()
        follow_learned_steps_(graph)
    changed = (graph.conv1.weight.sign() != before).float().mean()
    assert 0 < changed < 0.5


def test_the_fused_graph_and_its_model_stay_as_they_were():
    """Deep copies share torch's generated class, so a property added for one is missed by the others."""
    model, images = network(), pixels()
    fused = fuse(model)
    before = [(m, snapshot(m), m(images)) for m in (model, fused)]
    classes = [(type(layer), dict(vars(type(layer)))) for layer in fused.modules()]
    graph = quantize(fused, images, INPUT_STEP)
    twin = quantize(fused, images, INPUT_STEP)
    for network_before, state, output in before:
        assert_unchanged(network_before, state)
        assert torch.equal(network_before(images), output)
    assert [(type(layer), dict(vars(type(layer)))) for layer in fused.modules()] == classes
    assert type(graph.conv1) is not type(fused.conv1)
    assert torch.equal(graph(images), twin(images))
    owned = {value.data_ptr() for value in graph.state_dict().values()}
    assert not owned & {value.data_ptr() for value in fused.state_dict().values()}


def test_a_deep_copy_of_a_quantized_graph_runs_and_learns_alone():
    graph, images = quantized(), pixels()
    twin, expected = copy.deepcopy(graph), graph(images)
    assert torch.equal(twin(images), expected)
    with torch.no_grad():
        rows_of(twin.conv1).mul_(2)
    assert torch.equal(graph(images), expected)
    assert not torch.equal(twin(images), expected)


@pytest.mark.parametrize("training", [False, True])
def test_every_module_is_in_the_fused_graphs_mode(training):
    graph = quantize(fuse(network()).train(training), pixels(), INPUT_STEP)
    assert {module.training for module in graph.modules()} == {training}


def test_without_images_only_the_structure_is_made():
    graph = quantized(weight_bits=6)
    empty = with_quantizers(fuse(circulant_(DigitsResNet(width=8), BLOCK_SIZES)), weight_bits=6)
    assert set(log_steps(empty).values()) == {0}
    assert not torch.equal(empty(pixels()), graph(pixels()))
    assert empty.load_state_dict(graph.state_dict(), strict=True)
    assert log_steps(empty) == log_steps(graph)
    assert torch.equal(empty(pixels(seed=3)), graph(pixels(seed=3)))


def shared() -> nn.Module:
    return Written(lambda net, x: net.conv(net.conv(x)), conv=nn.Conv2d(1, 1, 1))


def pooled() -> nn.Module:
    """The sum of what two pools make of a convolution's output."""
    forward = lambda net, x: net.left(y := net.conv(x)) + net.right(y)  # noqa: E731
    return Written(forward, conv=nn.Conv2d(1, 1, 1), left=nn.LPPool2d(2, 2), right=nn.LPPool2d(2, 2))


def offset() -> nn.Module:
    return Written(lambda net, x: net.conv(x) + net.offset, conv=nn.Conv2d(1, 1, 1), offset=nn.Parameter(torch.ones(8)))


def pool(kernel: int | tuple[int, int], **options: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 1, 1), nn.AvgPool2d(kernel, **options), nn.Conv2d(1, 1, 1))


UNQUANTIZABLE = [
    (shared, "a layer must run once an image: got conv"),
    (pooled, r"summands .* quantized activation: got left \(LPPool2d\)"),
    (offset, r"summands .* quantized activation: got offset \(get_attr\)"),
    (lambda: Skip(1000), r"branch must not be coarser .*: got steps over 2\^32 at conv_quantizer,"),
    (lambda: Skip(50), r"the image can't be rescaled to the step of a sum: got step 2\^-1 for 2\^-4 at x"),
    (
        lambda: pool((2, 4), stride=(2, 2)),
        r"average pooling must have windows .*: got 1: AvgPool2d\(kernel_size=\(2, 4\).*use a kernel of 2",
    ),
    (lambda: pool(3, padding=1), "average pooling must have windows side by side"),
    (lambda: pool(2, stride=1), "average pooling must have windows side by side"),
    (lambda: pool(2, padding=1), "average pooling must have windows side by side"),
    (lambda: pool(2, ceil_mode=True), "average pooling must have windows side by side"),
]


@pytest.mark.parametrize(("build", "message"), UNQUANTIZABLE)
def test_networks_that_cannot_be_quantized(build, message):
    """As they are, without what surgery would make of them."""
    fused = fuse(build())
    fused.meta[FUSED] = True
    before = snapshot(fused)
    with pytest.raises(RuleError, match=message):
        quantize(fused, pixels(), INPUT_STEP)
    assert_unchanged(fused, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_bits": 9}, r"weight bits must be in \[1, 8\]: got 9; use 8"),
        ({"weight_bits": 0}, r"weight bits must be in \[1, 8\]: got 0; use 8"),
        ({"activation_bits": 17}, r"activation bits must be in \[2, 16\]: got 17; use 8"),
        ({"activation_bits": 1}, r"activation bits must be in \[2, 16\]: got 1; use 8"),
    ],
)
def test_bits_out_of_range(options, message):
    with pytest.raises(RuleError, match=message):
        quantized(**options)


def test_a_quantized_network_is_not_quantized_again():
    with pytest.raises(RuleError, match="must be quantized once: got a quantizer at 'stem'"):
        quantize(quantized(), pixels(), INPUT_STEP)
    with pytest.raises(RuleError, match="must be quantized once"):
        quantize(trace(quantized()), pixels(), INPUT_STEP)


def test_images_of_nothing_but_zeros_are_refused():
    with pytest.raises(RuleError, match="must show what values there are: got nothing but zeros; give real ones"):
        quantize(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), torch.zeros(4, 1, 8, 8))


def test_values_that_are_not_finite():
    with pytest.raises(RuleError, match=r"values must be finite to be quantized: got (inf|nan)"):
        quantize(fuse(network()), torch.full((1, 1, 8, 8), 3e38), INPUT_STEP)
    with pytest.raises(RuleError, match="images must be finite: got NaN or infinity"):
        quantize(fuse(network()), torch.full((1, 1, 8, 8), math.inf), INPUT_STEP)


def test_functions_with_tables_take_what_is_clipped():
    """Behind a layer alone its quantizer clips; where something else reads it, or after a sum, one of their own does."""
    forward = lambda net, x: net.tail(net.third(net.two(z := net.one(x)) + z) + net.first(y := net.conv(x)) + y)  # noqa: E731
    layers = {"conv": nn.Conv2d(1, 1, 1), "one": nn.Conv2d(1, 1, 1), "tail": nn.Conv2d(1, 1, 1)}
    functions = {"first": nn.GELU(), "two": nn.SiLU(), "third": nn.Hardswish()}
    network = Written(forward, **layers, **functions).eval()
    images = torch.rand(8, 1, 4, 4)
    graph = quantize(fuse(network), images)
    found = {name: module for name, module in graph.named_modules() if isinstance(module, ActivationQuantizer)}
    clipping = [name for name, module in found.items() if module.clips]
    assert sorted(clipping) == ["first_input_quantizer", "third_input_quantizer", "two_input_quantizer"]
    alone = quantize(fuse(nn.Sequential(nn.Conv2d(1, 1, 1), nn.GELU(), nn.Conv2d(1, 1, 1)).eval()), images)
    assert [n for n, m in alone.named_modules() if isinstance(m, ActivationQuantizer) and m.clips] == ["_0_quantizer"]
    finer = refine(graph, 3)
    for name in clipping:
        (low, high), after = found[name].ends, getattr(finer, name)
        step, new = int(found[name].log_step), int(after.log_step)
        assert (new <= step, after.ends) == (True, (low << step - new, (high + 1 << step - new) - 1))


def test_a_max_pool_behind_a_layer_is_rounded_once_it_has_fewer_values():
    chain = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1))
    graph = quantize(fuse(chain), torch.rand(4, 2, 8, 8))
    order = [str(node.target) for node in graph.graph.nodes if node.op == "call_module"]
    assert order == ["x_quantizer".replace("x", "input_1"), "0", "2", "_2_quantizer", "1", "3"]


class Residual(nn.Module):
    """A sum whose branch is of a chosen size, from ReLU to ReLU."""

    def __init__(self, scale: float, bias: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        with torch.no_grad():
            self.second.weight.mul_(scale)
            self.second.bias.mul_(scale).add_(bias)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return torch.relu(x + self.second(x)).flatten(1)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_a_small_branch_is_no_finer_than_its_sum_needs(bias):
    """Weights of zero, as zero-initialised norms leave them, with a bias or without."""
    images, bits = pixels(16), {}
    for scale in (1.0, 0.1, 1e-3, 1e-6, 0.0):
        torch.manual_seed(0)
        fused = fuse_at(Residual(scale, bias), images)
        graph = quantize(fused, images, INPUT_STEP)
        wanted, found = fused(images), graph(images)
        assert (found - wanted).abs().max() < wanted.abs().max() / 50
        steps = {name: step for name, step in incoming_by_name(graph).items() if "second" in name}
        bits[scale] = log_steps(graph)["second" + SUFFIX] - steps["second" + SUFFIX]
    assert max(bits.values()) <= bits[1.0] + 3


def test_a_layer_of_zeros_runs_with_its_bias():
    images, model = pixels(16), nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    nn.init.zeros_(model[3].weight)
    graph = quantize(fuse(model), images, INPUT_STEP)
    assert torch.allclose(graph(images), model(images), atol=1e-3)
    assert -30 < incoming_by_name(graph)["output"] < 0
