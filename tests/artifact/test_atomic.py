"""Files and folders appear when they are complete, or not at all."""

import dataclasses
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from privcirnet.artifact import folder as folders
from privcirnet.artifact import program as programs
from privcirnet.artifact import records
from privcirnet.artifact.program import FULL_FOLDER, read_program, write_program
from privcirnet.artifact.records import Checkpoint, write_arrays, write_checkpoint, write_json, write_text
from privcirnet.errors import RuleError
from privcirnet.he.system.files import forget_drafts, replacing, replacing_folder, room_for
from tests.artifact.samples import CHECKPOINT, assert_same_program, contents, layer_program


def test_drafts_of_a_killed_process_are_forgotten(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / ".hidden"
    whole.write_bytes(b"1")
    other.write_bytes(b"2")
    with replacing(whole) as draft:
        draft.write_bytes(b"3")
        forget_drafts(tmp_path)
        assert not draft.exists()
        draft.write_bytes(b"4")
    assert (whole.read_bytes(), other.read_bytes()) == (b"4", b"2")
    forget_drafts(tmp_path / "nowhere")
    assert sorted(tmp_path.iterdir()) == [other, whole]


class TestAtomic:
    def test_a_file(self, tmp_path, monkeypatch):
        path = tmp_path / "c.safetensors"
        write_checkpoint(path, CHECKPOINT)
        before = contents(tmp_path)
        monkeypatch.setattr(records, "write_tensors", _half_a_file)
        with pytest.raises(OSError, match="disk full"):
            write_checkpoint(path, Checkpoint({}, "", "", {}))
        assert contents(tmp_path) == before
        with pytest.raises(OSError, match="disk full"):
            write_checkpoint(tmp_path / "other", CHECKPOINT)
        assert contents(tmp_path) == before

    @pytest.mark.parametrize(
        "write",
        [
            lambda path: write_checkpoint(path, dataclasses.replace(CHECKPOINT, tensors={"a": np.zeros(10_000)})),
            lambda path: write_text(path, "x" * 40_000),
            lambda path: write_arrays(path, a=np.random.default_rng(0).random(10_000)),
        ],
        ids=["checkpoint", "text", "arrays"],
    )
    def test_a_full_disk(self, tmp_path, file_limit, write):
        path = tmp_path / "file"
        write_text(path, "whole")
        file_limit(20_000)
        with pytest.raises(RuleError, match=f"a disk must have room .*: got {path}: File too large"):
            write(path)
        assert contents(tmp_path) == {"file": b"whole"}

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
    @pytest.mark.parametrize("context", [replacing, replacing_folder, room_for])
    def test_no_room_in_the_system_s_words(self, tmp_path, context, number):
        path = tmp_path / "name"
        with pytest.raises(RuleError, match=f"got {path}: {os.strerror(number)}; make room"), context(path):
            raise OSError(number, "in the way it is raised")
        assert not list(tmp_path.iterdir())

    def test_other_errors_pass(self, tmp_path):
        with pytest.raises(PermissionError, match="not yours"), room_for(tmp_path):
            raise PermissionError(errno.EACCES, "not yours")
        with pytest.raises(RuleError, match=r"got .*inner: No space left"), room_for(tmp_path / "outer"):
            _inner(tmp_path / "inner")

    def test_json_that_cannot_be_written(self, tmp_path):
        write_json(tmp_path / "a.json", {"x": 1})
        with pytest.raises(TypeError, match="not JSON serializable"):
            write_json(tmp_path / "a.json", {"x": object()})
        assert contents(tmp_path) == {"a.json": b'{\n "x": 1\n}\n'}

    @pytest.mark.parametrize("function", ["write_tensors", "_write_full", "write_json"])
    def test_a_folder(self, folder, monkeypatch, function):
        before = contents(folder.parent)
        monkeypatch.setattr(folders if function == "write_json" else programs, function, _half_a_file)
        for target in (folder, folder.with_name("other")):
            with pytest.raises(OSError, match="disk full"):
                write_program(target, layer_program(4, 8), {}, full=True)
            assert contents(folder.parent) == before
            assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def test_a_folder_that_cannot_take_its_place(self, folder, monkeypatch):
        """The old program was moved away already; it comes back."""
        before = contents(folder.parent)
        rename = Path.replace

        def failing(self: Path, target: Path) -> Path:
            if target == folder and (self / "new").exists():
                raise OSError("no such luck")
            return rename(self, target)

        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(OSError, match="no such luck"), replacing_folder(folder) as draft:
            (draft / "new").touch()
        assert contents(folder.parent) == before
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def test_a_newer_program_replaces_the_old_one_whole(self, folder):
        program = layer_program(4, 8)
        write_program(folder, program, {})
        assert_same_program(read_program(folder)[0], program)
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        assert not (folder / FULL_FOLDER).exists()


def _inner(path: Path) -> None:
    with room_for(path):
        raise OSError(errno.ENOSPC, "full")


def _half_a_file(first: Path, *_: object, **__: object) -> None:
    (first / "half" if first.is_dir() else first).write_bytes(b"half")
    raise OSError("disk full")


@pytest.mark.parametrize("context", [replacing, replacing_folder])
def test_a_file_in_the_way_is_one_line(tmp_path, context):
    (tmp_path / "file").write_text("mine")
    place = tmp_path / "file" / "below" / "result"
    with pytest.raises(RuleError, match=r"results must have a folder .*: got .*/file/below:"), context(place):
        pytest.fail("it writes")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_is_on_the_disk_before_it_takes_anothers_place(tmp_path, monkeypatch):
    """Else a power cut leaves an empty file where a checkpoint was."""

    whole, seen = tmp_path / "whole", []
    whole.write_bytes(b"old")
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: seen.append((os.fstat(handle).st_ino, whole.read_bytes())) or fsync(handle)
    )
    with replacing(whole) as draft:
        draft.write_bytes(b"new")
        number = Path(draft).stat().st_ino
    assert seen == [(number, b"old")]
    assert whole.read_bytes() == b"new"


def test_a_folder_is_on_the_disk_before_it_takes_anothers_place_and_there_before_the_other_goes(tmp_path, monkeypatch):
    """Else a power cut leaves a program with empty files, or none."""
    whole, fsync, seen = tmp_path / "whole", os.fsync, list[tuple[int, bytes, int]]()
    whole.mkdir()
    (whole / "file").write_bytes(b"old")

    def confirmed(handle: int) -> None:
        seen.append((os.fstat(handle).st_ino, (whole / "file").read_bytes(), len(list(tmp_path.iterdir()))))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", confirmed)
    with replacing_folder(whole) as draft:
        (draft / "inner").mkdir()
        for name in ("file", "inner/file"):
            (draft / name).write_bytes(b"new")
        due = {path.stat().st_ino for path in (draft, *draft.rglob("*"))}
    *before, after = seen
    assert {number for number, *_ in before} == due
    assert {(content, folders) for _, content, folders in before} == {(b"old", 2)}
    assert after == (tmp_path.stat().st_ino, b"new", 2)
    assert contents(tmp_path) == {"whole/file": b"new", "whole/inner/file": b"new"}
