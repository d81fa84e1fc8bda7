import copy
from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa2d
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import is_circulant, project
from privcirnet.nn.norm import BlockBatchNorm2d, TokenBatchNorm
from privcirnet.passes.convert import circulant_, dense_state_dict
from privcirnet.passes.fuse import fuse
from tests import tolerances
from tests.nn.networks import (
    SIZES,
    Twice,
    Untraceable,
    Written,
    assert_same_outputs,
    assert_unchanged,
    images,
    randomize_norms_,
    residual,
    rows_of,
    snapshot,
)


def test_circulant_converts_layers_and_the_norms_that_consume_them():
    dense = residual()
    model = copy.deepcopy(dense).train()
    assert circulant_(model, SIZES) is model
    for name, b in SIZES.items():
        layer = model.get_submodule(name)
        assert block_size_of(layer) == b
        assert torch.equal(rows_of(layer), project(dense.get_submodule(name).weight, b))
    assert {name: getattr(model, name).block_size for name in ("gamma", "alpha", "beta")} == {
        "gamma": 2,
        "alpha": 4,
        "beta": 8,
    }
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
    branching = Written(lambda net, x: net.fc(x) if x.sum() > 0 else x, fc=nn.Linear(4, 4))
    assert block_size_of(circulant_(branching, {"fc": 2}).fc) == 2


@pytest.mark.parametrize(
    "flatten",
    [
        lambda x: torch.flatten(x, 1),
        lambda x: x.flatten(1),
        lambda x: x.flatten(start_dim=1),
        lambda x: x.view(x.size(0), -1),
        lambda x: x.reshape((x.shape[0], -1)),
        lambda x: x.repeat(1, 1, 2, 4).mean((2, 3)).reshape(-1, 8),
    ],
)
def test_norms_of_vectors_are_shared_however_they_were_flattened(flatten):
    model = vectors(flatten)
    circulant_(model, {"layer": 4})
    assert model.norm.block_size == 4
    model(torch.rand(3, 8, 1, 1))
    assert isinstance(fuse(model.eval()).get_submodule("layer"), nn.Linear)


def test_a_norm_of_two_names_is_replaced_under_both():
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4))
    model.norms = nn.ModuleList([model[1]])
    circulant_(model, {"0": 2})
    assert model.norms[0] is model[1]


def test_norms_are_found_behind_any_dropout():
    model = circulant_(nn.Sequential(nn.Conv2d(2, 4, 1), nn.Dropout2d(), nn.BatchNorm2d(4)), {"0": 2})
    assert model[2].block_size == 2


@pytest.mark.parametrize("block_size", [2.0, "2", None])
def test_a_block_size_that_is_no_integer_changes_nothing(block_size):
    model = residual()
    before = snapshot(model)
    with pytest.raises(RuleError, match=r"a block size must be an integer: got .* at 'right'"):
        circulant_(model, {"left": 2, "right": block_size})
    assert_unchanged(model, before)


def test_what_is_frozen_stays_frozen():
    layers = nn.Conv2d(2, 8, 1), Aespa2d(8), nn.Flatten(), nn.Linear(8, 8), TokenBatchNorm(8), nn.Linear(8, 2)
    model = circulant_(nn.Sequential(*layers).requires_grad_(False), {"0": 2, "3": 4})
    assert [model[1].block_size, model[4].block_size] == [2, 4]
    assert not any(parameter.requires_grad for parameter in model.parameters())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight


def sync_norm() -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)))


def vectors(flatten: Callable[[Tensor], Tensor]) -> nn.Module:
    return Written(lambda net, x: net.norm(net.layer(flatten(x))), layer=nn.Linear(8, 8), norm=nn.BatchNorm1d(8))


REFUSED = [
    (residual, {"stem": 2, "rigth": 2}, r"must exist in the model: got 'rigth'; did you mean 'right'\?"),
    (residual, {"stem": 2, "square": 2}, "must be Linear, Conv1d or Conv2d: got Square at 'square'"),
    (residual, {"stem": 2, "gamma": 2}, "must be Linear, Conv1d or Conv2d: got BatchNorm2d at 'gamma'"),
    (residual, {"left": 2, "depthwise": 2}, "must have one group: got groups=16 at 'depthwise'"),
    (residual, {"left": 2, "stem": 4}, r"divide both weight dimensions: got 4 for \(16, 2, 3, 3\) at 'stem'; .* 1, 2$"),
    (lambda: circulant_(residual(), {"left": 4}), {"stem": 2, "left": 4}, "plain dense weight: got 'left' .* size 4"),
    (Tied, {"other": 2}, "must not share its weight: got one.weight = other.weight"),
    (
        Untraceable,
        {"conv": 2},
        r"traceable by torch.fx at its .*: got Untraceable on \(2, 2, 32, 32\): TraceError: symb",
    ),
    (Twice, {"one": 2, "other": 4}, "needs one block size: got 2 and 4 before 'norm'"),
    (lambda: vectors(lambda x: x), {"layer": 4}, "must work on vectors .*: got 'norm' beside 'layer', which is circ"),
    (sync_norm, {"0": 2}, "must be a BatchNorm1d, BatchNorm2d or timm's BatchNormAct2d: got SyncBatchNorm"),
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
        ({"left": [1.0]}, "importance must be a tensor: got list"),
        ({"lefft": torch.ones(16, 16, 3, 3)}, "did you mean 'left'"),
    ],
)
def test_importance_that_does_not_fit_changes_nothing(importance, message):
    model = residual()
    before = snapshot(model)
    with pytest.raises(RuleError, match=message):
        circulant_(model, SIZES, importance)
    assert_unchanged(model, before)


@pytest.mark.parametrize("shown", [images()[:, :1], images() / 0], ids=["of other channels", "infinite"])
def test_images_that_do_not_fit_change_nothing(shown):
    model = residual()
    before = snapshot(model)
    with pytest.raises(RuleError, match=r"a network must take the images|images must be finite"):
        circulant_(model, SIZES, images=shown)
    assert_unchanged(model, before)


def test_a_network_that_cannot_be_traced_is_not_half_converted():
    model = Untraceable()
    before = snapshot(model)
    with pytest.raises(RuleError, match="trace"):
        circulant_(model, {"conv": 2}, images=images().float())
    assert_unchanged(model, before)


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


def test_dense_state_dict_of_pruned_weights_is_plain():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    plain = copy.deepcopy(model)
    prune.l1_unstructured(model[0], "weight", 0.5)
    circulant_(model, {"1": 2})
    plain.load_state_dict(dense_state_dict(model))
    assert (plain[0].weight == 0).sum() == 8
    assert prune.is_pruned(model[0])


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
