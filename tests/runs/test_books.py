"""What serve.py's settings make of a service's books, alone and with a Redis that replicas share."""

import json
import os
import socket
from contextlib import ExitStack

import pytest

from privcirnet.cli.serve import books_of
from privcirnet.config import ServeConfig
from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store import Binding
from privcirnet.service.store import StoreLimits
from tests.service.conftest import redis  # noqa: F401 - a fixture


@pytest.fixture
def opened():
    """Opens books, which are closed after the test; ``lines`` are what they print."""
    with ExitStack() as stack:

        def open_books(**settings):
            return books_of(ServeConfig(**settings), stack, open_books.lines.append)

        open_books.lines = []
        yield open_books


def begin(books) -> None:
    """Everything that a client has counted or kept."""
    books.quotas.images("alice")
    with books.quotas.session("alice", 4):
        books.log.record("image begun", "alice")
    books.prepared_work.of(Binding(peer="alice")).put(os.urandom(16), b"prepared")


def test_in_a_folder(opened, tmp_path):
    begin(opened(state=str(tmp_path / "state")))
    assert {path.name for path in (tmp_path / "state").iterdir()} >= {
        "audit.jsonl",
        "images.sqlite",
        "keys",
        "prepared",
    }
    (line,) = (tmp_path / "state" / "audit.jsonl").read_text().splitlines()
    assert "number" not in json.loads(line)


def test_in_memory(opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begin(opened(state=""))
    assert not [*tmp_path.iterdir()]


def test_in_redis(opened, redis, tmp_path):  # noqa: F811
    """Two replicas, each with an audit log of its own; a password is never printed, and no key has another name."""
    redis.ask("CONFIG SET requirepass secret")
    settings = {
        "state": redis.url.replace("//", "//:secret@"),
        "root": str(tmp_path),
        "prepared_folder": str(tmp_path / "prepared"),
        "keys": StoreLimits(folder=str(tmp_path / "keys")),
    }
    first, second = (opened(**settings) for _ in range(2))
    begin(first)
    begin(second)
    assert second.prepared_work.count("alice") == 2
    (audit,) = (tmp_path / "service").iterdir()
    assert audit.name == f"audit-{socket.gethostname()}-{os.getpid()}.jsonl"
    assert audit.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["number"] for line in audit.read_text().splitlines()] == [1, 2]
    names = first.quotas._ledger._link._redis.keys()
    assert all(name.startswith(b"{privcirnet}:") for name in names)
    redis.kill()
    with pytest.raises(RuleError, match="a server must reach the state"):
        begin(first)
    assert [line for line in opened.lines if "is out of reach" in line]
    assert not [line for line in opened.lines if "secret" in line]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"keys": StoreLimits(folder="keys")}, "keys.folder is for state=redis://"),
        ({"metrics": "127.0.0.1:65535"}, "metrics must leave a port for health checks"),
    ],
)
def test_bad_settings(settings, match):
    with pytest.raises(RuleError, match=match):
        ServeConfig(**settings)
