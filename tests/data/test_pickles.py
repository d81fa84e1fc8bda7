"""CIFAR's pickled batches."""

import pytest
from torchvision.datasets import CIFAR10, CIFAR100

from privcirnet.errors import RuleError
from tests.data import samples
from tests.data.loaded import check, loaded


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
