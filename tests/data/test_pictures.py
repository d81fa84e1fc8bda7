"""Pictures of a folder or a store: which files are pictures, what cannot be read, and reading ahead."""

import threading

import fsspec
import pytest

from privcirnet.data import pictures
from privcirnet.data.picture import Preparation
from privcirnet.data.pictures import AHEAD, File, Listing, Pictures, StoreFailed, read_ahead
from privcirnet.errors import RuleError
from tests.page.samples import picture

AS = Preparation((1, 8, 8), 16)


@pytest.fixture
def folder(tmp_path):
    for name in ("b.png", "a.JPG", "deep/er/c.webp", "0a1b2c", ".hidden.png", ".git/d.png", "labels.csv", "e.jsonl"):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture())
    return tmp_path / "pictures"


def names(found) -> list[str]:
    return [file.path for file in found.files()]


def test_pictures_are_files_by_their_names_in_order(folder):
    (folder / "deep" / "again").symlink_to(folder)
    (folder / "c.png").symlink_to(folder / "b.png")
    (folder / "d.png").symlink_to(folder / "nowhere")
    wanted = [f"{folder}/{name}" for name in ("0a1b2c", "a.JPG", "b.png", "c.png", "deep/er/c.webp")]
    assert names(Pictures(str(folder))) == wanted
    assert Pictures(f"{folder}/").source == str(folder)
    assert names(Pictures(str(folder / "b.png"))) == [f"{folder}/b.png"]


def test_a_folder_is_named_by_its_whole_path(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert names(Pictures("deep")) == [f"{folder}/deep/er/c.webp"]


def test_a_store_is_a_folder():
    store = fsspec.filesystem("memory")
    store.pipe("/shop/one.png", picture())
    store.pipe("/shop/deep/two.png", b"none")
    found = Pictures("memory://shop")
    one, two = (found.read(file, AS) for file in found.files())
    assert one.path, two.path == ("memory:///shop/one.png", "memory:///shop/deep/two.png")
    assert (one.pixels.shape, one.refused) == ((1, 8, 8), "")
    assert (two.pixels, two.refused.partition(":")[0]) == (None, "an image file must be whole")


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (
            "3o2",
            "images= must be a number of held-out images, or a folder .* got 3o2: nothing is there; give images=32",
        ),
        ("memory://nowhere", "got memory://nowhere: nothing is there"),
        ("shoe://box", "got shoe://box: Protocol not known: shoe"),
    ],
)
def test_nothing_is_there(source, match):
    with pytest.raises(RuleError, match=match):
        Pictures(source)


def test_a_package_that_is_missing_is_named(monkeypatch):
    def url_to_fs(source):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(pictures, "url_to_fs", url_to_fs)
    with pytest.raises(RuleError, match=r"Install s3fs to access S3; pip install 'privcirnet\[s3\]'"):
        Pictures("s3://bucket")


def test_an_empty_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(RuleError, match=r"a folder must have pictures: got none in .*; their names end in .bmp, .gif"):
        Pictures(str(tmp_path))


def test_what_cannot_be_read_is_a_picture_without_pixels(folder):
    found = Pictures(str(folder))
    (folder / "b.png").unlink()
    gone = found.read(File(str(folder / "b.png"), 100), AS)
    large = found.read(File(str(folder / "a.JPG"), 1 << 30), AS)
    assert gone.pixels is large.pixels is None
    assert gone.refused.startswith("a picture must be there to be read: got ")
    assert large.refused.startswith("an image file must have at most 16 MiB: got 1,073,741,824 bytes")


def test_a_store_that_does_not_answer_is_no_broken_picture(folder, monkeypatch):
    found = Pictures(str(folder))

    def cat_file(path):
        raise TimeoutError("no answer")

    monkeypatch.setattr(found._store, "cat_file", cat_file)
    with pytest.raises(StoreFailed, match=r"a store must answer: got .*: no answer; the same command continues"):
        next(read_ahead(found, found.files(), AS))


def test_some_pictures_are_read_ahead_and_no_more(folder, monkeypatch):
    for number in range(3 * AHEAD):
        (folder / f"{number:02}.png").write_bytes(picture())
    found, read, enough = Pictures(str(folder)), [], threading.Event()

    def counted(file, preparation, own=found.read):
        read.append(file.path)
        if len(read) == AHEAD + 1:
            enough.set()
        return own(file, preparation)

    monkeypatch.setattr(found, "read", counted)
    coming = read_ahead(found, found.files(), AS)
    assert next(coming).path == f"{folder}/00.png"
    assert enough.wait(10)
    assert len(read) == AHEAD + 1
    coming.close()
    assert len(read) == AHEAD + 1


def test_known_files_are_counted_and_left_out(folder):
    listing = Listing(Pictures(str(folder)), {f"{folder}/b.png", "elsewhere"})
    assert [file.path.rpartition("/")[2] for file in listing] == ["0a1b2c", "a.JPG", "c.webp"]
    assert (listing.count, listing.known) == (4, 1)


def test_what_goes_wrong_while_listing_reaches_the_reader(folder, monkeypatch):
    found = Pictures(str(folder))

    def files():
        yield File("one", 1)
        raise RuleError("a rule", got="it", remedy="do")

    monkeypatch.setattr(found, "files", files)
    listed = iter(Listing(found))
    assert next(listed).path == "one"
    with pytest.raises(RuleError, match="a rule"):
        next(listed)
