"""Residual streams: which values belong to them, their bits and steps, and what reads them."""

import pytest
import torch
from torch import Tensor, fx, nn

from privcirnet.nn.activations import Square
from privcirnet.nn.quantization_steps import groups_of, learn_steps_, refine
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import SUFFIX, quantize
from privcirnet.train.network import create
from tests.nn.networks import vit
from tests.nn.quantized import INPUT_STEP, incoming_by_name, log_steps, pixels, quantizers

SUMMANDS = {name + SUFFIX for name in ("patch_embed", "blocks_0_proj", "blocks_0_fc2", "blocks_1_proj", "blocks_1_fc2")}


def images(count: int = 8) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randint(17, (count, 3, 8, 8), generator=random).double() * 2.0**INPUT_STEP


@pytest.fixture(scope="module")
def fused() -> fx.GraphModule:
    """A transformer whose last summand is far larger than the first."""
    model = vit()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "tokens" not in name:
                nn.init.orthogonal_(parameter)
    for _ in range(20):
        model(images())
    with torch.no_grad():
        model.blocks[1].fc2.weight.mul_(8)
    return fuse(model.eval())


def transformer(fused: fx.GraphModule, **options: int) -> fx.GraphModule:
    return quantize(fused, images(), INPUT_STEP, **options)


def bits_of(graph: fx.GraphModule) -> dict[str, int]:
    return {name: module.bits for name, module in quantizers(graph).items()}


def test_summands_of_a_stream_have_its_bits(fused):
    graph = transformer(fused, activation_bits=7, stream_bits=11)
    assert {name for name, bits in bits_of(graph).items() if bits == 11} == SUMMANDS
    assert {bits for name, bits in bits_of(graph).items() if name not in SUMMANDS} == {7}


def test_a_stream_is_as_much_finer_as_it_has_more_bits(fused):
    narrow = log_steps(transformer(fused, stream_bits=8))
    assert len({narrow[name] for name in SUMMANDS}) == 1
    for bits in (9, 10, 11):
        graph = transformer(fused, stream_bits=bits)
        steps, incoming = log_steps(graph), incoming_by_name(graph)
        assert {narrow[name] - steps[name] for name in SUMMANDS} == {bits - 8}
        assert {name: steps[name] for name in steps if name not in SUMMANDS} == {
            name: step for name, step in narrow.items() if name not in SUMMANDS
        }
        assert all(incoming[name] <= step for name, step in steps.items())
        assert incoming["blocks_0_qkv"] == steps[f"patch_embed{SUFFIX}"], "layers read the stream as it is"


def test_a_stream_is_never_finer_than_its_summands_sums(fused):
    graph = transformer(fused, stream_bits=20)
    steps, incoming = log_steps(graph), incoming_by_name(graph)
    assert {steps[name] for name in SUMMANDS} == {max(incoming[name] for name in SUMMANDS)}


@pytest.mark.parametrize("stream_bits", [2, 7, 8])
def test_a_stream_never_has_fewer_bits_than_other_activations(fused, stream_bits):
    assert set(bits_of(transformer(fused, activation_bits=8, stream_bits=stream_bits)).values()) == {8}


@torch.no_grad()
def test_bits_of_the_stream_bring_the_network_nearer(fused):
    wanted = fused(images())
    errors = [(transformer(fused, stream_bits=bits)(images()) - wanted).norm() for bits in (8, 12)]
    assert errors[1] < 0.8 * errors[0]


def test_guard_bits_refine_streams_too(fused):
    graph = transformer(fused, stream_bits=10)
    before, refined = log_steps(graph), refine(graph, 1)
    assert {before[name] - log_steps(refined)[name] for name in SUMMANDS} == {1}


def test_learned_steps_clip_streams_to_their_own_bits(fused):
    graph = learn_steps_(transformer(fused, activation_bits=6, stream_bits=11))
    found = quantizers(graph)
    assert {found[name].limits for name in SUMMANDS} == {(-1023, 1023)}
    assert len({id(found[name].learned) for name in SUMMANDS}) == 1
    assert {found[name].limits for name in found if name not in SUMMANDS and name[0] == "b"} == {(-31, 31), (0, 63)}
    graph.train()(images()).square().sum().backward()
    assert all(quantizer.learned.grad is not None for name, quantizer in found.items() if name[0] != "x")


class Chain(nn.Module):
    """Two sums, with something between them."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.flatten, self.between, self.square = nn.Flatten(), between, Square()
        self.a, self.b, self.c, self.last = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(self.flatten(x))
        x = self.between(x + self.b(x))
        return self.last(self.square(x + self.c(x)))


@pytest.mark.parametrize(("between", "chained"), [(nn.Dropout(0.5), "abc"), (nn.ReLU(), ""), (Square(), "")])
def test_a_sum_behind_an_activation_begins_anew(between, chained):
    torch.manual_seed(0)
    bits = bits_of(quantize(fuse(Chain(between)), pixels(), INPUT_STEP))
    assert {name for name, wide in bits.items() if wide == 10} == {f"{name}{SUFFIX}" for name in chained}
    assert set(bits.values()) <= {8, 10}


@pytest.mark.parametrize("name", ["resnet18_cifar", "mobilenetv2_cifar"])
def test_convolutional_networks_are_as_they_were(name):
    options = {"width": 8, "image_size": 8} if name == "resnet18_cifar" else {"width": 0.25}
    model = create(name, 10, (3, 32, 32), {"activation": "aespa", **options}).eval()
    side = 8 if name == "resnet18_cifar" else 32
    graph = quantize(fuse(model), torch.rand(2, 3, side, side), INPUT_STEP)
    assert max(map(len, groups_of(graph))) > 1
    assert set(bits_of(graph).values()) == {8}
