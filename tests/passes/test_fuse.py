"""Whole networks fused: outputs, structure and names are kept; what cannot be folded is refused."""

import copy
from math import prod

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa1d, Aespa2d, Square
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.circulant import BlockCirculantConv2d, block_size_of
from privcirnet.nn.example import example_for
from privcirnet.nn.functional.circulant import is_circulant
from privcirnet.nn.norm import BlockBatchNorm2d
from privcirnet.passes import fuse as passes_fuse
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse, fuse_at, is_fused
from privcirnet.passes.quantize import quantize
from tests.nn.networks import (
    Round,
    Twice,
    Untraceable,
    Written,
    assert_same_outputs,
    assert_unchanged,
    converted,
    randomize_norms_,
    snapshot,
    vit,
    with_aespa,
)


def test_fuse_keeps_outputs_structure_and_names():
    model = converted().train()
    before = snapshot(model)
    fused = fuse(model)
    assert_unchanged(model, before)
    assert isinstance(fused, fx.GraphModule)
    assert not fused.training
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert set(dict(fused.named_children())) == set(dict(model.named_children())) - {"alpha", "beta", "gamma"}
    for name, b in {"stem": 2, "right": 8, "head": 4, "left": 1}.items():
        assert block_size_of(fused.get_submodule(name)) == b
        assert is_circulant(fused.get_submodule(name).weight, b)
    assert fused.right.bias.shape == (16,)
    assert fused.right.bias.unique().numel() == 2
    assert_same_outputs(model, fused)
    assert_same_outputs(fused, fuse(fused))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 1)
        self.register_buffer("one", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(self.conv(x), self.one, self.one)


def branch() -> nn.Module:
    forward = lambda net, x: (y := net.conv(x)) + net.norm(y)  # noqa: E731
    return Written(forward, conv=nn.Conv2d(2, 4, 1), norm=nn.BatchNorm2d(4))


def quantized_already() -> nn.Module:
    model = nn.Sequential(BlockCirculantConv2d(2, 4, 1, block_size=2), BlockBatchNorm2d(4, 2))
    parametrize.register_parametrization(model[0], "weight", Round())
    return model


def unshared() -> nn.Module:
    model = nn.Sequential(BlockCirculantConv2d(2, 4, 1, block_size=2), nn.BatchNorm2d(4))
    randomize_norms_(model)
    return model


def unshared_square() -> nn.Module:
    model = circulant_(nn.Sequential(nn.Conv2d(4, 4, 1), Aespa2d(4)), {"0": 2})
    model[1] = Aespa2d(4)
    model[1].running_var[0] = 2.0
    return model


SIZED = [
    lambda: nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 4, 1)),
    lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)),  # its input may be tokens
    branch,
    Functional,
    lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.MaxPool2d(2), Aespa2d(4)),
    lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4)),
]


@pytest.mark.parametrize("build", SIZED)
def test_what_needs_a_size_is_left_to_quantize(build):
    """Nothing is folded where not all can be; what fuse gives and the network itself become the same."""
    model = build().eval()
    images = example_for(model)[..., :6, :6]
    graph = fuse(model)
    assert not is_fused(graph)
    assert torch.equal(graph(images), model(images))
    for network in (model, graph):
        fused = fuse_at(network, images)
        assert is_fused(fused)
        assert not any(isinstance(module, _BatchNorm | nn.GroupNorm | Aespa2d) for module in fused.modules())
        assert_close(fused(images), model(images), rtol=1e-3, atol=1e-4)


UNFUSABLE = [
    (Twice, "must be used once: got 'norm' after 'one'"),
    (Untraceable, "traceable by torch.fx"),
    (quantized_already, "must be folded before weights are quantized: got BlockCirculant, Round before '1'"),
    (unshared_square, "must be shared by its blocks: got values that differ .* at '0' for block size 2"),
    (unshared, "must be shared by its blocks: got values that differ within a block at '1' for block size 2"),
    (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4, track_running_stats=False)),
        "must have running statistics to be folded: got '1'",
    ),
]


@pytest.mark.parametrize(("build", "message"), UNFUSABLE)
def test_what_cannot_be_fused(build, message):
    model = build().eval()
    with pytest.raises(RuleError, match=message):
        fuse_at(model, example_for(model))


def test_a_network_that_branches_on_its_size_is_fused_with_images():
    with pytest.raises(RuleError, match=r"traceable by torch.fx .* or give quantize\(model, images\), which traces it"):
        fuse(Untraceable())


def test_fused_network_shares_nothing_with_the_model():
    model = vit()
    before = copy.deepcopy(model.state_dict())
    fused = fuse(model)
    with torch.no_grad():
        for parameter in fused.parameters():
            parameter.add_(1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("plan", [{}, {"0": 4, "3": 2, "6": 8}], ids=["dense", "circulant"])
def test_fusing_leaves_squares(plan):
    torch.manual_seed(0)
    model, x = with_aespa(), torch.randn(8, 4, 4, 4)
    circulant_(model, plan)
    assert [model[i].block_size for i in (2, 4, 7)] == [plan.get(name, 1) for name in ("0", "3", "6")]
    fused = fuse(model)
    kinds = [type(m) for m in fused.modules() if not list(m.children())]
    assert kinds.count(Square) == 3
    assert not {Aespa2d, Aespa1d, nn.BatchNorm2d} & set(kinds)
    assert {name: block_size_of(fused.get_submodule(name)) for name in plan} == plan
    assert_close(fused(x), model(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "images must be floating-point numbers: got uint8; give"),
        (torch.zeros(2, 3, 8, 8), "a network must take the images: got"),
        (torch.zeros(0, 1, 8, 8), "images must be a tensor .* N at least 1, .*: got shape"),
        (torch.full((2, 1, 8, 8), torch.nan), "images must be finite"),
    ],
)
def test_images_that_the_network_does_not_take_are_refused(images, message):
    with pytest.raises(RuleError, match=message):
        fuse_at(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), images)


def test_averages_over_whole_maps_take_their_size_from_images():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    assert isinstance(fuse(model).get_submodule("1"), nn.AdaptiveAvgPool2d)
    fused = fuse_at(model, torch.rand(2, 1, 9, 9))
    pool = fused.get_submodule("1")
    assert isinstance(pool, nn.AvgPool2d)
    assert (pool.kernel_size, pool.divisor_override) == (7, 64)
    with pytest.raises(RuleError, match=r"size it was traced at: got \(1, 12, 12\) for \(1, 9, 9\)"):
        quantize(fused, torch.rand(2, 1, 12, 12))


def test_a_max_pool_goes_before_the_relu_that_it_follows():
    """Not where something else reads the ReLU, too."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.relu, self.pool = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU6(), nn.MaxPool2d(3, 2, 1)
            self.two, self.again, self.other = nn.Conv2d(4, 4, 1), nn.ReLU(), nn.MaxPool2d(2)

        def forward(self, x):
            x = self.again(self.two(self.pool(self.relu(self.one(x)))))
            return self.other(x) + x[..., :2, :2]

    torch.manual_seed(0)
    model, x = Two(), torch.randn(2, 1, 9, 9)
    fused = fuse(model)
    order = [str(node.target) for node in fused.graph.nodes if node.op == "call_module"]
    assert order == ["one", "pool", "relu", "two", "again", "other"]
    assert torch.equal(fused(x), model(x))


class Repeated(nn.Module):
    """A layer norm that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(self.norm(x)))


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (nn.LayerNorm((3, 4)), (3, 4), r"an exact form: got 1 \(LayerNorm\); normalize over the channels$"),
        (Repeated(), (5, 4), "must be used once: got '1.norm'"),
        (
            nn.Sequential(nn.Linear(4, 12), nn.GELU(), SoftmaxAttention(2)),
            (5, 4),
            "must read a linear layer of its own",
        ),
    ],
    ids=("two axes", "twice", "no layer"),
)
def test_layer_norms_and_softmax_that_have_no_pieces_are_named(model, shape, message):
    with pytest.raises(RuleError, match=message):
        fuse_at(nn.Sequential(nn.Flatten(1, 2), model), torch.rand(2, 1, *shape))


@pytest.mark.parametrize("behind", ["layer", "padded", "circulant", "nothing"])
@pytest.mark.parametrize(
    ("shape", "norm"),
    [
        *(((5, 8), nn.LayerNorm(8)), ((8,), nn.LayerNorm(8)), ((8,), nn.GroupNorm(2, 8))),
        *(((8, 3, 2), nn.GroupNorm(4, 8, eps=0.1)), ((8, 3, 2), nn.InstanceNorm2d(8, affine=True))),
    ],
    ids=str,
)
def test_scales_and_shifts_of_norms_go_into_layers_behind_or_into_one_of_their_own(shape, norm, behind):
    torch.manual_seed(0)
    nn.init.ones_(norm.weight), nn.init.zeros_(norm.bias)
    maps, padding = len(shape) == 3, int(behind == "padded")
    layer = (
        nn.Conv2d(8, 4, 3 if padding else 1, padding=padding, groups=1 + (behind != "circulant"))
        if maps
        else nn.Linear(8, 4)
    )
    layer = nn.Identity() if behind == "nothing" else layer
    images = torch.rand(2, 1, 1, prod(shape))
    model = nn.Sequential(nn.Flatten(), nn.Unflatten(1, shape), norm, layer).double()
    if behind == "circulant":
        circulant_(model, {"3": 2})
    fresh = fuse_at(model, images.double()).state_dict()
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    fused = fuse_at(model, images.double())
    assert fused.state_dict().keys() == fresh.keys(), "checkpoints fit whatever a network's values are"
    own = [
        module for name, module in fused.named_modules() if name.startswith("2.leave") and isinstance(module, nn.Conv2d)
    ]
    assert len(own) == (behind in ("circulant", "nothing") or (maps and behind == "padded"))
    assert_close(fused(images.double()), model(images.double()), rtol=1e-6, atol=1e-6)


def test_what_surgery_can_fold_fuse_folds():
    """As in ConvMixer: a norm behind an activation gets a layer."""
    blocks = nn.Conv2d(3, 8, 2, 2), nn.GELU(), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
    model, images = nn.Sequential(*blocks).eval(), torch.rand(4, 3, 8, 8)
    nn.init.uniform_(model[2].running_var, 0.5, 1.5)
    fused = fuse_at(model, images)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert_close(fused(images), model(images))


def test_constants_of_a_rewritten_network_are_as_exact_as_the_comparison(monkeypatch):
    monkeypatch.setattr(passes_fuse, "EXACT", 1e-11)
    model = Written(
        lambda net, x: net.last((net.conv(x).relu() * net.factors + net.shifts).relu()),
        conv=nn.Conv2d(3, 8, 3),
        last=nn.Conv2d(8, 2, 1),
        factors=nn.Parameter(torch.rand(8, 1, 1) + 0.1),
        shifts=nn.Parameter(torch.rand(8, 1, 1)),
    ).eval()
    fused = fuse_at(model, torch.rand(2, 3, 6, 6))
    assert {parameter.dtype for parameter in fused.parameters()} == {torch.float32}
    assert torch.get_default_dtype() == torch.float32


class Cast(nn.Module):
    """A network whose forward casts its values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x.to(torch.float32))
        return self.head(torch.relu(y).type_as(x).float().flatten(1))


def test_casts_are_left_out():
    """They change no value, and would not fit the double precision in which networks are compared."""
    images = torch.randn(8, 2, 4, 4)
    model = Cast().eval()
    fused = fuse_at(model, images)
    assert_close(fused(images), model(images))
    assert not [node for node in fused.graph.nodes if node.op == "call_method" and node.target != "flatten"]


def test_one_value_for_each_image_keeps_its_axis():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 1), nn.Flatten(0))
    with pytest.raises(
        RuleError, match=r"for each image, \(N, K\): got shape \(1,\) for one image; keep its last axis"
    ):
        fuse_at(model, torch.randn(2, 2, 2, 2))
