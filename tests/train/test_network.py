import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from privcirnet.artifact.records import Bits, Checkpoint, read_checkpoint, write_checkpoint
from privcirnet.errors import RuleError
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.train.network import BuiltNetwork, build, checkpoint_of, create, weighted_layers
from tests.nn.networks import randomize_norms_
from tests.nn.quantized import INPUT_STEP, pixels

SIZES = {"stem": 1, "down": 2, "conv1": 16, "conv2": 4, "classifier": 2}


def network(kind: str) -> tuple[nn.Module, Checkpoint]:
    torch.manual_seed(0)
    model = create("digits_resnet", 10, (1, 8, 8))
    randomize_norms_(model)
    if kind == "dense":
        return model.eval(), checkpoint_of(BuiltNetwork(model, "digits_resnet", {}), "train")
    circulant_(model, {name: b for name, b in SIZES.items() if b > 1})
    if kind == "circulant":
        return model.eval(), checkpoint_of(BuiltNetwork(model, "digits_resnet", SIZES), "finetune")
    model = quantize(fuse(model), pixels(), INPUT_STEP, weight_bits=6, activation_bits=7, stream_bits=9)
    return model, checkpoint_of(BuiltNetwork(model, "digits_resnet", SIZES, Bits(6, 7, 9)), "qat")


@pytest.mark.parametrize("kind", ["dense", "circulant", "quantized"])
def test_a_network_comes_back_from_its_checkpoint(kind):
    model, saved = network(kind)
    torch.manual_seed(1)
    loaded = build(saved, 10, (1, 8, 8))
    assert not any(module.training for module in loaded.modules())
    images = pixels(16, seed=4)
    assert torch.equal(loaded(images), model(images))
    assert {name: type(m).__name__ for name, m in loaded.named_modules()} == {
        name: type(m).__name__ for name, m in model.named_modules()
    }
    assert repr(loaded) == repr(model)


@pytest.mark.slow
@pytest.mark.parametrize("quantized", [False, True])
def test_a_model_s_arguments_travel_with_it(quantized, tmp_path):
    torch.manual_seed(0)
    arguments, sizes = {"activation": "aespa", "width": 0.25}, {"blocks.1.0.expand": 8, "blocks.1.0.project": 4}
    model = circulant_(create("mobilenetv2_cifar", 10, (3, 32, 32), arguments), sizes)
    images = torch.randint(16, (4, 3, 32, 32)) / 16
    model.eval()(images)
    if quantized:
        model = quantize(fuse(model), images, INPUT_STEP, stream_bits=11)
    built = BuiltNetwork(model, "mobilenetv2_cifar", sizes, Bits(8, 8, 11) if quantized else None, arguments)
    write_checkpoint(tmp_path / "c", checkpoint_of(built, "train"))
    assert torch.equal(build(read_checkpoint(tmp_path / "c"), 10, (3, 32, 32))(images), model.eval()(images))


def test_arguments_are_the_network_s_own():
    with pytest.raises(RuleError, match=r"model.arguments must be the network's own: got digits_resnet: .*'colour'"):
        create("digits_resnet", 10, (1, 8, 8), {"colour": 1})


def test_a_checkpoint_is_of_its_own_memory_once_loaded():
    _, saved = network("dense")
    loaded = build(saved, 10, (1, 8, 8))
    before = saved.tensors["conv1.weight"].copy()
    with torch.no_grad():
        loaded.conv1.weight.zero_()
    assert np.array_equal(saved.tensors["conv1.weight"], before)


def test_stored_tensors_are_the_rows():
    _, saved = network("circulant")
    assert saved.tensors["conv1.parametrizations.weight.original"].shape == (2, 32, 3, 3)
    assert "conv1.weight" not in saved.tensors


def without(tensors: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: without(t, "stem.weight"),
            'must fit its architecture: got Missing key.*"stem.weight".*; train it again',
        ),
        (lambda t: t | {"extra": np.zeros(1)}, 'must fit its architecture: got Unexpected key.*"extra"'),
        (
            lambda t: t | {"stem.weight": np.zeros((2, 2))},
            "must fit its architecture: got size mismatch for stem.weight: .*; give the data= that it was trained on, or",
        ),
    ],
)
def test_wrong_tensors(change, message):
    _, saved = network("dense")
    with pytest.raises(RuleError, match=message):
        build(dataclasses.replace(saved, tensors=change(saved.tensors)), 10, (1, 8, 8))


def test_wrong_facts():
    _, saved = network("circulant")
    with pytest.raises(RuleError, match="must fit its architecture"):
        build(dataclasses.replace(saved, block_sizes={}), 10, (1, 8, 8))
    with pytest.raises(RuleError, match="must fit its architecture"):
        build(dataclasses.replace(saved, bits=Bits(8, 8, 8)), 10, (1, 8, 8))
    with pytest.raises(RuleError, match="must fit its architecture: got size mismatch"):
        build(saved, 12, (1, 8, 8))
    with pytest.raises(RuleError, match="did you mean 'conv1'"):
        build(dataclasses.replace(saved, block_sizes={"conv11": 2}), 10, (1, 8, 8))


@pytest.mark.parametrize(
    ("name", "suggested"), [("digits_resnt", "digits_resnet"), ("resnet81", "resnet18"), ("zzz", "digits_resnet")]
)
def test_an_unknown_model_name_suggests_one(name, suggested):
    with pytest.raises(
        RuleError,
        match=f"must be one of privcirnet.models, torchvision or timm: got '{name}'; .*{suggested}",
    ):
        create(name, 10, (1, 8, 8))


def test_networks_of_both_registries():
    assert create("digits_resnet", 7, (3, 16, 16), {"width": None, "image_size": 16})(
        torch.ones(1, 3, 16, 16)
    ).shape == (1, 7)
    polynomial = create("resnet18", 7, (1, 32, 32), {"activation": "square"}).eval()
    assert {type(module) for module in polynomial.modules() if "act" in type(module).__name__.lower()} == set()
    assert polynomial(torch.ones(1, 1, 32, 32)).shape == (1, 7)
    assert create("resnet18", 7, (1, 32, 32), {"drop_rate": None}).conv1.weight.shape == (64, 1, 7, 7)


def test_weighted_layers_in_order():
    model, _ = network("circulant")
    assert list(weighted_layers(model)) == ["stem", "down", "conv1", "conv2", "classifier"]
