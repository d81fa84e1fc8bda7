"""Claims on prepared work: without one outside of its folder none is used, however whole it looks."""

import secrets
import shutil

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline import store_files
from privcirnet.he.protocol.offline.store import Binding, PreparedWork
from privcirnet.he.protocol.offline.store_files import Claims, UnusablePreparationError, usual_place

BODY = bytes(range(256))
ALICE = Binding(bytes([1]) * 32, "alice", bytes([2]) * 32)
FIRST, SECOND = secrets.token_bytes(16), secrets.token_bytes(16)


@pytest.fixture
def opened(tmp_path):
    """A function that opens a folder and is told what was noted: ``opened.notes``."""

    def open_folder(folder="prepared", claims="claims"):
        return PreparedWork(tmp_path / folder, note=open_folder.notes.append, claims=tmp_path / claims)

    open_folder.notes = []
    return open_folder


@pytest.fixture
def backup(opened, tmp_path):
    """A backup of a folder with two, of which the first was used since."""
    before = opened()
    for known in (FIRST, SECOND):
        before.of(ALICE).put(known, BODY)
    shutil.copytree(tmp_path / "prepared", tmp_path / "backup")
    before.of(ALICE).take(FIRST)
    before.close()
    return tmp_path / "backup"


def test_a_restored_folder_has_what_was_not_used(opened, tmp_path, backup):
    shutil.rmtree(tmp_path / "prepared")
    backup.rename(tmp_path / "prepared")
    store = opened().of(ALICE)
    assert store.serials() == [SECOND]
    with pytest.raises(UnusablePreparationError):
        store.take(FIRST)
    assert store.take(SECOND) == BODY
    (note,) = opened.notes
    assert "prepared work of 1 inferences was removed, with no claim on it in " in note
    assert "restored, copied or moved, or a process was killed" in note
    assert not [*tmp_path.glob("prepared/*.prepared")]


def test_copies_share_their_claims(opened, backup):
    """Two folders, both open, each with all files: what one of them takes is gone from the other."""
    del backup
    first, second = opened().of(ALICE), opened("backup").of(ALICE)
    assert first.serials() == second.serials() == [SECOND]
    assert first.take(SECOND) == BODY
    with pytest.raises(UnusablePreparationError):
        second.take(SECOND)


@pytest.mark.parametrize("place", ["other machine", "claims"])
def test_a_folder_without_its_claims_is_empty(opened, tmp_path, backup, place):
    """On another machine, or in a container that forgets them; what is prepared from then on is used as ever."""
    del backup
    if place == "claims":
        shutil.rmtree(tmp_path / "claims")
    store = opened(claims=place).of(ALICE)
    assert store.serials() == []
    assert "prepared work of 1 inferences was removed, with no claim" in opened.notes[0]
    store.put(FIRST, BODY)
    assert store.take(FIRST) == BODY


def test_restored_claims_are_of_no_use(opened, tmp_path):
    """As where a home is restored and a disk of data is not."""
    before = opened()
    before.of(ALICE).put(FIRST, BODY)
    shutil.copytree(tmp_path / "claims", tmp_path / "backup")
    before.of(ALICE).take(FIRST)
    before.close()
    shutil.copytree(tmp_path / "backup", tmp_path / "claims", dirs_exist_ok=True)
    assert opened().of(ALICE).serials() == []
    assert not [*tmp_path.glob("claims/*/*")], "it does not stay"


def test_claims_in_the_folder_are_refused(tmp_path):
    with pytest.raises(RuleError, match=r"claims must lie outside the folder of prepared work: got .*; name another"):
        PreparedWork(tmp_path / "prepared", claims=tmp_path / "prepared" / "claims")
    PreparedWork(tmp_path / "prepared", claims=tmp_path / "claims").close()  # which nobody has


def test_claims_that_others_can_read_are_refused(opened, tmp_path):
    first = opened()
    first.of(ALICE).put(FIRST, BODY)
    first.close()
    (place,) = (tmp_path / "claims").iterdir()
    place.chmod(0o755)
    with pytest.raises(RuleError, match="must be its owner's alone"):
        opened()


def test_without_a_place_nothing_outlives_the_process(opened, tmp_path, monkeypatch):
    """A home that cannot be written: it is said, prepared work is used, and the next process begins without any."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    notes = []
    before = PreparedWork(tmp_path / "prepared", note=notes.append)
    before.of(ALICE).put(FIRST, BODY)
    before.of(ALICE).put(SECOND, BODY)
    assert before.of(ALICE).take(FIRST) == BODY
    before.close()
    assert len(notes) == 1
    assert "prepared work will not outlive this process: " in notes[0]
    after = PreparedWork(tmp_path / "prepared", note=notes.append)
    assert after.of(ALICE).serials() == []
    assert "was removed, with no claim on it: restored" in notes[-1]
    after.close()


def test_the_usual_place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert usual_place() == tmp_path / "privcirnet" / "prepared"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert usual_place() == tmp_path / ".local" / "state" / "privcirnet" / "prepared"


def test_a_disk_that_fails_leaves_no_claim(tmp_path, monkeypatch):
    """Nor is anything used if the disk does not confirm that the claim is gone."""
    label = ALICE.label(FIRST)
    claims = Claims(tmp_path / "claims", tmp_path / "prepared", bytes(32))

    def broken(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store_files.os, "fsync", broken)
        with pytest.raises(RuleError, match="No space left on device"):
            claims.add(label)
    assert not claims.remove(label)
    claims.add(label)
    with pytest.raises(RuleError, match="File exists"):
        claims.add(label)
    with monkeypatch.context() as patch:
        patch.setattr(store_files.os, "fsync", broken)
        with pytest.raises(RuleError, match="No space left on device"):
            claims.remove(label)
    assert not claims.remove(label)
