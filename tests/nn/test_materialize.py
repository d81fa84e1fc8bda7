"""Weights that torch or users compute from others: trained through, made plain where the weight itself is needed."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.blocksize_search.curvature import diagonal_fisher, squared_batch_gradient
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.functional.circulant import is_circulant, project
from privcirnet.nn.materialize import has_plain_weights, materialize_weights_, with_plain_weights
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from tests.nn.networks import Round, rows_of


def with_hooks(make, layer: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated, and in many networks
        make(layer)


def pruned_twice(layer: nn.Module) -> None:
    prune.l1_unstructured(layer, "weight", 0.3)
    prune.random_structured(layer, "weight", 0.25, dim=0)
    prune.l1_unstructured(layer, "bias", 1)


COMPUTED = {
    "weight_norm's hook": lambda layer: with_hooks(nn.utils.weight_norm, layer),
    "spectral_norm's hook": lambda layer: with_hooks(nn.utils.spectral_norm, layer),
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "pruning": pruned_twice,
    "a user's": lambda layer: parametrize.register_parametrization(layer, "weight", Round()),
}
every_kind = pytest.mark.parametrize("name", COMPUTED)


def network(name: str) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), Square(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
    ).double()
    model.extend([Square(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(8, 2).double()])
    COMPUTED[name](model[3])
    for _ in range(20):
        model.train()(images())  # a weight that remembers what it was computed from
    return model


def images() -> Tensor:
    return torch.rand(16, 3, 4, 4, generator=torch.Generator().manual_seed(1)).double()


@every_kind
@pytest.mark.parametrize("training", [True, False])
def test_a_plain_copy_computes_the_same_and_leaves_the_network_alone(name, training):
    model = network(name)
    expected = copy.deepcopy(model.eval().state_dict()), model(images()).detach()
    plain = with_plain_weights(model.train(training))
    assert has_plain_weights(plain)
    assert not has_plain_weights(model)
    assert model.training == plain.training == training
    assert isinstance(plain[3].weight, nn.Parameter)
    assert_close(plain.eval()(images()), expected[1])
    assert_close(model.eval()(images()), expected[1])
    assert_close(model.state_dict(), expected[0])
    assert with_plain_weights(plain) is plain
    model.train()(images()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@every_kind
def test_fuse_folds_norms_into_them(name):
    model = network(name)
    fused = fuse(model)
    assert_close(fused(images()), model.eval()(images()))
    assert not has_plain_weights(model)


@every_kind
def test_circulant_starts_from_the_weight_itself(name):
    model = network(name)
    weight = copy.deepcopy(with_plain_weights(model)[3].weight.detach())
    circulant_(model, {"3": 4})
    assert_close(rows_of(model[3]), project(weight, 4))
    assert is_circulant(fuse(model).get_submodule("3").weight, 4)


@every_kind
def test_a_refused_conversion_leaves_them(name):
    model = network(name)
    with pytest.raises(RuleError, match="divide both weight dimensions"):
        circulant_(model, {"3": 4, "8": 3})
    assert not has_plain_weights(model)


@every_kind
def test_sensitivities_need_plain_weights(name):
    model, data = network(name), [(images(), torch.arange(16) % 2)]
    for measure in (lambda: diagonal_fisher(model, data, ["3"], 4), lambda: squared_batch_gradient(model, data, ["3"])):
        with pytest.raises(RuleError, match="a layer must have a plain weight: got '3', whose weight is computed from"):
            measure()
    assert diagonal_fisher(materialize_weights_(model), data, ["3"], 4)["3"].abs().max() > 0


@every_kind
def test_the_verbs_train_through_them(name):
    model, data = network(name).float(), (images().float(), torch.arange(16) % 2)
    layer = model[3]
    before = [value.clone() for value in layer.parameters()]
    pc.polynomial_(model, data[0])
    assert not pc.check(model, data[0], block_size=2, profile="counted").refusals
    pc.fit(model, data, epochs=2, progress=False, amp="auto")
    assert not has_plain_weights(model)
    assert not all(torch.equal(old, new) for old, new in zip(before, layer.parameters(), strict=True))
    if name == "pruning":
        assert (layer.weight == 0).float().mean() >= 0.3
    plan = pc.search(model, data, budget=pc.uniform(2), profile="counted", progress=False, samples=8)
    pc.circulant_(model, plan.block_sizes)
    expected = model.eval()(data[0])
    quantized = pc.quantize(pc.fuse(model), data[0], activation_bits=14, stream_bits=16)
    assert_close(quantized(data[0]), expected, rtol=0, atol=0.05 * expected.abs().max().item())


@every_kind
def test_a_program_is_compared_with_them(name):
    model, shown = network(name).float(), images().float()
    quantized = pc.quantize(pc.fuse(model), shown, activation_bits=14, stream_bits=16)
    model(shown)
    pc.compile(quantized, shown, profile="counted", progress=False, reference=model, failure_bits=12)


def test_a_frozen_weight_stays_frozen():
    layer = parametrizations.weight_norm(nn.Linear(2, 2)).requires_grad_(False)
    assert not materialize_weights_(layer).weight.requires_grad
    assert isinstance(layer.weight, nn.Parameter)


@every_kind
def test_a_plain_layer_takes_its_own_state(name):
    layer = network(name)[3]
    materialize_weights_(layer).load_state_dict(layer.state_dict())


@pytest.mark.parametrize("name", ["spectral_norm", "spectral_norm's hook"])
def test_weights_are_those_of_evaluation_in_training_too(name):
    """Each use of a spectral norm in training changes it a little."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    COMPUTED[name](layer)
    for key, vector in layer.named_buffers():
        if key.endswith("u"):
            vector.copy_(nn.functional.normalize(torch.randn(8), dim=0))
    layer.eval()(torch.zeros(1, 8))
    weight = layer.weight.detach().clone()
    assert_close(with_plain_weights(layer.train()).weight.detach(), weight)
    assert_close(materialize_weights_(layer).weight.detach(), weight)
