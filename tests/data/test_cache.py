"""The cache of decoded images: used when it is good, made again when it is not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from privcirnet.data import Files, cache, load, loading
from privcirnet.data.images import decode
from privcirnet.errors import RuleError
from tests.data import samples

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, pathlib
import numpy as np
from privcirnet.data.cache import mapped
folder = pathlib.Path(sys.argv[1])
for i in range(60):
    value = i % 2
    def decode(allocate):
        allocate("train_images", (50, 3, 8, 8), np.uint8)[...] = value
        allocate("train_labels", (50,), np.int64)[...] = value
        return ("a", "b")
    arrays = mapped(folder, {"value": value}, decode).arrays
    assert all((array == value).all() for array in arrays.values())
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

    def folder(self):
        (folder,) = self.cache.iterdir()
        return folder


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
    assert sorted(p.name for p in setting.folder().iterdir()) == [
        "facts.json",
        *(f"{part}_{kind}.npy" for part in ("test", "train") for kind in ("images", "labels")),
    ]


def test_what_is_written_to_loaded_images_stays_in_the_process(setting):
    for _ in range(2):
        data = setting.load()
        assert np.array_equal(data.train_images.numpy(), setting.expected["train"])
        data.train_images.zero_()


def test_a_changed_source_is_decoded_again_in_the_same_place(setting):
    setting.load()
    samples.write_image(setting.source / "train" / "cat" / "0.png", np.full((3, 8, 8), 7, np.uint8))
    data = setting.load()
    assert setting.decoded == 2
    assert (data.train_images[9] == 7).all()
    os.utime(setting.source / "test" / "cat" / "0.png", ns=(1, 2**62))
    setting.load()
    assert setting.decoded == 3
    (setting.source / "train" / "cat" / "1.png").unlink()
    assert len(setting.load().train_images) == 29
    assert setting.folder()


def moved(train):
    (train / "cat" / "0.png").rename(train / "dog" / "9.png")


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


@pytest.mark.parametrize("change", [moved, swapped, renamed, replaced, replaced_by_an_older_one])
def test_what_is_loaded_is_what_is_there(setting, change):
    """Count, bytes and the newest of all times are what they were; labels or pixels are others."""
    for path in [*setting.source.rglob("*.png")]:
        Image.open(path).save(path, "bmp")  # whose files are all of one size
    setting.load()
    change(setting.source / "train")
    assert same(setting.load(), load("imagefolder", files=Files(str(setting.source), cache="")))
    assert setting.decoded == 3


def test_a_changed_archive_is_decoded_again(setting, tmp_path):
    archive = samples.pack(setting.source, tmp_path / "x.tar")
    setting.load(archive)
    setting.load(archive)
    assert setting.decoded == 1
    os.utime(archive, ns=(1, 1))
    setting.load(archive)
    assert setting.decoded == 2


def test_each_size_and_source_has_its_own_folder(setting, tmp_path):
    shutil.copytree(setting.source, tmp_path / "copy")
    setting.load()
    assert setting.load(size=4).train_images.shape == (30, 3, 4, 4)
    assert setting.load(tmp_path / "copy").train_images.shape == (30, 3, 8, 8)
    assert setting.decoded == len(list(setting.cache.iterdir())) == 3


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def change(key, value):
    def apply(path):
        held = json.loads(path.read_text())
        held["facts"][key] = value
        path.write_text(json.dumps(held))

    return apply


@pytest.mark.parametrize(
    ("file", "spoil"),
    [
        ("train_images.npy", cut),
        ("train_images.npy", Path.unlink),
        ("train_images.npy", lambda p: p.write_bytes(b"")),
        ("train_images.npy", lambda p: np.save(p, np.zeros((30, 3, 8, 8), np.int8))),
        ("train_images.npy", lambda p: np.save(p, np.zeros((29, 3, 8, 8), np.uint8))),
        ("test_labels.npy", lambda p: np.save(p, np.full(20, 10))),
        ("test_labels.npy", lambda p: np.save(p, np.array([{}] * 20), allow_pickle=True)),
        ("facts.json", cut),
        ("facts.json", Path.unlink),
        ("facts.json", lambda p: p.write_text("[]")),
        ("facts.json", change("classes", list("abcdefghij"))),
        ("facts.json", change("version", 0)),
    ],
)
def test_a_broken_cache_is_made_again(setting, file, spoil):
    first = setting.load()
    images = first.train_images.clone()
    spoil(setting.folder() / file)
    second = setting.load()
    assert setting.decoded == 2
    assert torch.equal(second.train_images, images)
    assert second.classes == samples.CIFAR10
    assert same(second, setting.load())
    assert setting.decoded == 2
    assert setting.folder()


def test_another_version_is_made_again(setting, monkeypatch):
    setting.load()
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    setting.load()
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
    (folder,) = (tmp_path / "cache").iterdir()
    assert cache.read(folder, {"value": 1}).classes == ("a", "b")


def test_a_folder_replaced_while_it_is_read_is_not_mixed(tmp_path, monkeypatch):
    def decode(value):
        def fill(allocate):
            for name in ("train_images", "test_images"):
                allocate(name, (2, 3, 4, 4), np.uint8)[...] = value
            return ("a", "b")

        return fill

    folder, load, opened = tmp_path / "x", np.load, []

    def load_and_be_overtaken(*args, **options):
        opened.append(load(*args, **options))
        if len(opened) == 1:
            cache.mapped(folder, {"value": 1}, decode(1))
            cache.mapped(folder, {"value": 0}, decode(0))
        return opened[-1]

    cache.mapped(folder, {"value": 0}, decode(0))
    monkeypatch.setattr(np, "load", load_and_be_overtaken)
    with pytest.raises(ValueError, match="another process replaced it"):
        cache.read(folder, {"value": 0})
    assert (cache.mapped(folder, {"value": 0}, decode(0)).arrays["test_images"] == 0).all()


def test_the_default_place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    samples.write_idx(tmp_path / "raw")
    load("mnist", files=Files(str(tmp_path)))
    assert [path.name[:6] for path in (tmp_path / "xdg" / "privcirnet").iterdir()] == ["mnist-"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.default_folder() == Path.home() / ".cache" / "privcirnet"


def test_places_that_cannot_be_written(setting, monkeypatch):
    setting.cache.write_text("a file")
    with pytest.raises(RuleError, match=r"the cache must be a folder to write to: got .*cache \(.*\); set data.cache"):
        setting.load()
    setting.cache.unlink()
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
    with pytest.raises(RuleError, match=r"must fit on its disk: got 5,760 bytes for 0 free in .*; set data.cache=DIR"):
        setting.load()
