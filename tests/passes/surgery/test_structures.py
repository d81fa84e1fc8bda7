"""Moves, constants, gates and norms: what surgery leaves computes the same wherever it says so."""

import copy

import pytest
import timm
import torch
import torchvision
from timm.layers import LayerScale, LayerScale2d, StdConv2d
from torch import Tensor, nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa1d, Aespa2d
from privcirnet.nn.attention import PolynomialAttention
from privcirnet.nn.circulant import BlockCirculantConv2d
from privcirnet.nn.graph import trace
from privcirnet.nn.moves import HeadProduct, Rearrange, ToTokens
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse, fuse_at
from privcirnet.passes.lower import check_operations
from privcirnet.passes.surgery import polynomial_
from privcirnet.passes.surgery.edit import ONE_MORE, TRAIN
from tests.nn.networks import Written, vit


def tokens(net: Written, x: Tensor) -> Tensor:
    x = net.patch(x).flatten(2).transpose(1, 2)
    x = torch.cat([net.token.expand(len(x), -1, -1), x], dim=1) + net.places
    return net.head(x[:, 0] + net.mix(x.transpose(1, 2))[..., 0])


def places_alone(net: Written, x: Tensor) -> Tensor:
    return net.head((net.patch(x).flatten(2).mT + net.places[:, 1:]).mean(1))


def joined(net: Written, x: Tensor) -> Tensor:
    x = net.patch(x) + net.places
    y = x.flatten(2).mT
    y = torch.cat((net.mix(y[:, :1]), y, y[:, 2:]), dim=1)
    return net.head(y[:, 4])


def moved(net: Written, x: Tensor) -> Tensor:
    n, c, h, w = (y := net.conv(x)).shape
    y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
    first, second = y.chunk(2, 1)
    y = net.conv(torch.cat([second, first], 1)) + x
    return net.fc(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).flatten(1)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


def multiplied(net: Written, x: Tensor) -> Tensor:
    x = (y := net.conv(x)) * y.mean((2, 3), keepdim=True) * net.conv(y)
    tokens = net.one(x.flatten(2).mT) * x.flatten(2).mT
    return tokens * net.last(tokens.mT).mT


def layer_scaled(net: Written, x: Tensor) -> Tensor:
    x = net.patch(x).flatten(2).mT
    x = x + net.scale(net.one(x))
    return net.head((net.other(x) * net.one_for_all * net.row).mean(1))


EXACT = {
    "tokens scaled": lambda: Written(
        layer_scaled, patch=nn.Conv2d(4, 8, 2, 2), one=nn.Linear(8, 8), scale=LayerScale(8, 0.3), head=nn.Linear(8, 3),
        other=nn.Linear(8, 8), one_for_all=parameter(1), row=parameter(1, 1, 8),
    ),
    "class token and positions": lambda: Written(
        tokens, patch=nn.Conv2d(4, 8, 2, 2), token=parameter(1, 1, 8), places=parameter(1, 5, 8), mix=nn.Linear(5, 3),
        head=nn.Linear(8, 3),
    ),
    "positions without a class token": lambda: Written(
        places_alone, patch=nn.Conv2d(4, 8, 2, 2), places=parameter(1, 5, 8), head=nn.Linear(8, 3)
    ),
    "positions on a map, tokens joined": lambda: Written(
        joined, patch=nn.Conv2d(4, 8, 2, 2), places=parameter(1, 8, 2, 2), mix=nn.Linear(8, 8), head=nn.Linear(8, 3)
    ),
    "shuffles, chunks, channels last": lambda: Written(moved, conv=nn.Conv2d(4, 4, 3, padding=1), fc=nn.Linear(4, 6)),
    "channels scaled": lambda: nn.Sequential(nn.Conv2d(4, 6, 1), LayerScale2d(6, 0.3), nn.Flatten(), nn.Linear(96, 2)),
    "squares": lambda: Written(
        lambda net, x: torch.square((net.conv(x) ** 2).pow(2.0)) * 0.5, conv=nn.Conv2d(4, 6, 1, groups=2)
    ),
    "products with themselves": lambda: Written(lambda net, x: (y := net.conv(x)) * y, conv=nn.Conv2d(4, 6, 1)),
    "products with a value for each channel, with one for each token, of equal shapes": lambda: Written(
        multiplied, conv=nn.Conv2d(4, 4, 1), one=nn.Linear(4, 1), last=nn.Linear(16, 1)
    ),
    "channels shifted": lambda: Written(
        lambda net, x: net.conv(x) + net.shifts, conv=nn.Conv2d(4, 6, 1), shifts=parameter(6, 1, 1)
    ),
    "columns shifted, as many as channels": lambda: Written(
        lambda net, x: net.conv(x) + net.shifts, conv=nn.Conv2d(4, 4, 1), shifts=parameter(4)
    ),
    "scaled by a number": lambda: Written(lambda net, x: net.conv(x) * 0.7, conv=nn.Conv2d(4, 6, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("batch", [1, 3])
def test_the_network_computes_what_it_did(name, batch):
    torch.manual_seed(0)
    model, images = EXACT[name]().double(), torch.rand(3, 4, 4, 4).double()
    before = copy.deepcopy(model).eval()(images)
    polynomial_(model, images[:batch])
    assert_close(model.eval()(images), before, rtol=1e-4, atol=1e-5)  # a batch norm adds 1e-5 to its variance
    assert_close(fuse(model)(images), model(images))


def test_tokens_hold_the_constants():
    model = EXACT["class token and positions"]()
    token, places = model.token.detach()[0, 0], model.places.detach()[0]
    polynomial_(model, torch.rand(2, 4, 4, 4))
    (found,) = (module for module in model.modules() if isinstance(module, ToTokens))
    assert_close(found.bias.detach(), places + torch.cat([token[None], torch.zeros(4, 8)]))
    assert not {"token", "places"} & {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("gate", [torch.sigmoid, lambda x: x.sigmoid_(), nn.functional.hardsigmoid])
def test_gates_are_known_however_they_are_written(gate):
    model = Written(lambda net, x: x * gate(net.conv(x.mean((2, 3), keepdim=True))), conv=nn.Conv2d(4, 4, 1))
    changes = polynomial_(model, torch.rand(2, 4, 4, 4))
    assert [change.after for change in changes] == ["AvgPool2d(4)", "BatchNorm2d", "HeadProduct"]


def test_a_gate_is_a_product_of_two_values():
    torch.manual_seed(0)
    model, images = timm.create_model("mobilenetv3_small_050", num_classes=4), torch.rand(3, 3, 32, 32)
    changes = polynomial_(model, images)
    products = [module for module in model.modules() if isinstance(module, HeadProduct)]
    assert len(products) == sum(change.before == "product with a gate" for change in changes) == 9
    gate = model.get_submodule("blocks.0.0.se.gate").eval()
    x = 0.1 * torch.randn(2, gate.num_features, 1, 1)
    assert_close(gate(x), nn.functional.hardsigmoid(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "network",
    [
        lambda: timm.models.VisionTransformer(8, 4, num_classes=4, embed_dim=8, depth=2, num_heads=2),
        lambda: torchvision.models.VisionTransformer(8, 4, 2, 2, 8, 16, num_classes=4),
    ],
    ids=["timm", "torchvision"],
)
def test_transformers_become_polynomials(network):
    torch.manual_seed(0)
    model = network()
    weights = {id(p) for m in model.modules() for p in m._parameters.values() if p is not None and p.ndim == 2}
    changes = polynomial_(model, torch.rand(1, 3, 8, 8))
    found = [type(module) for module in model.modules()]
    assert [found.count(kind) for kind in (PolynomialAttention, TokenBatchNorm, Aespa1d)] == [2, 5, 2]
    assert not {nn.LayerNorm, nn.MultiheadAttention, nn.GELU} & set(found)
    assert ONE_MORE not in {change.effect for change in changes}
    kept = {id(p) for m in model.modules() for p in m._parameters.values() if p is not None and p.ndim == 2}
    assert weights <= kept
    assert model(torch.rand(5, 3, 8, 8)).shape == (5, 4)


def test_a_norm_that_feeds_no_linear_layer_gets_a_convolution_of_its_own():
    torch.manual_seed(0)
    model, images = timm.models.MlpMixer(4, 16, 3, 8, 1, 8).double(), torch.rand(3, 3, 16, 16).double()
    changes = polynomial_(model, images)
    assert [change.path for change in changes if change.after == "BatchNorm2d of a map"] == ["blocks.0.norm1", "norm"]
    for _ in range(40):
        model.train()(images)
    assert_close(fuse(model)(images), model.eval()(images))


def test_a_square_that_is_added_and_read_elsewhere_gets_a_convolution_for_the_sum():
    torch.manual_seed(0)
    convs = {f"conv{i}": nn.Conv2d(4 if i < 3 else 8, 4, 1) for i in range(1, 4)}

    def forward(net: Written, x: Tensor) -> Tensor:
        x = net.conv1(x).relu()
        y = (net.conv2(x) + x).relu()
        return net.conv3(torch.cat([x, y], 1))

    model, images = Written(forward, **convs).double(), torch.rand(3, 4, 4, 4).double()
    changes = polynomial_(model, images)
    assert [change.path for change in changes if change.effect == ONE_MORE] == ["add"]
    model.train()(images)
    assert sum(isinstance(module, Aespa2d) for module in model.modules()) == 2
    assert_close(fuse(model)(images), model.eval()(images))


def test_a_norm_that_is_added_and_read_elsewhere_gets_a_convolution_for_the_sum():
    """As a residual of a stem's norm, without an activation between: the scale of the AESPA fits into no layer."""
    layers = {
        "conv": nn.Conv2d(3, 4, 3),
        "norm": nn.BatchNorm2d(4),
        "branch": nn.Conv2d(4, 4, 1),
        "head": nn.Linear(4, 2),
    }
    forward = lambda net, x: net.head(torch.relu((y := net.norm(net.conv(x))) + net.branch(y)).mean((2, 3)))  # noqa: E731
    model, x = Written(forward, **layers).eval(), torch.rand(2, 3, 8, 8)
    changes = polynomial_(model, x)
    assert [change.effect for change in changes if change.after.startswith("depthwise")] == [ONE_MORE]
    assert_close(fuse_at(model, x)(x), model(x))


def test_an_option_of_the_forward_keeps_its_default():
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor, mask: Tensor | None = None, times: int = 1) -> Tensor:
            return self.conv(x) if mask is None and times == 1 else mask

    model = Optional()
    polynomial_(model, torch.rand(2, 4, 4, 4))
    assert [node.name for node in model.graph.nodes] == ["x", "conv", "output"]


@pytest.mark.parametrize(
    ("forward", "got"),
    [
        (
            lambda net, x: net.conv(x).roll(1),
            r"roll \(roll\); pad maps with zeros, .*, and roll their rows and columns",
        ),
        (lambda net, x: net.conv(x).unsqueeze(1), r"unsqueeze \(unsqueeze\); end in a map"),
        (lambda net, x: net.conv(x)[..., :1] * x[..., :1, :], r"mul \(mul\); multiply values by one for each channel"),
        (lambda net, x: net.conv(x) ** 3, r"pow_1 \(pow\); use squares|pow \(pow\); use squares"),
        (lambda net, x: net.conv(x).mean((1, 2, 3)) + net.bias[0, 0, 0, 0], r"mean \(mean\)"),
        (lambda net, x: torch.cat([net.conv(x), net.bias.expand(2, 4, 4, 4)], 2), r"cat \(cat\); concatenate channels"),
        (lambda net, x: torch.sigmoid(net.conv(x).mean((2, 3))), r"sigmoid \(sigmoid\); leave the last sigmoid out"),
        (
            lambda net, x: net.head(torch.sigmoid(net.conv(x).mean((2, 3)))),
            r"sigmoid \(sigmoid\); compute gates by conv",
        ),
        (lambda net, x: net.conv(net.conv(x).view(-1, 1, 4, 4).expand(-1, 4, 4, 4)), r"expand"),
        (lambda net, x: net.conv(x).mean(1), r"mean \(mean\); average over"),
        (lambda net, x: net.conv(x).amax(1, keepdim=True), r"amax \(amax\); write it with layers"),
        (lambda net, x: torch.stack([net.conv(x), x]).flatten(0, 1), r"stack \(stack\), flatten \(flatten\); stack"),
    ],
)
def test_what_has_no_form_is_named_with_its_remedy(forward, got):
    model = Written(forward, conv=nn.Conv2d(4, 4, 1), head=nn.Linear(4, 2), bias=parameter(1, 4, 4, 4))
    with pytest.raises(RuleError, match=rf"every operation must have a polynomial form: got {got}"):
        polynomial_(model, torch.rand(2, 4, 4, 4))
    assert isinstance(model, Written)


class Cut(nn.Conv2d):
    """A convolution whose forward does more than weigh values."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input).clamp(max=0.1)


def test_a_layer_with_a_forward_of_its_own_is_refused():
    model = nn.Sequential(Cut(3, 4, 3, stride=2), nn.ReLU())
    with pytest.raises(RuleError, match=r"got 0 \(Cut\); use torch's Conv2d, with what its forward does besides"):
        polynomial_(model, torch.rand(2, 3, 8, 8))
    with pytest.raises(RuleError, match=r"got _0 \(StdConv2d\)|got 0 \(StdConv2d\)"):
        check_operations(trace(nn.Sequential(StdConv2d(3, 4, 3))), "none")


def test_images_of_a_size_that_an_attention_is_not_made_for():
    model = timm.models.VisionTransformer(8, 4, num_classes=4, embed_dim=8, depth=1, num_heads=2)
    with pytest.raises(
        RuleError, match=r"must be traceable .* got VisionTransformer on \(2, 3, 16, 16\): AssertionError"
    ):
        polynomial_(model, torch.rand(2, 3, 16, 16))


def test_attentions_come_back_where_something_else_fails():
    model = timm.models.VisionTransformer(8, 4, num_classes=4, embed_dim=8, depth=1, num_heads=2)
    model.head = nn.Softmax(1)
    before = model.blocks[0].attn
    with pytest.raises(RuleError, match="Softmax"):
        polynomial_(model, torch.rand(2, 3, 8, 8))
    assert model.blocks[0].attn is before


def test_moves_end_in_what_reads_them():
    model = EXACT["shuffles, chunks, channels last"]()
    polynomial_(model, torch.rand(2, 4, 4, 4))
    assert sum(isinstance(module, Rearrange) for module in model.modules()) == 4


def shapes_by_name(network: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in network.state_dict().items()}


def softmax_vit() -> nn.Module:
    return vit(norm="layer", attention="softmax", activation="gelu").float()


def with_relu() -> nn.Module:
    layers = nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(128, 2))


@pytest.mark.parametrize(
    ("build", "sizes"), [(softmax_vit, {"blocks.0.qkv": 4, "blocks.0.fc1": 2}), (with_relu, {"0": 2, "3": 4})]
)
def test_what_comes_into_a_circulant_network_is_shared_by_its_blocks(build, sizes):
    images = torch.rand(4, *((3, 8, 8) if build is softmax_vit else (4, 4, 4)))
    one, other = build(), build()
    polynomial_(one, images)
    circulant_(one, sizes)
    circulant_(other, sizes)
    polynomial_(other, images)
    assert shapes_by_name(other) == shapes_by_name(one)
    optimizer = torch.optim.SGD(other.parameters(), 0.01)
    other.train()(images).square().sum().backward()
    optimizer.step()
    assert_close(fuse(other.eval())(images), other(images), rtol=1e-4, atol=1e-4)


def test_norms_with_an_activation_inside_keep_their_blocks():
    """In either order with circulant_: timm's BatchNormAct2d."""
    model, images = timm.create_model("mobilenetv2_035", num_classes=4).eval(), torch.rand(2, 3, 32, 32)
    circulant_(model, {"blocks.1.0.conv_pw": 4})
    wanted = model(images)
    changes = polynomial_(model, images, "own")
    assert all(change.effect != TRAIN for change in changes)
    assert model.get_submodule("blocks.1.0.bn1").block_size == 4
    assert_close(fuse(model)(images), wanted, rtol=1e-4, atol=1e-4)


def test_a_norm_that_was_there_and_is_not_shared_yet_is_said_to_change():
    network = nn.Sequential(BlockCirculantConv2d(4, 8, 1, block_size=4), nn.BatchNorm2d(8), nn.ReLU())
    nn.init.normal_(network[1].weight)
    changes = polynomial_(network, torch.rand(2, 4, 4, 4), "own")
    assert [str(change) for change in changes] == [
        f"1: BatchNorm2d -> BlockBatchNorm2d shared by blocks of 4 ({TRAIN})"
    ]


def test_what_cannot_be_shared_by_the_blocks_is_said_at_once():
    network = nn.Sequential(nn.Conv2d(4, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 1))
    circulant_(network, {"0": 4}, pad=True)
    with pytest.raises(RuleError, match="must be whole blocks: got 6 at '1' for block size 4"):
        polynomial_(network, torch.rand(2, 4, 4, 4))
    assert isinstance(network[1], nn.ReLU)


@pytest.mark.parametrize("scaled", ["tokens scaled", "channels scaled"])
def test_a_scale_trains_as_what_it_was(scaled):
    """Its norm has the statistics of the images, so that normalizing them in training changes little."""
    torch.manual_seed(0)
    network, images = EXACT[scaled]().eval(), torch.randn(2, 4, 4, 4)
    wanted = network(images)
    polynomial_(network, images, "own")
    assert_close(network.train()(images), wanted, rtol=1e-3, atol=1e-3)
