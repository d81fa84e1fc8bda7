import copy
import math

import pytest
import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.functional.circulant import expand, is_circulant
from privcirnet.functional.quantize import quantize_activation, quantize_weight
from privcirnet.models import DigitsResNet
from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.graph import trace
from privcirnet.nn.quantize import SUFFIX, quantize
from privcirnet.nn.quantizers import ActivationQuantizer, WeightQuantizer, quantizer_of
from privcirnet.nn.steps import incoming_steps, refine
from tests.nn.test_circulant import rows_of
from tests.nn.test_convert import assert_unchanged, randomize_norms_, snapshot

SIZES = {"stem": 1, "down": 2, "conv1": 8, "conv2": 4, "classifier": 2}
INPUT_STEP = -4


def network() -> DigitsResNet:
    """Circulant at mixed block sizes, with the statistics of a network that was trained."""
    torch.manual_seed(0)
    model = DigitsResNet(width=8)
    randomize_norms_(model)
    return circulant_(model, SIZES).eval()


def pixels(count: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(17, (count, 1, 8, 8), generator=torch.Generator().manual_seed(seed)) * 2.0**INPUT_STEP


def quantized(**options: int) -> fx.GraphModule:
    return quantize(fuse(network()), [pixels()], INPUT_STEP, **options)


def quantizers(graph: fx.GraphModule) -> dict[str, ActivationQuantizer]:
    found = {name: m for name, m in graph.named_modules() if isinstance(m, ActivationQuantizer)}
    assert found
    return found


def log_steps(graph: fx.GraphModule) -> dict[str, int]:
    return {name: int(module.log_step) for name, module in quantizers(graph).items()}


@pytest.mark.parametrize("bits", [2, 5, 8])
def test_weights_are_quantized_rows_written_out_and_stay_circulant(bits):
    graph = quantized(weight_bits=bits)
    for name, b in SIZES.items():
        layer = graph.get_submodule(name)
        step = int(quantizer_of(layer).log_step)
        assert block_size_of(layer) == b
        assert is_circulant(layer.weight, b)
        assert rows_of(layer).shape[0] == layer.weight.shape[0] // b
        assert torch.equal(layer.weight, expand(quantize_weight(rows_of(layer), step, bits), b))
        assert torch.equal(layer.weight, quantize_weight(expand(rows_of(layer), b), step, bits))
        integers = layer.weight / 2.0**step
        assert torch.equal(integers, integers.round())
        assert 2 ** (bits - 2) - 1 < integers.abs().max() <= 2 ** (bits - 1) - 1


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
    graph = quantize(fused, [images], INPUT_STEP, weight_bits=8, activation_bits=16)
    assert (graph(images) - expected).abs().max() < 0.05 * (expected.max() - expected.min())
    coarse = quantize(fused, [images], INPUT_STEP, weight_bits=2, activation_bits=2)
    assert (coarse(images) - expected).abs().max() > (graph(images) - expected).abs().max()


def test_the_fused_graph_and_its_model_stay_as_they_were():
    """Deep copies share torch's generated class, so a property added for one is missed by the others."""
    model, images = network(), pixels()
    fused = fuse(model)
    before = [(m, snapshot(m), m(images)) for m in (model, fused)]
    classes = [(type(layer), dict(vars(type(layer)))) for layer in fused.modules()]
    graph = quantize(fused, [images], INPUT_STEP)
    twin = quantize(fused, [images], INPUT_STEP)
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
    graph = quantize(fuse(network()).train(training), [pixels()], INPUT_STEP)
    assert {module.training for module in graph.modules()} == {training}


def test_training_rounds_at_random_and_evaluation_to_nearest():
    graph, images = quantized(), pixels()
    assert torch.equal(graph(images), graph(images))
    graph.train()
    assert not torch.equal(graph(images), graph(images))


def test_gradients_reach_rows_and_biases():
    graph = quantized().train()
    graph(pixels()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in graph.parameters())


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_calibrated_values_fit_the_bits_with_the_finest_step(bits):
    fused, images = fuse(network()), pixels()
    graph = quantize(fused, [images[:3], images[3:]], INPUT_STEP, activation_bits=bits)
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


def incoming_by_name(graph: fx.GraphModule) -> dict[str, int]:
    return {node.name: step for node, step in incoming_steps(graph, INPUT_STEP).items()}


@pytest.mark.parametrize("bits", [3, 8, 16])
def test_every_quantizer_only_coarsens(bits):
    graph = quantized(activation_bits=bits)
    incoming = incoming_by_name(graph)
    assert all(incoming[name] <= step for name, step in log_steps(graph).items())


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
        self.conv, self.square, self.last = nn.Conv2d(1, 2, (1, 2), bias=False), Square(), nn.Conv2d(2, 2, 1)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([[64.0, -64.0], [64.0, -64.0]]).reshape(2, 1, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.square(self.conv(x)))


def test_a_step_finer_than_the_sum_is_raised_to_it():
    x = torch.full((2, 1, 2, 2), 0.5)
    graph = quantize(fuse(Cancelling()), [x], INPUT_STEP)
    weight_step = int(quantizer_of(graph.conv).log_step)
    assert weight_step == 0
    assert log_steps(graph) == {
        f"x{SUFFIX}": INPUT_STEP,
        f"conv{SUFFIX}": INPUT_STEP,
        f"square{SUFFIX}": 2 * INPUT_STEP,
    }
    assert int(quantizer_of(graph.last, "bias").log_step) == 2 * INPUT_STEP + int(quantizer_of(graph.last).log_step)


def test_summands_of_a_residual_share_the_coarsest_step():
    fused = fuse(network())
    with torch.no_grad():
        fused.conv2.bias.mul_(1000)
    steps = log_steps(quantize(fused, [pixels()], INPUT_STEP))
    assert steps[f"conv2{SUFFIX}"] == steps[f"down{SUFFIX}"]
    alone = log_steps(quantized())
    assert steps[f"conv2{SUFFIX}"] > alone[f"conv2{SUFFIX}"]
    assert steps[f"stem{SUFFIX}"] == alone[f"stem{SUFFIX}"]


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
    steps = log_steps(quantize(fuse(Chain()), [pixels()], INPUT_STEP))
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
    for name in SIZES:
        layer = graph.get_submodule(name)
        step = incoming[name] + int(quantizer_of(layer).log_step)
        original = layer.parametrizations.bias.original
        assert int(quantizer_of(layer, "bias").log_step) == step
        assert torch.equal(layer.bias, quantize_activation(original.detach(), step))


def test_without_images_only_the_structure_is_made():
    graph = quantized(weight_bits=6)
    empty = quantize(fuse(circulant_(DigitsResNet(width=8), SIZES)), weight_bits=6)
    assert set(log_steps(empty).values()) == {0}
    assert not torch.equal(empty(pixels()), graph(pixels()))
    assert empty.load_state_dict(graph.state_dict(), strict=True)
    assert log_steps(empty) == log_steps(graph)
    assert torch.equal(empty(pixels(seed=3)), graph(pixels(seed=3)))


def test_refining_keeps_more_fractional_bits_and_leaves_the_graph():
    graph, images = quantized(), pixels()
    before, expected = snapshot(graph), graph(images)
    refined = refine(graph, 3)
    assert_unchanged(graph, before)
    assert torch.equal(graph(images), expected)
    incoming = incoming_by_name(refined)
    for name, step in log_steps(graph).items():
        assert log_steps(refined)[name] == (step if name == f"x{SUFFIX}" else max(step - 3, incoming[name]))
    for name in SIZES:
        assert torch.equal(refined.get_submodule(name).weight, graph.get_submodule(name).weight)
    assert log_steps(refine(graph, 0)) == log_steps(graph)


def test_refining_as_far_as_it_goes_is_exact_and_keeps_summands_together():
    graph = refine(quantized(), 200)
    steps, incoming = log_steps(graph), incoming_by_name(graph)
    assert steps[f"down{SUFFIX}"] == steps[f"conv2{SUFFIX}"]
    assert all(steps[name] == incoming[name] for name in steps if name not in (f"down{SUFFIX}", f"conv2{SUFFIX}"))


def test_a_quantizers_text_says_its_step():
    assert "ActivationQuantizer(log_step=-3)" in repr(ActivationQuantizer(-3))
    assert quantizer_of(nn.Linear(2, 2)) is None
    assert isinstance(quantizer_of(quantized().conv1), WeightQuantizer)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.conv(x))


class Pooled(nn.Module):
    """The sum of what `left` and `right` make of a convolution's output."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.conv, self.left, self.right = nn.Conv2d(1, 1, 1), left, right

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.left(x) + self.right(x)


class Offset(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.offset = nn.Conv2d(1, 1, 1), nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + self.offset


class Skip(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        nn.init.constant_(self.conv.weight, scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + x


def pool(kernel: int | tuple[int, int], **options: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 1, 1), nn.AvgPool2d(kernel, **options), nn.Conv2d(1, 1, 1))


UNQUANTIZABLE = [
    (Shared, "a layer must run once an image: got conv; give each use its own layer"),
    (
        lambda: Pooled(nn.AvgPool2d(2), nn.AvgPool2d(2)),
        r"summands .* quantized activation: got left \(AvgPool2d\); add",
    ),
    (Offset, r"summands .* quantized activation: got offset \(get_attr\)"),
    (
        lambda: Skip(1000),
        r"branch must not be coarser .*: got steps over 2\^32 at conv_quantizer, .*; make the weights",
    ),
    (
        lambda: Skip(50),
        r"the image can't be rescaled to the step of a sum: got step 2\^-1 for 2\^-4 at x; put a convolution before",
    ),
    (
        lambda: pool((2, 4)),
        r"average pooling must have square windows .*: got 1: AvgPool2d\(kernel_size=\(2, 4\).*use a kernel of 2",
    ),
    (lambda: pool(3, padding=1), "average pooling must have square windows side by side"),
    (lambda: pool(2, stride=1), "average pooling must have square windows side by side"),
    (lambda: pool(2, padding=1), "average pooling must have square windows side by side"),
    (lambda: pool(2, ceil_mode=True), "average pooling must have square windows side by side"),
]


@pytest.mark.parametrize(("build", "message"), UNQUANTIZABLE)
def test_networks_that_cannot_be_quantized(build, message):
    fused = fuse(build())
    before = snapshot(fused)
    with pytest.raises(RuleError, match=message):
        quantize(fused, [pixels()], INPUT_STEP)
    assert_unchanged(fused, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_bits": 9}, r"weight bits must be in \[2, 8\]: got 9; use 8"),
        ({"weight_bits": 1}, r"weight bits must be in \[2, 8\]: got 1; use 8"),
        ({"activation_bits": 17}, r"activation bits must be in \[2, 16\]: got 17; use 8"),
        ({"activation_bits": 1}, r"activation bits must be in \[2, 16\]: got 1; use 8"),
    ],
)
def test_bits_out_of_range(options, message):
    with pytest.raises(RuleError, match=message):
        quantized(**options)


def test_a_quantized_network_is_not_quantized_again():
    with pytest.raises(RuleError, match="must be quantized once: got a quantizer at 'x_quantizer'; start from the"):
        quantize(quantized(), [pixels()], INPUT_STEP)
    with pytest.raises(RuleError, match="must be quantized once"):
        quantize(trace(quantized()), [pixels()], INPUT_STEP)


def test_values_that_are_not_finite():
    with pytest.raises(RuleError, match=r"values must be finite to be quantized: got (inf|nan)"):
        quantize(fuse(network()), [torch.full((1, 1, 8, 8), math.inf)], INPUT_STEP)


def test_an_image_whose_values_explode_does_not_set_the_steps():
    """Of 64 images one has 30 times the values of the others, squared twice."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), Square(), nn.Conv2d(4, 4, 1), Square(), nn.Flatten(), nn.Linear(4 * 36, 2)
    )
    usual = pixels(64)
    exploding = torch.cat([usual, 30 * usual[:1]])
    steps = [
        [int(m.log_step) for m in quantize(fuse(model), [images], INPUT_STEP).modules() if hasattr(m, "log_step")]
        for images in (usual, exploding)
    ]
    assert steps[0] == steps[1]
