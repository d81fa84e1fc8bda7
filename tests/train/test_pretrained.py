"""Networks that begin with the weights of others: files, timm's and torchvision's own, and what follows from them."""

import copy
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
import torchvision
from torch import Tensor, nn

from privcirnet.artifact.records import write_checkpoint
from privcirnet.config import ModelConfig, QuantConfig, RecipeConfig
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa
from privcirnet.passes.surgery import polynomial_
from privcirnet.train import stages
from privcirnet.train.accuracy import accuracy
from privcirnet.train.architectures import is_weights, load_weights_, read_weights
from privcirnet.train.loop import fit
from privcirnet.train.network import checkpoint_of, create, create_from
from privcirnet.train.recalibration import are_norms_frozen, freeze_norms_

NAME, IMAGE = "test_resnet", (1, 8, 8)
DATA = load("digits")


def network(classes: int = 7, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model(NAME, num_classes=classes, in_chans=1).eval()


def begin(init: str = "", **settings) -> stages.BuiltNetwork:
    torch.manual_seed(3)
    return stages.begin(RecipeConfig(init=init), QuantConfig(), ModelConfig(NAME, **settings), DATA)


def written(path, state: dict[str, Tensor]):
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return str(path)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("classes", [7, 10])
def test_a_file_of_weights_is_loaded_and_its_head_replaced_if_need_be(tmp_path, name, classes):
    given = network(classes)
    found = begin(written(tmp_path / name, given.state_dict()))
    own, state = found.model.state_dict(), given.state_dict()
    heads = {"fc.weight", "fc.bias"} if classes == 7 else set()
    assert set(found.fresh) == heads
    assert all(torch.equal(own[key], state[key]) for key in own if key not in heads)
    assert own["fc.weight"].shape[0] == 10


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": {f"module.{name}": value for name, value in state.items()}},
        lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
        lambda state: {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")},
        lambda state: {name: value for name, value in state.items() if not name.startswith("fc.")},
    ],
)
def test_state_dicts_come_wrapped(tmp_path, wrapped):
    state = network(10).state_dict()
    found = begin(written(tmp_path / "w.pt", wrapped(state)))
    own = found.model.state_dict()
    assert all(torch.equal(own[key], state[key]) for key in own if key not in found.fresh)
    assert set(found.fresh) <= {"fc.weight", "fc.bias"}


def test_weights_are_loaded_before_surgery(tmp_path):
    path, arguments = written(tmp_path / "w.pt", network(10).state_dict()), {"activation": "aespa"}
    model, fresh = create_from(NAME, 10, IMAGE, arguments, path)
    expected = network(10)
    polynomial_(expected, torch.zeros(2, *IMAGE))
    assert fresh == ()
    assert all(torch.equal(model.state_dict()[key], value) for key, value in expected.state_dict().items())


def test_a_state_dict_of_another_architecture_is_refused_by_its_first_tensors(tmp_path):
    state = network(10).state_dict()
    model = network(10, seed=1)
    other = timm.create_model("test_efficientnet", num_classes=10, in_chans=1).state_dict()
    for given, message in [
        (other, r"must be of the network's architecture: got .*w.pt: missing conv1.0.weight, .* more; unexpected conv"),
        (state | {"extra": torch.ones(1)}, r"got .*w.pt: unexpected extra; give the model.name and model.arguments"),
        ({k: v for k, v in state.items() if k != "bn1.bias"}, r"got .*w.pt: missing bn1.bias; give"),
        (state | {"bn1.bias": torch.ones(3)}, r"got .*w.pt: of another shape bn1.bias; give"),
        (state | {"fc.weight": torch.ones(10, 3)}, r"of another shape fc.weight"),
        (
            state | {"bn1.bias": state["bn1.bias"] * torch.nan},
            "weights must be finite: got NaN or infinity in bn1.bias",
        ),
    ]:
        path = written(tmp_path / "w.pt", given)
        with pytest.raises(RuleError, match=message):
            begin(path)
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(RuleError):
            load_weights_(model, read_weights(tmp_path / "w.pt"), 10, "it")
        assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


class Elsewhere:
    """An object that only code could restore."""


def test_what_is_no_file_of_weights(tmp_path):
    torch.save({"model": network(), "object": Elsewhere()}, tmp_path / "pickled.pt")
    (tmp_path / "text.pt").write_text("no weights")
    (tmp_path / "text.safetensors").write_text("no weights")
    (tmp_path / "more.pt").write_text("e")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({1: torch.ones(1)}, tmp_path / "numbered.pt")
    for name in ("pickled.pt", "text.pt", "more.pt", "text.safetensors", "list.pt", "numbered.pt", "nowhere.pt"):
        rule = rf"weights must be a file of tensors: got .*{name}.*; give a .safetens"
        with pytest.raises(RuleError, match=rule) as refused:
            read_weights(tmp_path / name)
        assert "can still be loaded" not in str(refused.value), "torch's advice is unsafe"


def test_a_checkpoint_is_told_from_a_file_of_weights(tmp_path):
    state = written(tmp_path / "w.safetensors", network().state_dict())
    write_checkpoint(tmp_path / stages.CHECKPOINT, checkpoint_of(begin(state), "train"))
    assert is_weights(Path(state))
    assert not is_weights(tmp_path / stages.CHECKPOINT)
    assert begin(str(tmp_path)).fresh == ()
    (tmp_path / "text.safetensors").write_text("neither")
    with pytest.raises(RuleError, match="a checkpoint must be a whole safetensors file"):
        begin(str(tmp_path / "text.safetensors"))


def test_timms_pretrained_weights_from_a_file(tmp_path):
    """timm fills in a head of its own where the classes differ, and a checkpoint needs the file no more."""
    given = timm.create_model(NAME, num_classes=1000)
    path = written(tmp_path / "w.safetensors", given.state_dict())
    arguments = {"pretrained": True, "pretrained_cfg_overlay": {"file": path}}
    found = begin(arguments=arguments)
    assert set(found.fresh) == {"fc.weight", "fc.bias"}
    assert torch.equal(found.model.state_dict()["layer1.0.conv1.weight"], given.state_dict()["layer1.0.conv1.weight"])
    assert found.arguments == {}
    whole, fresh = create_from(NAME, 1000, (3, 8, 8), arguments)
    assert fresh == ()
    assert torch.equal(whole.fc.weight, given.fc.weight)
    (tmp_path / "w.safetensors").unlink()
    with pytest.raises(RuleError, match="pretrained weights must be there and fit: got test_resnet:"):
        begin(arguments=arguments)


def test_torchvisions_networks_and_weights(tmp_path, monkeypatch):
    """The weights come from torch's folder of downloads, where they are."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    name = "torchvision/squeezenet1_1"
    given = torchvision.models.squeezenet1_1()
    weights = torchvision.models.SqueezeNet1_1_Weights.DEFAULT
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(given.state_dict(), folder / weights.url.rpartition("/")[2])
    model, fresh = create_from(name, 10, (3, 32, 32), {"pretrained": True})
    assert set(fresh) == {"classifier.1.weight", "classifier.1.bias"}
    assert torch.equal(model.state_dict()["features.0.weight"], given.features[0].weight)
    assert create(name, 10, (3, 32, 32))(torch.rand(1, 3, 64, 64)).shape == (1, 10)
    with pytest.raises(RuleError, match="torchvision must have the network: got 'resnet'; try torchvision/resne"):
        create("torchvision/resnet", 10, (3, 32, 32))
    with pytest.raises(RuleError, match="networks of torchvision read three channels: got 1"):
        create(name, 10, IMAGE)


@pytest.mark.parametrize("arguments", [{"act_layer": "square"}, {"colour": 1}])
def test_arguments_that_a_network_of_timm_does_not_take(arguments):
    with pytest.raises(RuleError, match=rf"model.arguments must be the network's own: got {NAME}: (Key|Type)Error:"):
        create(NAME, 10, IMAGE, arguments)


@pytest.mark.slow
def test_a_pretrained_network_becomes_polynomial_with_itself_as_teacher(tmp_path):
    """Dense from a file of other classes, then the same weights with AESPA, taught by the dense network."""
    path = written(tmp_path / "w.pt", network(7).state_dict())
    data = DATA.part(640)
    settings = {"epochs": 4, "batch_size": 32, "learning_rate": 3e-3, "clip_gradient": 1.0, "label_smoothing": 0.0}
    recipe = RecipeConfig(init=path, **settings)
    dense = stages.begin(recipe, QuantConfig(), ModelConfig(NAME), data)
    fit(dense.model, data, recipe, 0)
    write_checkpoint(tmp_path / "train" / stages.CHECKPOINT, checkpoint_of(dense, "train"))
    settings = {"stage": "replace", "init": str(tmp_path / "train"), "teacher": str(tmp_path / "train")}
    recipe = RecipeConfig(epochs=3, batch_size=32, clip_gradient=1.0, distillation=0.5, **settings)
    # pretrained=true may stay on the command line: the weights are those of the stage before
    wanted = ModelConfig(NAME, {"activation": "aespa", "pretrained": True})
    start = stages.begin(recipe, QuantConfig(), wanted, data)
    assert start.arguments == {"activation": "aespa"}
    assert torch.equal(start.model.state_dict()["conv1.0.weight"], dense.model.state_dict()["conv1.0.weight"])
    assert any(isinstance(module, Aespa) for module in start.model.modules())
    before = accuracy(start.model, data)
    fit(start.model, data, recipe, 0, stages.load_network(recipe.teacher, data))
    assert accuracy(start.model, data) > max(before, 50)
    write_checkpoint(tmp_path / "replace" / stages.CHECKPOINT, checkpoint_of(start, "replace"))
    again = stages.load_network(str(tmp_path / "replace"), data)
    assert torch.equal(again(data.real(data.test_images[:4])), start.model(data.real(data.test_images[:4])))


def test_frozen_norms_stay_frozen_in_later_stages(tmp_path):
    """Those of a pretrained network that was trained on other images; of a circulant network, too."""
    built = begin(written(tmp_path / "w.pt", network(10).state_dict()))
    assert not are_norms_frozen(built.model)
    freeze_norms_(built.model.eval())
    write_checkpoint(tmp_path / stages.CHECKPOINT, checkpoint_of(built, "train"))
    recipe = RecipeConfig(stage="finetune", init=str(tmp_path), uniform=4, epochs=1)
    again = stages.begin(recipe, QuantConfig(), ModelConfig(NAME), DATA)
    assert are_norms_frozen(again.model)
    assert 4 in again.block_sizes.values()
    before = copy.deepcopy(dict(again.model.named_buffers()))
    fit(again.model, DATA.limited(64), recipe, 0)
    assert all(torch.equal(before[name], value) for name, value in again.model.named_buffers())
    assert are_norms_frozen(again.model)
