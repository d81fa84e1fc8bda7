"""What cannot be counted or audited, because a disk is full, is not answered either; the log and a metric say so."""

import errno
import json
import os
import sqlite3
import stat
from contextlib import closing

import pytest

from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import run
from privcirnet.service.client import ServiceClient
from privcirnet.service.log import Log, appending
from privcirnet.service.quotas import LocalLedger, Quota, Quotas
from privcirnet.service.refusals import Refused, Unwritten
from tests.he.networks import network, random_image
from tests.service.running import serving, until

IMAGE = random_image(network())
FAILED = "refused: a server must not fail: got it did"


class Disk:
    """Takes lines of the audit log, but for those of an event."""

    def __init__(self):
        self.full_for, self.lines = "", []

    def __call__(self, line):
        if json.loads(line)["event"] == self.full_for:
            raise OSError(28, "No space left on device")
        self.lines.append(line)


@pytest.fixture
def disk(monkeypatch):
    found, make = Disk(), Log.__init__
    monkeypatch.setattr(Log, "__init__", lambda self, write, form, audit: make(self, write, form, found))
    return found


@pytest.fixture
def worked(monkeypatch):
    """What each request began that the engine saw, agreements left out: they are about no weights."""
    found, handle = [], Session.handle

    def handled(session, message):
        if wire.begins(message) != wire.AGREE:
            found.append(wire.begins(message))
        return handle(session, message)

    monkeypatch.setattr(Session, "handle", handled)
    return found


def unwritten(service):
    return service.books.metrics.unwritten._value.get()


@pytest.mark.parametrize(
    ("event", "handled"),
    [
        ("keys registered", 0),
        ("session opened", 0),
        ("image begun", None),
        ("preparation begun", 0),
        ("image", None),
        ("prepared", None),
        ("session closed", None),
    ],
)
def test_nothing_is_answered_that_was_not_audited(disk, worked, monkeypatch, event, handled):
    """Neither its last reply, nor, where it had not begun, any work; afterwards all is as before."""
    closed, close = [], Session.close
    monkeypatch.setattr(Session, "close", lambda self: (closed.append(1), close(self))[1])
    disk.full_for = event

    def asked(remote):
        run(remote.client, remote, IMAGE)

    with serving(Server(network(), "cleartext")) as service:
        if event == "session closed":
            with ServiceClient(service.address, "cleartext") as remote:
                asked(remote)
        else:
            with pytest.raises(Refused, match=FAILED), ServiceClient(service.address, "cleartext") as remote:
                asked(remote)
        until(lambda: service.sessions == 0 and service.lines.of("nothing is answered"))
        (line,) = service.lines.of("nothing is answered")
        assert "the audit log cannot be written: [Errno 28] No space left on device" in line["why"]
        assert line["client"] == "local"
        assert unwritten(service) == 1
        assert handled is None or len(worked) == handled
        until(lambda: event == "keys registered" or closed)
        assert not service.lines.of("the server failed")
        disk.full_for = ""
        with ServiceClient(service.address, "cleartext") as remote:
            asked(remote)
        until(lambda: service.sessions == 0)
    events = [json.loads(line)["event"] for line in disk.lines]
    assert {"keys registered", "session opened", "image begun", "image", "session closed"} <= set(events)


def test_nothing_is_answered_that_was_not_counted(tmp_path, worked):
    with closing(Quotas(ledger=LocalLedger(tmp_path / "images.sqlite"))) as quotas:
        with serving(Server(network(), "cleartext"), books={"quotas": quotas}) as service:
            quotas._ledger._counts.execute("PRAGMA query_only=ON")
            with ServiceClient(service.address, "cleartext") as remote, pytest.raises(Refused, match=FAILED):
                run(remote.client, remote, IMAGE)
            (line,) = service.lines.of("nothing is answered")
            assert "images cannot be counted" in line["why"]
            assert (unwritten(service), worked) == (1, [])


def counted(file):
    with closing(sqlite3.connect(file)) as other:
        return other.execute("SELECT COALESCE(SUM(count), 0) FROM images").fetchone()[0]


def test_counts_on_a_full_disk(tmp_path, file_limit):
    """They are whole or not at all, also while old minutes are put together, and go on where there is room again."""
    file, now = tmp_path / "images.sqlite", [1_700_000_000.0]
    with closing(Quotas(Quota(images=1000), ledger=LocalLedger(file, lambda: now[0]))) as quotas:
        quotas.images("alice", 3)
        now[0] += 10_000
        file_limit((tmp_path / "images.sqlite-wal").stat().st_size)
        for _ in range(3):
            with pytest.raises(Unwritten, match="images cannot be counted"):
                quotas.images("alice")
        file_limit(1 << 30)
        quotas.images("alice", 2)
        assert counted(file) == 5


def test_an_audit_log_on_a_full_disk(tmp_path, file_limit):
    """Whoever appends to it learns that it is full; a line that was cut ends there, and the next one is whole."""
    path = tmp_path / "audit.jsonl"
    append = appending(path)
    append('{"event": "one"}')
    file_limit(path.stat().st_size + 5)
    with pytest.raises(OSError, match="No space left on device"):
        append('{"event": "two"}')
    with pytest.raises(OSError, match="File too large"):
        append('{"event": "two"}')
    file_limit(1 << 30)
    append('{"event": "three"}')
    assert path.read_text() == '{"event": "one"}\n{"eve\n{"event": "three"}\n'


def test_an_audit_log_whose_disk_does_not_confirm_a_line(tmp_path, monkeypatch):
    """The system takes bytes into memory, and may learn later that there is no room, or lose them with its power."""
    path = tmp_path / "audit.jsonl"
    append = appending(path)

    def broken(file: int) -> None:
        assert os.fstat(file).st_size == len("one\n")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="No space left on device"):
        append("one")


def test_an_audit_log_that_is_rotated(tmp_path):
    """The new file is its owner's alone, as the old one is made."""
    path = tmp_path / "audit.jsonl"
    path.write_text("earlier\n")
    append = appending(path)
    append("one")
    path.rename(tmp_path / "audit.1")
    append("two")
    assert ((tmp_path / "audit.1").read_text(), path.read_text()) == ("earlier\none\n", "two\n")
    for file in (path, tmp_path / "audit.1"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
