"""MNIST's own files."""

import gzip
import shutil

import pytest
import torch
from torchvision.datasets import MNIST

from privcirnet.errors import RuleError
from tests.data import samples
from tests.data.loaded import check, loaded


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
        (lambda p: p.unlink(), "MNIST must have its four files: got no t10k-labels-idx1-ubyte"),
        (lambda p: p.write_bytes(p.read_bytes()[:-9]), "an idx file must be whole: got t10k-labels-idx1-ubyte.gz"),
        (lambda p: p.write_bytes(b""), "an idx file must be whole"),
        (lambda p: shutil.copy(p.with_name("train-labels-idx1-ubyte.gz"), p), "a label from 0 to 9 for every image: "),
        (lambda p: p.write_bytes(gzip.compress(gzip.decompress(p.read_bytes())[:-1] + b"\n")), "a label from 0 to 9"),
    ],
)
def test_broken_mnist(tmp_path, spoil, match):
    samples.write_idx(tmp_path / "raw")
    spoil(tmp_path / "raw" / "t10k-labels-idx1-ubyte.gz")
    with pytest.raises(RuleError, match=match):
        loaded("mnist", tmp_path)
