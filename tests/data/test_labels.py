"""Folders of classes and Tiny ImageNet's annotations as labelled files."""

import shutil

import numpy as np
import pytest
from torchvision.datasets import ImageFolder

from privcirnet.errors import RuleError
from tests.data import samples
from tests.data.loaded import check, loaded


@pytest.mark.parametrize("place", [".", "cifar10", "CIFAR-10-images"])
@pytest.mark.parametrize("held_out", ["test", "val"])
def test_image_folders(tmp_path, place, held_out):
    expected = samples.write_folders(tmp_path / place, held_out=held_out)
    (tmp_path / place / "train" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / place / "train" / ".hidden").mkdir()
    check(loaded("cifar10", tmp_path), expected, samples.CIFAR10)
    check(loaded("imagefolder", tmp_path), expected, samples.CIFAR10)


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


def test_tiny_imagenet(tmp_path):
    expected, labels = samples.write_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    archive = samples.pack(tmp_path / "tiny-imagenet-200", tmp_path / "tiny.tar.gz", "tiny-imagenet-200")
    for root in (tmp_path, tmp_path / "tiny-imagenet-200", archive):
        data = loaded("tiny_imagenet", root)
        check(data, expected)
        assert (data.train_labels.tolist(), data.test_labels.tolist()) == (labels["train"], labels["test"])
        assert data.classes == ("n01", "n02", "n03")
    assert loaded("tiny_imagenet", archive, size=32).test_images.shape == (4, 3, 32, 32)


@pytest.mark.parametrize("line", ["val_9.png\tn01\t0", "val_0.png\tn77\t0", "val_0.png", ""])
def test_annotations_that_do_not_fit(tmp_path, line):
    samples.write_tiny_imagenet(tmp_path)
    (tmp_path / "val" / "val_annotations.txt").write_text(f"{line}\n")
    with pytest.raises(RuleError, match=r"must name images and their classes: got ('val_|none)"):
        loaded("tiny_imagenet", tmp_path)


def test_unsuitable_folders(tmp_path):
    samples.write_folders(tmp_path, ("a", "b"))
    with pytest.raises(RuleError, match=r"cifar10 must have 10 classes: got 2 in"):
        loaded("cifar10", tmp_path)
    for part, match in (("train", "same classes: got 3 .* 2 .*; only one has c"), ("test", "images: got none .* c of")):
        (tmp_path / part / "c").mkdir()
        (tmp_path / part / "c" / "x.heic").write_bytes(b"no format that is read")
        with pytest.raises(RuleError, match=match):
            loaded("imagefolder", tmp_path)
    shutil.rmtree(tmp_path / "train")
    (tmp_path / "train").mkdir()
    with pytest.raises(RuleError, match=r"must have train/ and test/ or val/, .*: got test in"):
        loaded("imagefolder", tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_one_class_is_none_to_tell_from_another(tmp_path, packed):
    """A network has 100 % of it after any training."""
    samples.write_folders(tmp_path / "x", ["cat"])
    root = samples.pack(tmp_path / "x", tmp_path / "x.tar") if packed else tmp_path / "x"
    with pytest.raises(RuleError, match=r"two classes or more: got only cat in"):
        loaded("imagefolder", root)
