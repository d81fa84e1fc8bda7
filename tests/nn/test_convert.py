import copy

import pytest
import timm
import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.functional.circulant import expand, is_circulant, project
from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import BlockCirculantConv2d, block_size_of
from privcirnet.nn.convert import circulant_, dense_state_dict
from privcirnet.nn.fuse import fuse
from privcirnet.nn.graph import evaluating, find_layer, trace
from privcirnet.nn.norm import BlockBatchNorm2d
from tests import tolerances
from tests.nn.test_circulant import Round, rows_of

SIZES = {"stem": 2, "left": 4, "right": 8, "head": 4}


class Residual(nn.Module):
    """Modules are defined in an order that is not that of the forward, and norms are named after nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 4)
        self.alpha, self.beta, self.gamma = (nn.BatchNorm2d(16) for _ in range(3))
        self.right, self.left = nn.Conv2d(16, 16, 1, bias=False), nn.Conv2d(16, 16, 3, padding=1)
        self.stem, self.square = nn.Conv2d(2, 16, 3), Square()
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.square(self.gamma(self.stem(x)))
        x = self.alpha(self.left(x)) + self.beta(self.right(x))
        return self.head(self.depthwise(x).mean((2, 3)))


def residual(dtype: torch.dtype = torch.float64) -> Residual:
    torch.manual_seed(0)
    model = Residual().to(dtype)
    randomize_norms_(model)
    return model


def randomize_norms_(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in module.state_dict().values():
                if value.is_floating_point():
                    value.uniform_(0.5, 1.5)


def images(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(1), dtype=dtype)


def snapshot(model: nn.Module) -> tuple[str, dict[str, Tensor], list[bool]]:
    return repr(model), copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]


def assert_unchanged(model: nn.Module, before: tuple[str, dict[str, Tensor], list[bool]]) -> None:
    text, state, modes = snapshot(model)
    assert text == before[0]
    assert modes == before[2]
    assert state.keys() == before[1].keys()
    assert all(torch.equal(value, before[1][key]) for key, value in state.items())


def assert_same_outputs(model: nn.Module, other: nn.Module, layers: int = 8, terms: int = 16 * 9 + 10) -> None:
    with torch.no_grad():
        expected, actual = model.eval()(images()), other(images())
    bound = tolerances.network(torch.float64, layers, terms, expected.abs().max().item())
    assert_close(actual, expected, rtol=0, atol=bound)


def test_circulant_converts_layers_and_the_norms_that_consume_them():
    dense = residual()
    model = copy.deepcopy(dense).train()
    assert circulant_(model, SIZES) is model
    for name, b in SIZES.items():
        layer = model.get_submodule(name)
        assert block_size_of(layer) == b
        assert torch.equal(rows_of(layer), project(dense.get_submodule(name).weight, b))
    assert {name: getattr(model, name).b for name in ("gamma", "alpha", "beta")} == {"gamma": 2, "alpha": 4, "beta": 8}
    assert torch.equal(model.alpha.weight, dense.alpha.weight.reshape(4, 4).mean(1))
    assert type(model.depthwise) is nn.Conv2d
    assert model.training
    assert model(images()).shape == (3, 4)


def test_importance_weighs_the_layers_it_names():
    dense = residual()
    model, importance = copy.deepcopy(dense), {"left": torch.rand(16, 16, 3, 3), "depthwise": torch.ones(16, 1, 3, 3)}
    circulant_(model, SIZES, importance)
    assert torch.equal(rows_of(model.left), project(dense.left.weight, 4, importance["left"]))
    assert torch.equal(rows_of(model.right), project(dense.right.weight, 8))


def test_block_size_one_changes_nothing():
    model = residual()
    before = snapshot(model)
    circulant_(model, dict.fromkeys([*SIZES, "depthwise"], 1))
    assert_unchanged(model, before)


def test_norms_that_do_not_directly_follow_stay():
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.ReLU(), nn.BatchNorm2d(4))
    circulant_(model, {"0": 2})
    assert type(model[2]) is nn.BatchNorm2d


def test_a_model_without_norms_need_not_be_traceable():
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x) if x.sum() > 0 else x

    assert block_size_of(circulant_(Branching(), {"fc": 2}).fc) == 2


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)) if x.sum() > 0 else x


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight


class Twice(nn.Module):
    """One batch norm behind two convolutions, one of which runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.norm = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.one(x)) + self.norm(self.other(x)) + self.norm(self.one(2 * x))


def sync_norm() -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)))


REFUSED = [
    (residual, {"stem": 2, "rigth": 2}, r"must exist in the model: got 'rigth'; did you mean 'right'\?"),
    (residual, {"stem": 2, "square": 2}, "must be Linear or Conv2d: got Square at 'square'"),
    (residual, {"stem": 2, "gamma": 2}, "must be Linear or Conv2d: got BatchNorm2d at 'gamma'"),
    (residual, {"left": 2, "depthwise": 2}, "must have one group: got groups=16 at 'depthwise'"),
    (residual, {"left": 2, "stem": 4}, r"divide both weight dimensions: got 4 for \(16, 2, 3, 3\) at 'stem'; .* 1, 2$"),
    (lambda: circulant_(residual(), {"left": 4}), {"stem": 2, "left": 4}, "plain dense weight: got 'left' .* size 4"),
    (Tied, {"other": 2}, "must not share its weight: got one.weight = other.weight"),
    (Untraceable, {"conv": 2}, "traceable by torch.fx.*: got Untraceable: symbolically traced variables cannot be"),
    (Twice, {"one": 2, "other": 4}, "needs one block size: got 2 and 4 before 'norm'"),
    (sync_norm, {"0": 2}, "must be a BatchNorm2d or timm's BatchNormAct2d: got SyncBatchNorm"),
]


@pytest.mark.parametrize(("build", "sizes", "message"), REFUSED)
def test_refusals_change_nothing(build, sizes, message):
    model = build()
    before = snapshot(model)
    with pytest.raises(RuleError, match=message):
        circulant_(model, sizes)
    assert_unchanged(model, before)


@pytest.mark.parametrize(
    ("importance", "message"),
    [
        ({"left": torch.ones(4, 16, 3, 3)}, "must have the shape of the weight"),
        ({"left": -torch.ones(16, 16, 3, 3)}, "must be finite and non-negative"),
        ({"lefft": torch.ones(16, 16, 3, 3)}, "did you mean 'left'"),
    ],
)
def test_importance_that_does_not_fit_changes_nothing(importance, message):
    model = residual()
    before = snapshot(model)
    with pytest.raises(RuleError, match=message):
        circulant_(model, SIZES, importance)
    assert_unchanged(model, before)


def test_trap_4_a_layer_under_two_names_is_tied():
    layer = nn.Linear(4, 4)
    with pytest.raises(RuleError, match=r"must not share its weight: got 0\.weight = 1\.weight"):
        circulant_(nn.Sequential(layer, layer), {"1": 2})
    assert layer.weight.shape == (4, 4)


def test_find_layer_in_a_model_without_layers():
    with pytest.raises(RuleError, match="got 'fc'; did you mean"):
        find_layer(nn.ReLU(), "fc")


def test_trace_keeps_the_toolkits_modules_whole():
    model = circulant_(residual(), SIZES)
    graph = trace(model).graph
    assert {node.op for node in graph.nodes if node.op != "placeholder"} == {
        "call_module",
        "call_function",
        "call_method",
        "output",
    }
    assert {"square", "gamma", "stem"} <= {node.target for node in graph.nodes}
    assert torch.equal(trace(model).eval()(images()), model.eval()(images()))


def test_evaluating_restores_each_modules_own_mode():
    model = residual().train()
    model.alpha.eval()
    seen = []

    def look() -> None:
        with evaluating(model):
            seen.extend(module.training for module in model.modules())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        look()
    assert seen
    assert not any(seen)
    assert [name for name, module in model.named_modules() if not module.training] == ["alpha"]


def converted(dtype: torch.dtype = torch.float64) -> nn.Module:
    """Left stays dense before a plain batch norm; the others are circulant, one of them with a bias."""
    return circulant_(residual(dtype), {"stem": 2, "right": 8, "head": 4})


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


def test_fuse_shares_no_tensor():
    model = converted()
    fused = fuse(model)
    owned = {value.data_ptr() for value in model.state_dict().values()}
    assert not owned & {value.data_ptr() for value in fused.state_dict().values()}


def test_fuse_of_one_layer_in_single_precision():
    torch.manual_seed(0)
    model = circulant_(nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16)), {"0": 4}).eval()
    randomize_norms_(model)
    x, fused = torch.randn(2, 16, 6, 6), fuse(model)
    conv, norm = model
    scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).repeat_interleave(4)
    reach = nn.functional.conv2d(x.abs(), conv.weight.abs(), conv.bias.abs()) + norm.running_mean.max()
    magnitude = (reach * scale.reshape(-1, 1, 1) + norm.bias.max()).max().item()
    # 144 products, bias, mean and shift, and four roundings of the scale on each
    assert_close(fused(x), model(x), rtol=0, atol=tolerances.dot_product(torch.float32, 144 + 3 + 4, magnitude))


def test_fuse_of_a_norm_shared_more_widely_than_the_blocks():
    model = nn.Sequential(BlockCirculantConv2d(2, 8, 1, b=2), BlockBatchNorm2d(8, 4)).double()
    randomize_norms_(model)
    fused = fuse(model)
    assert block_size_of(fused.get_submodule("0")) == 2
    assert_same_outputs(model, fused)


def test_fuse_without_affine_parameters():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, affine=False)).double()
    randomize_norms_(model)
    assert_same_outputs(model, fuse(model))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 1)
        self.register_buffer("one", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(self.conv(x), self.one, self.one)


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x + self.norm(x)


def quantized() -> nn.Module:
    model = nn.Sequential(BlockCirculantConv2d(2, 4, 1, b=2), BlockBatchNorm2d(4, 2))
    parametrize.register_parametrization(model[0], "weight", Round())
    return model


def unshared() -> nn.Module:
    model = nn.Sequential(BlockCirculantConv2d(2, 4, 1, b=2), nn.BatchNorm2d(4))
    randomize_norms_(model)
    return model


UNFUSABLE = [
    (
        lambda: nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 4, 1)),
        "must directly follow a convolution: got '0' after 'in",
    ),
    (
        lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)),
        "must directly follow a convolution: got '1' after '0'",
    ),
    (Branch, "a convolution must feed only its batch norm: got 'norm' after 'conv'"),
    (Twice, "must be used once: got 'norm' after 'one'"),
    (Functional, "a batch norm must be a module"),
    (Untraceable, "traceable by torch.fx"),
    (quantized, "must be folded before weights are quantized: got BlockCirculant, Round before '1'"),
    (
        unshared,
        "must be shared by its blocks: got values that differ within a block at '1' for block size 2",
    ),
    (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4, track_running_stats=False)),
        "must have running statistics to be folded: got '1'",
    ),
]


@pytest.mark.parametrize(("build", "message"), UNFUSABLE)
def test_what_cannot_be_fused(build, message):
    with pytest.raises(RuleError, match=message):
        fuse(build())


def test_dense_state_dict_loads_into_the_unconverted_architecture():
    model = circulant_(residual(), SIZES).train()
    before = snapshot(model)
    state = dense_state_dict(model)
    assert_unchanged(model, before)
    dense = residual()
    dense.load_state_dict(state, strict=True)
    assert torch.equal(dense.left.weight, model.left.weight)
    assert_same_outputs(model, dense.eval())
    assert not {v.data_ptr() for v in state.values()} & {v.data_ptr() for v in model.state_dict().values()}


def test_dense_state_dict_of_a_single_layer_and_of_a_stack():
    layer = circulant_(nn.Linear(4, 4), {"": 2})
    parametrize.register_parametrization(layer, "weight", Round())
    assert dense_state_dict(layer).keys() == {"weight", "bias"}
    assert torch.equal(dense_state_dict(layer)["weight"], expand(Round()(rows_of(layer)), 2))


class Observe(nn.Module):
    """A toy quantizer that counts its uses in training."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("uses", torch.zeros(()))

    def forward(self, weight: Tensor) -> Tensor:
        self.uses += self.training
        return weight

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


def test_dense_state_dict_is_not_observed():
    layer = circulant_(nn.Linear(4, 4), {"": 2})
    parametrize.register_parametrization(layer, "weight", Observe())
    before = snapshot(layer.train())
    assert dense_state_dict(layer).keys() == {"weight", "bias"}
    assert_unchanged(layer, before)


def test_trap_1_exporting_a_deep_copy_leaves_the_original_whole():
    model = circulant_(residual(), SIZES)
    twin = copy.deepcopy(model)
    state = dense_state_dict(twin)
    fuse(twin)
    expected = dense_state_dict(model)
    assert all(torch.equal(value, expected[key]) for key, value in state.items())
    assert all(block_size_of(m.get_submodule(name)) == b for m in (model, twin) for name, b in SIZES.items())
    assert torch.equal(model.eval()(images()), twin.eval()(images()))


def test_trap_5_a_converted_layer_is_not_found_as_a_dense_one():
    with pytest.raises(RuleError, match="a layer must still have its plain dense weight: got 'left'"):
        find_layer(circulant_(residual(), SIZES), "left")


@pytest.mark.parametrize("name", ["mobilenetv2_050", "resnet18"])
def test_timm_models_convert_fuse_and_come_back(name):
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=8).double()
    randomize_norms_(model)
    layers = {
        key: 4
        for key, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and module.groups == 1 and min(module.weight.shape[:2]) % 4 == 0
    }
    convs = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    circulant_(model, layers).eval()
    assert sum(isinstance(module, BlockBatchNorm2d) for module in model.modules()) == len(layers) > 15
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    fused = fuse(model)
    dense = timm.create_model(name, num_classes=8).double().eval()
    dense.load_state_dict(dense_state_dict(model), strict=True)
    with torch.no_grad():
        expected = model(x)
        bound = tolerances.network(torch.float64, convs, 9 * 512, expected.abs().max().item())
        assert_close(fused(x), expected, rtol=0, atol=bound)
        assert_close(dense(x), expected, rtol=0, atol=bound)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fused.modules())
    assert all(is_circulant(fused.get_submodule(key).weight, b) for key, b in layers.items())
