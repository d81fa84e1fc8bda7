"""Locks of folders that others hold, release and remove."""

import fcntl

import pytest

from privcirnet.artifact.run import exclusive, locked
from privcirnet.errors import RuleError


def test_a_lock_that_is_removed_meanwhile_is_taken_again(tmp_path, monkeypatch):
    """Whoever held it before removes it between its opening here and its being held."""
    path, held, times = tmp_path / "folder" / ".lock", fcntl.flock, []

    def removed(file, how):
        times.append(how)
        if len(times) == 1:
            path.unlink()
            path.parent.rmdir()
        return held(file, how)

    monkeypatch.setattr(fcntl, "flock", removed)
    with locked(path, wait=False):
        monkeypatch.undo()
        assert len(times) == 2
        with pytest.raises(BlockingIOError), locked(path, wait=False):
            pass


def test_a_folder_is_held_by_one_and_left_as_it_was(tmp_path):
    settings = {"out": str(tmp_path / "a" / "b"), "overwrite": False}
    with exclusive(settings), pytest.raises(RuleError, match="for one run at a time"), exclusive(settings):
        pass
    assert not (tmp_path / "a").exists()
    with exclusive(settings):
        (tmp_path / "a" / "b" / "result").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["result"]
