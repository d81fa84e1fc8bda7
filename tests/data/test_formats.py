"""Every format that a data set may come in: what was written is what is loaded, in the order of classes and names."""

import io
import shutil
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import CIFAR10, CIFAR100, MNIST, ImageFolder

from privcirnet.config import DataConfig
from privcirnet.config.data import DATA_SETS
from privcirnet.data import Files, files, images, load, load_for
from privcirnet.data.loading import NAMES
from privcirnet.errors import RuleError
from tests.data import samples


def loaded(name, root, **settings):
    """Without a cache."""
    return load(name, files=Files(str(root), cache="", **settings))


def check(data, expected, classes=None):
    """Images of both parts, and labels by class if there are as many of each."""
    for part in ("train", "test"):
        pixels, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        assert pixels.dtype == torch.uint8
        assert labels.dtype == torch.int64
        assert np.array_equal(pixels.numpy(), expected[part])
        if classes:
            assert labels.tolist() == sorted(list(range(len(classes))) * (len(labels) // len(classes)))
    assert classes is None or data.classes == tuple(classes)
    assert (data.log_step, data.levels) == (-8, 255)


def test_the_names_are_the_settings():
    assert NAMES == DATA_SETS


@pytest.mark.parametrize("place", [".", "cifar10", "CIFAR-10-images"])
@pytest.mark.parametrize("held_out", ["test", "val"])
def test_image_folders(tmp_path, place, held_out):
    expected = samples.write_folders(tmp_path / place, held_out=held_out)
    (tmp_path / place / "train" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / place / "train" / ".hidden").mkdir()
    check(loaded("cifar10", tmp_path), expected, samples.CIFAR10)
    check(loaded("imagefolder", tmp_path), expected, samples.CIFAR10)


@pytest.mark.parametrize("inside", ["", "cifar10", "./cifar10"])
@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tgz"])
def test_archives(tmp_path, inside, kind):
    expected = samples.write_folders(tmp_path / "unpacked")
    archive = samples.pack(tmp_path / "unpacked", tmp_path / f"cifar10-jpeg.{kind}", inside)
    shutil.rmtree(tmp_path / "unpacked")
    (tmp_path / "cifar100-jpeg.tar").write_bytes(b"another data set")
    for root in (archive, tmp_path):
        check(loaded("cifar10", root), expected, samples.CIFAR10)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([archive.name, "cifar100-jpeg.tar"])


def test_a_class_may_be_called_like_a_part(tmp_path):
    classes = ("test", "train", *(f"x{i:02}" for i in range(98)))
    expected = samples.write_folders(tmp_path / "cifar100", classes, each=(1, 1))
    check(loaded("cifar100", tmp_path), expected, classes)
    check(loaded("cifar100", samples.pack(tmp_path / "cifar100", tmp_path / "x.tar", "cifar100")), expected, classes)


def test_order_is_that_of_torchvision(tmp_path):
    samples.write_folders(tmp_path, ("b", "B", "a 1", "a"), each=(12, 1))
    data, reference = loaded("imagefolder", tmp_path), ImageFolder(str(tmp_path / "train"))
    assert data.classes == tuple(reference.classes)
    assert data.train_labels.tolist() == reference.targets
    assert np.array_equal(data.train_images.numpy(), np.stack([np.asarray(x).transpose(2, 0, 1) for x, _ in reference]))


@pytest.mark.parametrize(("name", "kind"), [("cifar10", CIFAR10), ("cifar100", CIFAR100)])
@pytest.mark.parametrize("place", [".", "cifar"])
def test_pickled_batches(tmp_path, monkeypatch, name, kind, place):
    place = place if place == "." else name
    expected, labels, classes = samples.write_batches(tmp_path / place, kind, monkeypatch)
    for root in (tmp_path, tmp_path / place / kind.base_folder):
        data = loaded(name, root)
        check(data, expected)
        assert (data.train_labels.tolist(), data.test_labels.tolist()) == (labels["train"], labels["test"])
        assert data.classes == classes
    with pytest.raises(RuleError, match=r"data.size is for image files: got 16 with .*; use data.size=0, or image"):
        loaded(name, tmp_path, size=16)
    (tmp_path / place / kind.base_folder / kind.test_list[0][0]).write_bytes(b"cos\nsystem\n")
    with pytest.raises(RuleError, match=r"CIFAR's batches must be the published files: got .*; unpack the official"):
        loaded(name, tmp_path)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("place", [".", "raw", "MNIST/raw", "mnist-files"])
def test_mnist(tmp_path, compressed, place):
    arrays = samples.write_idx(tmp_path / "data" / place, compressed)
    archive = samples.pack(tmp_path / "data", tmp_path / "mnist.tar.gz")
    for root in (tmp_path / "data", archive, tmp_path):
        data = loaded("mnist", root)
        check(data, {p: arrays[f"{f}-images-idx3-ubyte"][:, None] for p, f in (("train", "train"), ("test", "t10k"))})
        assert data.train_labels.tolist() == arrays["train-labels-idx1-ubyte"].tolist()
        assert data.test_labels.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()
    assert data.classes == tuple("0123456789")
    if place == "MNIST/raw" and not compressed:
        assert torch.equal(MNIST(str(tmp_path / "data"), download=False).data, data.train_images[:, 0])


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda p: p.unlink(), "MNIST must have its four files: got no t10k-labels-idx1-ubyte or .*; put it there"),
        (lambda p: p.write_bytes(p.read_bytes()[:-9]), "an idx file must be whole: got t10k-labels-idx1-ubyte.gz"),
        (lambda p: p.write_bytes(b""), "an idx file must be whole"),
        (lambda p: shutil.copy(p.with_name("train-labels-idx1-ubyte.gz"), p), "a label from 0 to 9 for every image: "),
    ],
)
def test_broken_mnist(tmp_path, spoil, match):
    samples.write_idx(tmp_path / "raw")
    spoil(tmp_path / "raw" / "t10k-labels-idx1-ubyte.gz")
    with pytest.raises(RuleError, match=match):
        loaded("mnist", tmp_path)


def test_tiny_imagenet(tmp_path):
    expected, labels = samples.write_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    archive = samples.pack(tmp_path / "tiny-imagenet-200", tmp_path / "tiny.tar.gz", "tiny-imagenet-200")
    for root in (tmp_path, tmp_path / "tiny-imagenet-200", archive):
        data = loaded("tiny_imagenet", root)
        check(data, expected)
        assert (data.train_labels.tolist(), data.test_labels.tolist()) == (labels["train"], labels["test"])
        assert data.classes == ("n01", "n02", "n03")
    assert loaded("tiny_imagenet", archive, size=32).test_images.shape == (4, 3, 32, 32)


@pytest.mark.parametrize("line", ["val_9.png\tn01\t0", "val_0.png\tn77\t0", "val_0.png"])
def test_annotations_that_do_not_fit(tmp_path, line):
    samples.write_tiny_imagenet(tmp_path)
    (tmp_path / "val" / "val_annotations.txt").write_text(line)
    with pytest.raises(RuleError, match=r"must name an image and its class: got \['val_"):
        loaded("tiny_imagenet", tmp_path)
    (tmp_path / "val" / "val_annotations.txt").write_text("\n")
    with pytest.raises(RuleError, match=r"val_annotations.txt must name images: got none"):
        loaded("tiny_imagenet", tmp_path)


def test_images_are_resized_and_cropped(tmp_path):
    """A bright column in the middle of a wide image stays in the middle; what is left and right is cut."""
    wide = np.zeros((3, 20, 60), np.uint8)
    wide[:, :, 29:31], wide[0, :, :18], wide[0, :, -18:] = 255, 200, 200
    for part in ("train", "val"):
        samples.write_image(tmp_path / part / "a" / "wide.png", wide)
        samples.write_image(tmp_path / part / "a" / "tall.PNG", wide.transpose(0, 2, 1))
        samples.write_image(tmp_path / part / "a" / "z.png", samples.pixels("square", shape=(3, 10, 10)))
    data = loaded("imagefolder", tmp_path, size=10)
    tall, across, square = data.train_images
    assert data.train_images.shape == (3, 3, 10, 10)
    assert torch.equal(tall.transpose(1, 2), across)
    assert across[0].max(0).values.tolist() == across[0].min(0).values.tolist()
    assert across[0, 0].argmax().item() in (4, 5)
    assert torch.equal(across[0, 0], across[0, 0].flip(0))
    assert across[0, 0, 0] == 0
    assert np.array_equal(square.numpy(), samples.pixels("square", shape=(3, 10, 10)))
    with pytest.raises(RuleError, match=r"images must have one size: got .* x .* before; set data.size to"):
        loaded("imagefolder", tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", None])
@pytest.mark.parametrize("packed", [True, False])
def test_a_broken_image_is_named(tmp_path, content, packed):
    samples.write_folders(tmp_path / "x", ("a", "b"), shape=(3, 32, 32))
    broken = tmp_path / "x" / "train" / "b" / "1.png"
    broken.write_bytes(broken.read_bytes()[:-600] if content is None else content)
    root = samples.pack(tmp_path / "x", tmp_path / "x.tar") if packed else tmp_path / "x"
    with pytest.raises(
        RuleError, match=r"an image file must be whole: got train/b/1.png \([^\n]+\); replace or remove"
    ):
        loaded("imagefolder", root)


def test_an_absurdly_large_image_is_refused(monkeypatch):
    monkeypatch.setattr(images, "MOST_PIXELS", 99)
    content = io.BytesIO()
    Image.new("RGB", (10, 10)).save(content, "png")
    with pytest.raises(RuleError, match=r"must be whole: got big.png \(10 x 10 pixels\)"):
        images.decode_image(content.getvalue(), "big.png")


def test_unsuitable_folders(tmp_path):
    samples.write_folders(tmp_path, ("a", "b"))
    with pytest.raises(RuleError, match=r"cifar10 must have 10 classes: got 2 in .*; set data.root=DIR"):
        loaded("cifar10", tmp_path)
    (tmp_path / "train" / "c").mkdir()
    with pytest.raises(RuleError, match=r"same classes: got 3 in train/, 2 in test/ of .*; only one has c; add or"):
        loaded("imagefolder", tmp_path)
    (tmp_path / "test" / "c").mkdir()
    with pytest.raises(
        RuleError, match=r"every class must have images: got none in a folder c of .*; remove the folder"
    ):
        loaded("imagefolder", tmp_path)
    shutil.rmtree(tmp_path / "train")
    (tmp_path / "train").mkdir()
    with pytest.raises(RuleError, match=r"must have train/ and test/ or val/, .*: got test, train in .*; arrange"):
        loaded("imagefolder", tmp_path)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])
def test_missing_files_are_named(tmp_path, name):
    begin = "" if name == "imagefolder" else name
    with pytest.raises(RuleError, match=r"got nothing in /.* \(looked for .*\); put .* there, or set data.root=DIR"):
        loaded(name, tmp_path)
    with pytest.raises(RuleError, match=r"the images must be there: got no file or folder /.*/nothing; put"):
        loaded(name, tmp_path / "nothing")
    for kind in ("a.tar", "b.tar.gz"):
        (tmp_path / f"{begin}-{kind}").write_bytes(b"no archive")
    with pytest.raises(RuleError, match=rf"one such data set: got {begin}-a.tar, {begin}-b.tar.gz in .*; name one"):
        loaded(name, tmp_path)
    with pytest.raises(RuleError, match=r"an archive must be readable: got .*-a.tar \(.*\); give a .tar"):
        loaded(name, tmp_path / f"{begin}-a.tar")


def test_a_truncated_archive_is_refused(tmp_path):
    samples.write_folders(tmp_path / "x", shape=(3, 32, 32))
    archive = samples.pack(tmp_path / "x", tmp_path / "x.tar.gz")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(RuleError, match=r"an archive must be readable"):
        loaded("imagefolder", archive)


@pytest.mark.parametrize(("limit", "most"), [("LARGEST_FILE", 10), ("LARGEST_COUNT", 3)])
def test_absurd_archives_are_refused(tmp_path, monkeypatch, limit, most):
    samples.write_folders(tmp_path / "x")
    archive = samples.pack(tmp_path / "x", tmp_path / "x.tar")
    monkeypatch.setattr(files, limit, most)
    with pytest.raises(
        RuleError, match=r"a sensible size: got .*x.tar: [0-9,]+ bytes up to file .*; unpack it and give"
    ):
        loaded("imagefolder", archive)


def test_a_small_archive_of_very_much_is_refused_before_it_is_read(tmp_path):
    huge = tmp_path / "y.tar"
    member = tarfile.TarInfo("train/a/x.png")
    member.size = 2**40
    huge.write_bytes(member.tobuf())
    with pytest.raises(RuleError, match=r"a sensible size: got .*1,099,511,627,776 bytes up to file 1"):
        loaded("imagefolder", huge)


def test_size_is_for_image_files(tmp_path):
    for name in ("digits", "mnist"):
        with pytest.raises(RuleError, match=f"data.size is for image files: got 8 with data={name}; use data.size=0"):
            loaded(name, tmp_path, size=8)


def test_progress_and_settings(tmp_path):
    samples.write_folders(tmp_path, each=(15, 5))
    calls = []
    data = load_for(DataConfig("imagefolder", str(tmp_path), 4, ""), lambda done, total: calls.append((done, total)))
    assert calls == [(64, 200), (128, 200), (192, 200), (200, 200)]
    assert data.train_images.shape == (150, 3, 4, 4)
    assert torch.equal(data.real(data.train_images[:1]) * 256, data.train_images[:1].float())
