"""The cache of decoded images: used when it is good, made again when it is not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from privcirnet.data import Files, cache, load, loading
from privcirnet.data.images import decode
from privcirnet.errors import RuleError
from tests.data import samples

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, pathlib
from privcirnet.data.cache import mapped
path = pathlib.Path(sys.argv[1])
for i in range(60):
    value = i % 2
    def decode(allocate):
        for array in allocate(("a", "b"), (50, 9), (3, 8, 8)).values():
            array[...] = value
    tensors = mapped(path, {"value": value}, decode).tensors
    assert len(tensors) == 4 and all((tensor == value).all() for tensor in tensors.values())
print("done")
"""


class Setting:
    """A source, a cache, and how often the source was decoded."""

    def __init__(self, folder, monkeypatch):
        self.source, self.cache, self.decoded = folder / "source", folder / "cache", 0
        self.expected = samples.write_folders(self.source)
        monkeypatch.setattr(loading.images, "decode", self.decode)

    def decode(self, *arguments):
        self.decoded += 1
        decode(*arguments)

    def load(self, root=None, size=0):
        return load("imagefolder", files=Files(str(root or self.source), size, str(self.cache)))

    def file(self):
        (file,) = self.cache.iterdir()
        return file


@pytest.fixture
def setting(tmp_path, monkeypatch):
    return Setting(tmp_path, monkeypatch)


def same(one, other):
    tensors = ("train_images", "train_labels", "test_images", "test_labels")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in tensors) and (
        one.classes == other.classes
    )


def test_the_second_load_does_not_decode(setting):
    first, second = setting.load(), setting.load()
    assert setting.decoded == 1
    assert np.array_equal(second.train_images.numpy(), setting.expected["train"])
    assert same(first, second)
    assert same(second, load("imagefolder", files=Files(str(setting.source), cache="")))
    assert setting.file().stat().st_mode & 0o777 == 0o644


def test_what_is_written_to_loaded_images_stays_in_the_process(setting):
    for _ in range(2):
        data = setting.load()
        assert np.array_equal(data.train_images.numpy(), setting.expected["train"])
        data.train_images.zero_()


def moved(train):
    (train / "cat" / "0.png").rename(train / "dog" / "9.png")


def removed(train):
    (train / "cat" / "1.png").unlink()


def swapped(train):
    for there, place in (("cat", "dog"), ("dog", "cat")):
        (train / there / "0.png").rename(train / place / "new.png")
    for name in ("cat", "dog"):
        (train / name / "new.png").rename(train / name / "0.png")


def renamed(train):
    for part in (train, train.parent / "test"):
        for old, new in (("cat", "x"), ("dog", "cat"), ("x", "dog")):
            (part / old).rename(part / new)


def replaced(train, times=None):
    path = train / "cat" / "0.png"
    before = path.stat()
    Image.fromarray(samples.pixels("another").transpose(1, 2, 0)).save(path, "bmp")
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=times or (before.st_atime_ns, before.st_mtime_ns))


def replaced_by_an_older_one(train):
    replaced(train, (1, 1))


@pytest.mark.parametrize("change", [moved, removed, swapped, renamed, replaced, replaced_by_an_older_one])
def test_what_is_loaded_is_what_is_there(setting, change):
    """Count, bytes and the newest of all times are mostly what they were; labels or pixels are others."""
    for path in [*setting.source.rglob("*.png")]:
        Image.open(path).save(path, "bmp")  # whose files are all of one size
    setting.load()
    change(setting.source / "train")
    assert same(setting.load(), load("imagefolder", files=Files(str(setting.source), cache="")))
    assert setting.decoded == 3
    assert setting.file()


def test_a_changed_archive_is_decoded_again(setting, tmp_path):
    archive = samples.pack(setting.source, tmp_path / "x.tar")
    for _ in range(2):
        setting.load(archive)
    assert setting.decoded == 1
    os.utime(archive, ns=(1, 1))
    setting.load(archive)
    assert setting.decoded == 2


def test_each_size_and_source_has_its_own_file(setting, tmp_path):
    shutil.copytree(setting.source, tmp_path / "copy")
    setting.load()
    assert setting.load(size=4).train_images.shape == (30, 3, 4, 4)
    assert setting.load(tmp_path / "copy").train_images.shape == (30, 3, 8, 8)
    assert setting.decoded == len(list(setting.cache.iterdir())) == 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p.write_bytes(p.read_bytes()[:-100]),
        lambda p: p.write_bytes(p.read_bytes() + b"x"),
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(b"text" * 99),
        lambda p: save_file({"train_labels": torch.zeros(3)}, p),
        lambda p: p.unlink(),
    ],
)
def test_a_broken_cache_is_made_again(setting, spoil):
    first = setting.load()
    images = first.train_images.clone()
    spoil(setting.file())
    second = setting.load()
    assert setting.decoded == 2
    assert torch.equal(second.train_images, images)
    assert second.classes == samples.CIFAR10
    assert same(second, setting.load())
    assert setting.decoded == 2


def test_another_version_is_made_again(setting, monkeypatch):
    setting.load()
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    for _ in range(2):
        setting.load()
    assert setting.decoded == 2


def test_nothing_is_left_behind_when_decoding_fails(setting):
    (setting.source / "test" / "truck" / "0.png").write_bytes(b"broken")
    with pytest.raises(RuleError, match=r"must be whole: got test/truck/0.png"):
        setting.load()
    assert list(setting.cache.iterdir()) == []


@pytest.mark.slow
def test_two_processes_write_at_once(tmp_path):
    start = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "cache" / "x")]
    running = [subprocess.Popen(start, cwd=ROOT, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    for process in running:
        out, error = process.communicate(timeout=120)
        assert out == "done\n", error
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["x"]


def test_a_file_replaced_between_header_and_arrays_is_read_again(tmp_path, monkeypatch):
    path, left = tmp_path / "x", [1]

    def store(value):
        def decode(allocate):
            for array in allocate(("a", "b"), (50, 9), (3, 8, 8)).values():
                array[...] = value

        return cache.mapped(path, {"value": value}, decode).tensors

    class OpensTwice:
        """safetensors' reader with a writer that comes between its two opens."""

        def __init__(self, name, framework):
            header = safe_open(name, framework)
            if left:
                store(left.pop())
            self.metadata, arrays = header.metadata, safe_open(name, framework)
            self.keys, self.get_tensor = arrays.keys, arrays.get_tensor

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    store(0)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "safe_open", OpensTwice)
        tensors = store(0)
    assert not left
    assert all((tensor == 0).all() for tensor in tensors.values())


def test_what_was_mapped_stays_when_another_source_takes_its_place(setting):
    first = setting.load()
    before = first.train_images[9].clone()
    samples.write_image(setting.source / "train" / "cat" / "0.png", np.full((3, 8, 8), 7, np.uint8))
    assert (setting.load().train_images[9] == 7).all()
    assert torch.equal(first.train_images[9], before)


def test_the_default_place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    samples.write_idx(tmp_path / "raw")
    load("mnist", files=Files(str(tmp_path)))
    assert [path.name[:6] for path in (tmp_path / "xdg" / "privcirnet").iterdir()] == ["mnist-"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.default_folder() == Path.home() / ".cache" / "privcirnet"


def test_places_that_cannot_be_written(setting, monkeypatch):
    setting.cache.write_text("a file")
    with pytest.raises(RuleError, match=r"the cache must be a folder to write to: got .*cache: .*; set data.cache"):
        setting.load()
    setting.cache.unlink()
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
    with pytest.raises(RuleError, match=r"must fit on its disk: got 10,000 bytes for 0 free in .*; set data.cache"):
        setting.load()
