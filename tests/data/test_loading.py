"""Data sets by name."""

import pytest
import torch

from privcirnet.config import DataConfig
from privcirnet.config.data import DATA_SETS
from privcirnet.data import load_for
from privcirnet.data.loading import NAMES
from privcirnet.errors import RuleError
from tests.data import samples
from tests.data.loaded import loaded


def test_the_names_are_the_settings():
    assert NAMES == DATA_SETS


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


def test_size_is_for_image_files(tmp_path):
    for name in ("digits", "mnist"):
        with pytest.raises(RuleError, match=f"data.size is for image files: got 8 with data={name}; use data.size=0"):
            loaded(name, tmp_path, size=8)


def test_progress_and_settings(tmp_path):
    samples.write_folders(tmp_path, each=(30, 5))
    calls = []
    data = load_for(DataConfig("imagefolder", str(tmp_path), 4, ""), lambda done, total: calls.append((done, total)))
    assert calls == [(256, 350), (350, 350)]
    assert data.train_images.shape == (300, 3, 4, 4)
    assert torch.equal(data.real(data.train_images[:1]) * 256, data.train_images[:1].float())


def test_a_limit_takes_some_images_of_each_split():
    """The same ones every time, of several classes."""
    every, some = load_for(DataConfig()), load_for(DataConfig(limit=20))
    assert (len(some.train_labels), len(some.test_labels)) == (20, 20)
    assert torch.equal(some.train_images, every.sample(20)[0])
    assert torch.equal(some.test_images, every.held_out(20)[0])
    assert len(load_for(DataConfig(limit=10**6)).train_labels) == len(every.train_labels)
    with pytest.raises(RuleError, match=r"data\.limit must be at least 0: got -1"):
        DataConfig(limit=-1)
