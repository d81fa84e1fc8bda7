import copy
import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv.parameters import ParameterSet
from privcirnet.he.layers.integer import expand_rows
from privcirnet.he.layers.spectral_layer import UnplannedLayer
from privcirnet.he.planning import plan_program as fit
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import SETS, SHORT_SETS
from privcirnet.he.planning.plan_program import Target
from privcirnet.he.planning.profile import COUNTED, Profile
from privcirnet.he.program import bounds
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Linear
from privcirnet.he.program.program import Program
from privcirnet.he.ring import modular
from privcirnet.models import DigitsResNet
from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import BlockCirculantLinear
from privcirnet.nn.functional.circulant import expand
from privcirnet.nn.quantization_steps import refine
from privcirnet.nn.quantizers import quantizer_of
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import Lowered, drafts, lower, refined
from privcirnet.passes.lower.builder import ProgramBuilder
from privcirnet.passes.quantize import quantize, with_quantizers
from tests.nn.networks import Written, assert_unchanged, randomize_norms_, rows_of, snapshot

LEVELS, STEP = 16, -4
SIZES = {
    "mixed": {"stem": 1, "down": 2, "conv1": 8, "conv2": 4, "classifier": 2},
    "dense": {},
    "large": {"down": 8, "conv1": 16, "conv2": 16, "classifier": 2},
}


def target(**changes: object) -> Target:
    """Of the papers' cost units; security of truncation is asked for only where a test is about it."""
    return Target(**({"profile": COUNTED, "link": LINKS["local"], "failure_bits": 0} | changes))


def profile(coefficient_bits: tuple[int, ...], ring_degree: int = 8192) -> Profile:
    return dataclasses.replace(COUNTED, coefficient_bits=coefficient_bits, ring_degree=ring_degree)


class Perceptron(nn.Module):
    """Vectors from the start, a residual between them, no bias in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.first = nn.Flatten(), nn.Linear(64, 16)
        self.branch, self.square = BlockCirculantLinear(16, 16, block_size=4, bias=False), Square()
        self.drop, self.last = nn.Dropout(), BlockCirculantLinear(16, 4, block_size=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.flatten(x))
        x = self.drop(self.square(self.branch(x))) + x
        return self.last(x)


class Grouped(nn.Module):
    """Channel groups of every kind: depthwise with stride, two outputs a channel, odd maps, between circulant layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(1, 6, 1), nn.Conv2d(6, 6, 5, padding=2, groups=6)
        self.wide, self.square = nn.Conv2d(6, 12, 2, groups=6), Square()
        self.down = nn.Conv2d(12, 12, 3, stride=2, padding=1, groups=12, bias=False)
        self.pairs, self.mix = nn.Conv2d(12, 24, 3, padding=1, groups=2), nn.Conv2d(24, 12, 1)
        self.last, self.flatten = nn.Conv2d(12, 4, 4, bias=False), nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.square(self.wide(self.first(self.stem(x)))))
        return self.flatten(self.last(x + self.mix(self.pairs(x))))


class Kernels(nn.Module):
    """Dilated, rectangular, of both kinds, padded by name, with groups."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.dilated = nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.wide, self.high = nn.Conv2d(4, 4, (1, 5), padding=(0, 2)), nn.Conv2d(4, 4, (3, 1), padding="same")
        self.both = nn.Conv2d(4, 4, (2, 3), stride=2, dilation=(4, 2), groups=2)
        self.last, self.flatten = nn.Conv2d(4, 3, 2, padding="valid"), nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        return self.flatten(self.last(self.both(self.high(self.wide(self.dilated(self.stem(x)))))))


def kernels() -> fx.GraphModule:
    torch.manual_seed(1)
    model = nn.Sequential(Kernels(), nn.Identity())
    return quantized(circulant_(model, {"0.dilated": 4, "0.wide": 2, "0.high": 4}))


def grouped(seed: int = 0, **options: int) -> fx.GraphModule:
    torch.manual_seed(seed)
    return quantized(circulant_(Grouped(), {"mix": 4, "last": 2}), **options)


def pixels(count: int = 4, seed: int = 0) -> Tensor:
    return torch.randint(LEVELS + 1, (count, 1, 8, 8), generator=torch.Generator().manual_seed(seed))


def quantized(model: nn.Module, **options: int) -> fx.GraphModule:
    return quantize(fuse(model), pixels(8, seed=1) * 2.0**STEP, STEP, **options)


def digits(sizes: str = "mixed", seed: int = 0, **options: int) -> fx.GraphModule:
    torch.manual_seed(seed)
    model = DigitsResNet(width=8)
    randomize_norms_(model)
    return quantized(circulant_(model, SIZES[sizes]), **options)


def perceptron(seed: int = 0, **options: int) -> fx.GraphModule:
    torch.manual_seed(seed)
    return quantized(Perceptron(), **options)


def program_of(graph: fx.GraphModule, **changes: object) -> Program:
    return lower(graph, (1, 8, 8), LEVELS, STEP, target(**changes))


def refined_of(graph: fx.GraphModule, asked: Target, *guard_bits: int) -> Lowered:
    """With the most guard bits, from the network's integer forms."""
    return refined(drafts(graph, (1, 8, 8), LEVELS, STEP, asked), asked, *guard_bits)


def reached(program: Program) -> float:
    """Bits of the probability that a truncation wraps."""
    return -math.log2(bounds.wrap_probability(program, bounds.largest_sizes(bounds.prove(program))))


@functools.cache
def mixed() -> tuple[fx.GraphModule, Program]:
    graph = digits()
    return graph, program_of(graph)


class Recorder(fx.Interpreter):
    """What every node of a graph gives for one image, in float64."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(copy.deepcopy(graph).double().eval())
        self.seen: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> object:
        result = super().run_node(n)
        self.seen[n.name] = result
        return result


GRAPHS = [
    pytest.param(lambda: digits("mixed"), id="mixed"),
    pytest.param(lambda: digits("dense", 1), id="dense"),
    pytest.param(lambda: digits("large", 2), id="large"),
    pytest.param(lambda: digits("mixed", 3, weight_bits=4, activation_bits=6), id="fewer bits"),
    pytest.param(lambda: refine(digits("mixed", 4), 3), id="guard bits"),
    pytest.param(perceptron, id="perceptron"),
    pytest.param(lambda: perceptron(1, weight_bits=3, activation_bits=12), id="perceptron in other bits"),
    pytest.param(grouped, id="channel groups"),
    pytest.param(kernels, id="kernels of other forms"),
    pytest.param(lambda: grouped(2, weight_bits=4, activation_bits=7), id="channel groups in other bits"),
]


@pytest.mark.parametrize("build", GRAPHS)
def test_every_node_is_the_fake_quantized_networks_bit_for_bit(build):
    graph = build()
    program = program_of(graph)
    intervals = bounds.prove(program)
    for image in pixels():
        recorder = Recorder(graph)
        with torch.no_grad():
            logits = recorder.run(image[None].double() * 2.0**STEP)
        values = interpret(program, image.numpy().astype(np.int64))
        for node in program.nodes:
            expected = recorder.seen[node.name].numpy().reshape(node.shape)
            assert np.array_equal(values[node.name] * 2.0**node.log_step, expected), node.name
            low, high = intervals[node.name]
            assert (low <= values[node.name]).all()
            assert (values[node.name] <= high).all()
        assert np.array_equal(values[program.output.name].ravel() * 2.0**program.output.log_step, logits[0].numpy())
        assert len(np.unique(logits)) == logits.numel()


def test_the_network_stays_as_it_was():
    graph = digits()
    before = snapshot(graph)
    program_of(graph)
    refined_of(graph, target(), 2)
    assert_unchanged(graph, before)


def test_block_sizes_and_rows_survive():
    graph, program = mixed()
    assert {node.module: layer.block_size for node, layer in program.linear_nodes} == SIZES["mixed"]
    for node, layer in program.linear_nodes:
        module, weights = graph.get_submodule(node.module), program.weights[node.name]
        step = int(quantizer_of(module).log_step)
        assert weights.rows.shape[:2] == tuple(rows_of(module).shape[:2])
        dense = (
            module.weight.detach()
            .numpy()
            .reshape(module.weight.shape[0], layer.shape.in_channels, *2 * [layer.shape.kernel])
        )
        assert np.array_equal(expand_rows(weights.rows, layer.block_size) * 2.0**step, dense)
        rows = torch.from_numpy(weights.rows)
        assert np.array_equal(expand(rows, layer.block_size).numpy(), expand_rows(weights.rows, layer.block_size))


@pytest.mark.parametrize("bits", [2, 8])
def test_weights_are_integers_of_their_bits_times_a_power_of_two_of_their_row(bits):
    program = program_of(digits(weight_bits=bits))
    for weights in program.weights.values():
        assert weights.rows.dtype == weights.bias.dtype == np.int64
        assert weights.rows.flags.c_contiguous
        factors = np.gcd.reduce(weights.rows.reshape(len(weights.rows), -1), axis=1)
        largest = np.abs(weights.rows).max(axis=(1, 2, 3)) // np.maximum(factors & -factors, 1)
        assert 0 < largest.max() <= 2 ** (bits - 1) - 1


def test_the_modulus_is_the_largest_that_carries_every_transform():
    _, program = mixed()
    t = program.parameters.plain_modulus
    lengths = set().union(*(layer.transform_lengths for _, layer in program.linear_nodes))
    assert t.bit_length() == 48
    assert all((t - 1) % length == 0 for length in (2 * 8192, *lengths))
    assert modular.is_prime(t)


def test_guard_bits_are_the_most_that_there_is_room_for():
    graph = mixed()[0]
    most, wanted = (math.floor(reached(program_of(refine(graph, bits)))) for bits in (0, 2))
    assert wanted < most
    for asked in (2, 9):
        lowered = refined_of(graph, target(failure_bits=wanted), asked)
        assert lowered.guard_bits == 2
    program = lowered.program
    assert program.nodes == program_of(refine(graph, 2)).nodes
    assert refined_of(graph, target(failure_bits=most), 2).guard_bits == 0
    with pytest.raises(RuleError, match=r"must reach he.failure_bits = 60"):
        refined_of(graph, target(failure_bits=60), 2)


def test_least_guard_bits_are_what_parameters_are_chosen_for():
    graph = mixed()[0]
    one, two = (reached(program_of(refine(graph, bits))) for bits in (1, 2))
    wanted = math.floor(one)
    assert wanted > two
    choose = target(failure_bits=wanted, sets=SETS, auto=True)
    without = refined_of(graph, choose, 4)
    assert without.guard_bits == 1
    with_two = refined_of(graph, choose, 4, 2)
    assert with_two.guard_bits >= 2
    assert with_two.program.parameters.plain_bits > without.program.parameters.plain_bits


def test_guard_bits_change_bounds_and_no_plans(monkeypatch):
    """Each layer is planned once for each candidate set, however many guard bits are tried."""
    planned, cheapest = [], fit.planned_layer.__wrapped__

    def planner(shape, block_size, profile, link, *allowed):
        planned.append((shape, block_size, profile.parameter_set))
        return cheapest(shape, block_size, profile, link, *allowed)

    monkeypatch.setattr(fit, "planned_layer", functools.lru_cache(planner))
    graph, program = mixed()
    lowered = refined_of(graph, target(sets=SETS, auto=True), 3)
    assert lowered.guard_bits > 0
    layers = {(layer.shape, layer.block_size) for _, layer in program.linear_nodes}
    assert len(planned) == len(set(planned)) == len(layers) * (len(SETS) - len(SHORT_SETS))


def test_parameters_are_chosen_again_without_lowering_again(monkeypatch):
    """A second profile plans anew from what the first found."""
    graph, lowered = mixed()[0], []
    visit = ProgramBuilder.visit
    monkeypatch.setattr(ProgramBuilder, "visit", lambda self, node: (lowered.append(node.name), visit(self, node)))
    asked = target(sets=SETS, auto=True)
    found = drafts(graph, (1, 8, 8), LEVELS, STEP, asked)
    first = refined(found, asked, 1)
    once = len(lowered)
    assert once == (1 + first.guard_bits) * len(graph.graph.nodes)
    assert all(isinstance(n.operation.layer, UnplannedLayer) for n in found(0).nodes if isinstance(n.operation, Linear))
    again = refined(found, target(profile=profile((54, 54, 53, 53))), 1)
    assert len(lowered) == once
    assert again.program.nodes == first.program.nodes


def test_guard_bits_do_not_change_the_choice_of_parameters():
    graph, program = mixed()
    most = math.floor(reached(program))
    lowered = refined_of(graph, target(failure_bits=most, sets=SETS, auto=True), 4)
    parameters = lowered.program.parameters
    assert lowered.choice.set == ParameterSet(parameters.ring_degree, parameters.coefficient_bits) == SETS[0]
    assert lowered.guard_bits == 0


def test_only_numbers_that_do_not_fit_cost_guard_bits(monkeypatch):
    def broken(*_):
        raise RuleError("something else must hold", got="nothing", remedy="mend it")

    monkeypatch.setattr("privcirnet.passes.lower.refine", broken)
    with pytest.raises(RuleError, match="something else must hold"):
        refined_of(mixed()[0], target(), 2)


def around(middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), middle, nn.Conv2d(2, 2, 1))


def calls(function) -> nn.Module:
    """A function between two convolutions."""
    forward = lambda net, x: net.last(function(net.conv(x)))  # noqa: E731
    return Written(forward, conv=nn.Conv2d(1, 2, 1), last=nn.Conv2d(2, 2, 1))


CONVOLUTION = "a convolution must pad with zeros: got 1: Conv2d"
ENCRYPTED = "every operation must be one that runs encrypted: got"
UNSUPPORTED = [
    (lambda: around(nn.ReLU()), rf"{ENCRYPTED} 1 \(ReLU\); use Square or AESPA .* instead of ReLU"),
    (lambda: around(nn.GELU()), rf"{ENCRYPTED} 1 \(GELU\)"),
    (lambda: around(nn.MaxPool2d(2)), rf"{ENCRYPTED} 1 \(MaxPool2d\)"),
    (
        lambda: around(nn.AdaptiveAvgPool2d(1)),
        rf"{ENCRYPTED} 1 \(AdaptiveAvgPool2d\); use quantize\(model, images\), which makes an AvgPool2d",
    ),
    (lambda: nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(2), nn.Linear(64, 2)), rf"{ENCRYPTED} 1 \(Flatten\)"),
    (lambda: calls(torch.relu), rf"{ENCRYPTED} relu \(<built-in method relu"),
    (lambda: calls(lambda x: x + 1.0), rf"{ENCRYPTED} add \(<built-in function add>\)"),
    (lambda: calls(lambda x: x * x), rf"{ENCRYPTED} mul "),
    (lambda: calls(lambda x: torch.add(x, x.clone(), alpha=2)), rf"{ENCRYPTED} clone"),
    (lambda: calls(lambda x: torch.add(x, x, alpha=2)), rf"{ENCRYPTED} add"),
    (lambda: around(nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")), CONVOLUTION),
    (lambda: around(nn.Linear(8, 8)), r"a linear layer must follow a flatten or tokens: got 1 on \(2, 8, 8\)"),
]


@pytest.mark.parametrize(("build", "message"), UNSUPPORTED)
def test_operations_that_do_not_run_encrypted(build, message):
    """Where quantize has not made exact forms of them."""
    with pytest.raises(RuleError, match=message):
        program_of(with_quantizers(fuse(build())))


def test_everything_that_does_not_run_encrypted_is_named_at_once_by_its_path(monkeypatch):
    monkeypatch.setattr(
        "privcirnet.he.planning.plan_program.planned_layer", lambda *_: pytest.fail("something was planned")
    )
    inner = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU6())
    with pytest.raises(
        RuleError,
        match=rf"{ENCRYPTED} 1.1 \(MaxPool2d\), 1.0.1 \(ReLU6\); use AvgPool2d .* instead of MaxPool2d; Square .* of "
        r"ReLU6; or he.nonlinear=exact$",
    ):
        program_of(quantized(around(nn.Sequential(inner, nn.MaxPool2d(2)))))
    many = nn.Sequential(*(nn.ReLU() for _ in range(7)))
    with pytest.raises(RuleError, match=rf"{ENCRYPTED} 1.0 \(ReLU\), 1.1 .* 1.4 \(ReLU\) and 2 more; use"):
        program_of(quantized(around(many)))


def test_average_pooling_that_is_no_shift():
    graph = quantized(around(nn.AvgPool2d(2)))
    graph.set_submodule("1", nn.AvgPool2d(3))
    with pytest.raises(RuleError, match=r"windows side by side whose area is a power of two.*: got 1: AvgPool2d"):
        program_of(graph)


def test_weights_that_are_not_quantized():
    with pytest.raises(RuleError, match="weights must be quantized before lowering: got stem"):
        program_of(fuse(circulant_(DigitsResNet(width=8), SIZES["mixed"])))


def test_a_quantizer_that_refines():
    graph = digits()
    graph.get_submodule("stem_quantizer").log_step.fill_(-30)
    with pytest.raises(RuleError, match=r"a quantizer can only coarsen: got stem_quantizer: step 2\^-30 after 2\^-\d+"):
        program_of(graph)


def test_a_square_of_the_image_itself():
    with pytest.raises(RuleError, match=r"node _0: square of the image itself.*; change the network"):
        program_of(quantized(nn.Sequential(Square(), nn.Conv2d(1, 2, 1))))


def test_a_bias_on_a_layer_whose_weights_are_nearly_zero():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 1))
    nn.init.constant_(model[1].weight, 1e-15)
    nn.init.constant_(model[1].bias, 1e6)
    program = program_of(quantized(model))
    last = program.nodes[-1]
    assert (program.weights[last.name].bias * 2.0**last.log_step == 1e6).all()


def test_a_link_where_bytes_count_takes_no_bits_that_are_not_needed():
    """Guard bits are as many as in one process, and t has room for them and no more."""
    graph = mixed()[0]
    free, thrifty = (refined_of(graph, target(link=LINKS[link]), 16) for link in ("local", "lan"))
    parameters = [lowered.program.parameters for lowered in (free, thrifty)]
    assert free.guard_bits == thrifty.guard_bits > 0
    assert parameters[0].plain_bits >= parameters[1].plain_bits
    wider = refined_of(graph, target(link=LINKS["lan"]), thrifty.guard_bits - 1)
    assert wider.program.parameters.plain_bits < parameters[1].plain_bits


def test_failure_bits_bound_the_probability_of_a_wrong_image():
    graph, program = mixed()
    bits = reached(program)
    program_of(graph, failure_bits=math.floor(bits))
    message = (
        r"every layer must leave 2 bits of noise budget: got \d bits with n = 8192, q of 54\+54\+53\+53 bits and the "
        f"{program.parameters.plain_bits + 1}-bit plain modulus that the truncation failure needs; use fewer bits .*, "
        "lower he.failure_bits, or use another he.ring_degree"
    )
    with pytest.raises(DoesNotFit, match=message):
        program_of(graph, failure_bits=math.ceil(bits))


def test_a_value_bound_over_half_the_modulus():
    with pytest.raises(
        RuleError,
        match=r"must leave 2 bits of noise budget: got -\d+ bits .* the \d+-bit plain modulus that the value bound of \w+",
    ):
        program_of(perceptron(), profile=profile((48, 48, 53)), failure_bits=-99)


def test_a_value_bound_over_what_any_modulus_carries():
    """Calibrated on images that are all but black, nothing is truncated."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), *(Square() for _ in range(4)), nn.Conv2d(1, 1, 1, bias=False))
    with pytest.raises(
        RuleError, match=r"every value must stay under 2\^59, proved: got _\d may reach .*he.bounds=measured"
    ):
        program_of(quantize(fuse(model), torch.full((1, 1, 8, 8), 1e-9), STEP))
