import io

import pytest
import timm
import torch
from PIL import Image
from torch import nn

import privcirnet as pc
from privcirnet.artifact.records import Checkpoint, read_checkpoint, write_checkpoint
from privcirnet.errors import RuleError
from privcirnet.models.registry import ENTRY_POINTS, register
from privcirnet.train.network import create
from tests.test_checkpoints import FOLDER

IMAGES, LARGER = (torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(0)) for side in (8, 32))


def small() -> nn.Module:
    torch.manual_seed(0)
    return create("digits_resnet", 2, (3, 8, 8)).eval()


def same(model: nn.Module, other: nn.Module, images: torch.Tensor = IMAGES) -> bool:
    return torch.equal(model.eval()(images), other(images))


def test_a_dense_network_and_a_circulant_one(tmp_path):
    """One that was read is written without further words."""
    pc.save(small(), tmp_path / "dense", name="digits_resnet", images=IMAGES, classes=["cat", "dog"])
    model = pc.network(tmp_path / "dense")
    assert model.classes == ("cat", "dog")
    assert same(small(), model)
    pc.circulant_(model, dict.fromkeys(list(pc.candidates(model, 4))[2:4], 4))
    pc.save(model, tmp_path / "circulant.safetensors")
    again = pc.network(tmp_path / "circulant.safetensors")
    assert same(model, again)
    assert read_checkpoint(tmp_path / "circulant.safetensors").block_sizes


@pytest.mark.parametrize("activation", ["aespa", pytest.param("square", marks=pytest.mark.slow), "own"])
def test_a_network_of_timm_after_surgery(tmp_path, activation):
    model = timm.create_model("resnet10t", num_classes=2).eval()
    before = model(LARGER)
    pc.polynomial_(model, LARGER, activation=activation)
    pc.save(model, tmp_path / "a.safetensors", name="resnet10t", images=LARGER)
    again = pc.network(tmp_path / "a.safetensors")
    assert same(model, again, LARGER)
    assert torch.allclose(again(LARGER), before, atol=1e-4) == (activation == "own")
    quantized = pc.quantize(again, LARGER)
    pc.save(quantized, tmp_path / "b.safetensors")
    assert same(quantized, pc.network(tmp_path / "b.safetensors"), LARGER)
    assert read_checkpoint(tmp_path / "b.safetensors").stage == "qat"


def test_timm_says_the_name(tmp_path):
    pc.save(timm.create_model("resnet10t", num_classes=2), tmp_path, images=LARGER)
    assert read_checkpoint(tmp_path / "checkpoint.safetensors").model == "resnet10t"


@pytest.mark.parametrize(
    ("change", "given", "message"),
    [
        (None, {"images": IMAGES}, "must say what it is and reads: got no name of its architecture"),
        (None, {"name": "digits_resnet"}, "must say what it is and reads: got no images"),
        (None, {"name": "resnet10t", "images": IMAGES}, "must be the network again when it is read: got resnet10t"),
        (pc.fuse, {"name": "digits_resnet", "images": IMAGES}, "must be the network again .* quantized"),
    ],
)
def test_what_cannot_be_read_again_is_not_written(tmp_path, change, given, message):
    model = change(small()) if change else small()
    with pytest.raises(RuleError, match=message):
        pc.save(model, tmp_path / "a.safetensors", **given)
    assert not list(tmp_path.iterdir())


def test_a_network_that_differs_on_its_own_images_only_is_not_written(tmp_path):
    """Random images of little contrast do not reach the six of a ReLU6."""
    images = 20 * torch.randn(4, 3, 32, 32)
    model = timm.create_model("resnet10t", num_classes=2, act_layer=torch.nn.ReLU6)
    with pytest.raises(RuleError, match="must be the network again when it is read: got other logits of resnet10t"):
        pc.save(model, tmp_path / "a.safetensors", images=images)


@pytest.mark.parametrize("activation", ["identity", {"act1": "aespa"}])
def test_activations_that_modules_do_not_tell_are_given(tmp_path, activation):
    model = timm.create_model("resnet10t", num_classes=2).eval()
    pc.polynomial_(model, LARGER, activation)
    assert model.pretrained_cfg["architecture"] == "resnet10t"
    given = {"activation": activation} if isinstance(activation, str) else {"activations": activation}
    pc.save(model, tmp_path, images=LARGER, arguments=given)
    assert same(model, pc.network(tmp_path), LARGER)


def test_a_network_made_for_another_size_wants_images(tmp_path):
    pc.save(timm.create_model("resnet10t", num_classes=2), tmp_path, images=LARGER)
    model = pc.network(tmp_path)
    pc.polynomial_(model, torch.rand(2, 3, 64, 64))
    with pytest.raises(RuleError, match="must say what it is and reads: got no images"):
        pc.save(model, tmp_path)


def test_a_committed_network_by_name():
    model = pc.network("tutorial_mnist")
    picture = io.BytesIO()
    Image.new("L", (40, 40), 255).save(picture, "PNG")
    image = model.preprocess(picture.getvalue())
    assert image.shape == (1, 1, 28, 28)
    assert not image.any(), "inverted: MNIST's strokes are light"
    assert model.classes == tuple("0123456789")
    assert model(image).shape == (1, 10)
    assert all(read_checkpoint(file).inputs for file in FOLDER.rglob("*.safetensors"))


def test_what_is_not_there(tmp_path):
    with pytest.raises(RuleError, match=r"must be one that is there: got 'bert'; .* or one of circulant/mobilenet"):
        pc.network("bert")
    with pytest.raises(
        RuleError, match=r"must be one that is there: got 'mobilnetv2_cifar10'; .*, or one of mobilenetv2_c"
    ):
        pc.network("mobilnetv2_cifar10")
    with pytest.raises(RuleError, match="must be one that is there: got ''"):
        pc.network("")
    with pytest.raises(RuleError, match=r"a picture must be a file, or the bytes of one: got 'none\.png'"):
        pc.network("tutorial_mnist").preprocess("none.png")
    with pytest.raises(RuleError, match="a checkpoint must exist"):
        pc.network(tmp_path)
    write_checkpoint(tmp_path / "checkpoint.safetensors", Checkpoint({}, "digits_resnet", "train", {}))
    with pytest.raises(RuleError, match=r"must say what its network reads: .* train.py evaluate="):
        pc.network(tmp_path)


def test_a_network_of_the_hub(tmp_path, monkeypatch):
    """From a cache that stands in for the hub: nothing is fetched."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    cached, commit = tmp_path / "models--me--mine", "0" * 40
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    about = {"top-1": "50 %", "licence": "cc-by-4.0", "licence of the data": "CC BY 4.0"}
    pc.save(small(), cached / "snapshots" / commit, name="digits_resnet", images=IMAGES, about=about)
    assert same(small(), pc.network("hf-hub:me/mine"))
    card = (cached / "snapshots" / commit / "README.md").read_text()
    assert "license: cc-by-4.0\n" in card
    assert "| top-1 | 50 % |" in card
    assert "| encrypted image, seconds | not stated |" in card
    for missing in ("me/other", "not a name/at all"):
        with pytest.raises(RuleError, match=r"a network of the hub must be there: got .*; connect to it once"):
            pc.network(f"hf-hub:{missing}")


class Small(nn.Sequential):
    """A network of a user's own on signals (N, C, L), or on a table's rows."""

    def __init__(self, num_classes: int = 2, in_chans: int = 3, signals: bool = True) -> None:
        first = (nn.Conv1d(in_chans, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        table = nn.Linear(in_chans, 8), nn.BatchNorm1d(8), nn.ReLU()
        super().__init__(*(first if signals else table), nn.Linear(8, num_classes))


@pytest.mark.parametrize("signals", [True, False], ids=["signals", "a table"])
def test_networks_on_signals_and_tables_come_back(tmp_path, monkeypatch, signals):
    monkeypatch.setitem(ENTRY_POINTS, "small", None)
    register("small", Small)
    torch.manual_seed(0)
    images = torch.randn(8, 3, 20) if signals else torch.randn(8, 20)
    model = Small(4, images.shape[1], signals)
    model.train()(images)
    arguments = {"signals": signals}
    pc.save(model.eval(), tmp_path / "a", name="small", images=images, arguments=arguments, classes="abcd")
    again = pc.network(tmp_path / "a")
    assert (again.classes, type(again)) == (tuple("abcd"), Small)
    assert same(model, again, images)
    pc.circulant_(again, {"5" if signals else "3": 4})
    pc.save(again, tmp_path / "b")
    blocks = pc.network(tmp_path / "b")
    assert same(again, blocks, images)
    quantized = pc.quantize(blocks, images)
    pc.save(quantized, tmp_path / "c", name="small", images=images, arguments=arguments)
    assert same(quantized, pc.network(tmp_path / "c"), images)
    with pytest.raises(
        RuleError, match=r"a picture can become 1 or 3 square channels of pixels .*: got (3 x 20|20) in"
    ):
        again.preprocess(picture())


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("L", (8, 8)).save(content, "PNG")
    return content.getvalue()
