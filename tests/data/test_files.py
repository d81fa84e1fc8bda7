"""Folders and archives as trees of names, and archives that are refused."""

import shutil
import tarfile

import pytest

from privcirnet.data import files
from privcirnet.errors import RuleError
from tests.data import samples
from tests.data.loaded import check, loaded


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
