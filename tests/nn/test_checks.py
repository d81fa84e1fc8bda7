import copy
import warnings

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from privcirnet.errors import RuleError
from privcirnet.nn.checks import check_module, check_weights, logits_of_one
from tests.nn.networks import assert_unchanged, snapshot


def test_a_weight_of_two_layers_is_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    check_weights(model)
    model[2].weight = model[0].weight
    with pytest.raises(RuleError, match=r"each layer must have weights of its own: got 0.weight = 2.weight"):
        check_weights(model)


def test_weights_and_statistics_that_are_not_finite_are_named():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    model[1].running_var[0] = torch.inf
    with pytest.raises(RuleError, match=r"weights must be finite: got NaN or infinity in 1.running_var"):
        check_weights(model)


def test_a_network_is_asked_in_evaluation_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten()).train()
    before = snapshot(model)
    assert logits_of_one(model, torch.rand(3, 1, 2, 2)).shape == (1, 2)
    assert_unchanged(model, before)
    with pytest.raises(RuleError, match=r"a network must return logits \(N, classes\): got shape \(1, 2, 1, 1\)"):
        logits_of_one(model[:2], torch.rand(3, 1, 2, 2))
    with pytest.raises(
        RuleError,
        match=r"images must be a tensor \(N, C, H, W\), N at least 1, signals \(N, C, L\) or a table \(N, F\): got list",
    ):
        logits_of_one(model, [torch.rand(1, 2, 2)])


def _scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch: use something else
        return torch.jit.script(nn.Linear(2, 2))


def _exported():
    return torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),)).module()


def _inferred():
    with torch.inference_mode():
        return nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.DataParallel(nn.Linear(2, 2)), r"wraps it: got DataParallel at model; give model\.module$"),
        (lambda: AveragedModel(nn.Linear(2, 2)), r"got AveragedModel at model; give model\.module$"),
        (lambda: torch.compile(nn.Linear(2, 2)), r"got OptimizedModule at model; give model\._orig_mod$"),
        (lambda: nn.Sequential(torch.compile(nn.ReLU())), r"OptimizedModule at model\.0; give model\.0\._orig_mod$"),
        (_exported, "got GraphModule of torch\\.export at model; give the module that was exported"),
        (_scripted, "got RecursiveScriptModule at model; give the module that was scripted"),
        (lambda: nn.Linear(2, 2).bfloat16(), r"float32 or float64: got bfloat16 at weight; give model\.float\(\)"),
        (lambda: nn.Linear(2, 2).half(), "got float16 at weight"),
        (lambda: nn.Sequential(nn.LazyLinear(2)), r"got none yet at 0\.weight; show the network an image first"),
        (lambda: nn.Linear(2, 2, device="meta"), "got none at weight, which is on device meta; load weights"),
        (_inferred, r"training can change: got weight of torch\.inference_mode"),
    ],
)
def test_a_wrapper_or_a_weight_of_another_kind_is_named_with_what_to_give(make, message):
    with pytest.raises(RuleError, match=message):
        check_module(make())


def test_what_is_left_of_inference_mode_in_a_copy_is_a_network():
    check_module(copy.deepcopy(_inferred()))


def test_a_networks_own_child_may_have_a_wrappers_name():
    model = type("Own", (nn.Module,), {})()
    model.add_module("module", nn.Linear(2, 2).double())
    check_module(nn.Sequential(model))


def test_a_call_inside_of_inference_mode_is_refused():
    with (
        torch.inference_mode(),
        pytest.raises(RuleError, match=r"outside of torch.inference_mode: got .* use torch.no"),
    ):
        check_module(nn.Linear(2, 2))


def test_a_graph_may_have_a_module_named_module():
    """As timm's iformer has, whose residuals hold what they run as ``module``: a graph keeps it in a bare container."""
    inner = nn.Module()
    inner.module = nn.Linear(2, 2)
    outer = nn.Sequential(inner)
    graph = torch.fx.Graph()
    graph.output(graph.call_module("0.module", (graph.placeholder("x"),)))
    check_module(torch.fx.GraphModule(outer, graph))
