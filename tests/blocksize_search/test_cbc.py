"""The solver as a program: wherever its files may lie, whatever becomes of it, an answer or one line, and no file left."""

import signal
import subprocess
import tempfile

import pulp
import pytest

from privcirnet.blocksize_search.assignment import Solution
from privcirnet.blocksize_search.solve import solve
from privcirnet.errors import RuleError

OMEGA, SECONDS = {"a": {1: 0.0, 2: 1.0}}, {"a": {1: 2.0, 2: 1.0}}
INSTEAD = r"pip install privcirnet\[highs\] and use solver=highs"


@pytest.fixture(params=["with space", "pct%20", "a;b & c", "quote'd \"", "ünïcode 目录", "-dash", "a\nb"])
def temporary(request, tmp_path, monkeypatch):
    folder = tmp_path / request.param
    folder.mkdir()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Have a script run in place of CBC."""

    def place(text, mode=0o755):
        path = tmp_path / "cbc"
        if text is not None:
            path.write_text(text)
            path.chmod(mode)
        monkeypatch.setattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", str(path))

    return place


def answer() -> Solution:
    return solve(OMEGA, SECONDS, 1.5)


def test_any_folder_for_temporary_files(temporary):
    assert answer().block_sizes == {"a": 2}
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("temporary", ["with space"], indirect=True)
@pytest.mark.parametrize("script", ["echo no libz >&2; exit 3", "echo no libz >&2; kill -9 $$", "echo no libz >&2"])
def test_a_solver_that_fails(temporary, program, script):
    program(f"#!/bin/sh\n{script}\n")
    message = r"must end with an answer: got CBC ended with status (3|-9|0) no libz"
    with pytest.raises(RuleError, match=message):
        answer()
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("temporary", ["with space"], indirect=True)
@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("", 0o644, "Permission denied"),
        ("no program", 0o755, "Exec format error"),
        ("#!/nowhere/sh", 0o755, "No such file or directory"),
        (None, 0, "No such file or directory"),
    ],
)
def test_a_solver_that_cannot_run(temporary, program, text, mode, said):
    program(text, mode)
    rule = rf"the solver must be a program of this machine: got /.*cbc: {said}.*"
    with pytest.raises(RuleError, match=rule + INSTEAD):
        answer()
    assert not [*temporary.iterdir()]


def test_no_folder_for_temporary_files(monkeypatch):
    def full(*_):
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "_get_default_tempdir", full)
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(RuleError, match=r"files must have room: got .*No usable"):
        answer()


@pytest.mark.parametrize("temporary", ["with space"], indirect=True)
def test_a_full_disk(temporary, file_limit):
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file_limit(16)
    try:
        with pytest.raises(RuleError, match=r"files must have room: got \[Errno 27\] File too large"):
            answer()
    finally:
        signal.signal(signal.SIGXFSZ, before)
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("temporary", ["with space"], indirect=True)
def test_an_interrupted_solver(temporary, program, monkeypatch):
    """Ctrl-C while it works: it is ended, and its files are removed."""
    program("#!/bin/sh\nexec sleep 60\n")
    begun: list[subprocess.Popen[str]] = []

    def interrupted(process, *_, **__):
        begun.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        answer()
    assert begun[0].returncode == -signal.SIGKILL
    assert not [*temporary.iterdir()]
