"""What only a Redis can do to a service: end, hang, forget, fill up, or hold something else; and what is its own there."""

import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store import Binding, PreparedWork
from privcirnet.he.protocol.offline.store_files import FolderLockedError, UnusablePreparationError
from privcirnet.service.log import Log
from privcirnet.service.messages import split
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.refusals import ServiceError, SharedStateUnavailableError
from privcirnet.service.shared import keys as shared_keys
from privcirnet.service.shared import ledger, link
from privcirnet.service.shared.link import RedisConnection, shown
from privcirnet.service.store import digest
from tests.service.redises import Redis
from tests.service.running import until
from tests.service.test_state import ALICE, LARGE, SMALL, put, shared

ONE, TWO = bytes([1]) * 16, bytes([2]) * 16


@pytest.fixture
def lines():
    return []


@pytest.fixture
def opened(redis, stack, lines):
    return shared(redis, stack, lines)


@pytest.fixture
def place(request, tmp_path):
    """Where the bodies of keys are: in Redis, in a folder, or in what stands for an object store."""
    folder = {"redis": "", "folder": str(tmp_path / "keys"), "store": f"memory://{tmp_path.name}"}
    return folder[request.param]


everywhere = pytest.mark.parametrize("place", ["redis", "folder", "store"], indirect=True)


def test_a_place_is_free_when_its_session_ends_or_its_replica_died(opened, monkeypatch):
    monkeypatch.setattr(ledger, "_LEASE_S", 1.5)
    first, second = opened.ledger(), opened.ledger()
    place, key = first.enter("alice", 1), first._key("sessions", "alice")
    assert second.enter("bob", 1)
    until_later(first._link, key, place)
    assert second.enter("alice", 1) is None
    first.leave("alice", place)
    place = second.enter("alice", 1)
    assert place is not None
    second.leave("alice", place)
    assert first.enter("alice", 1) is not None
    first.close()  # as if it had been killed: nobody gives the place back
    assert second.enter("alice", 2) is not None
    assert second.enter("alice", 2) is None
    until(lambda: second.enter("alice", 2) is not None)


def until_later(link: RedisConnection, key: str, member: bytes | str) -> None:
    """Wait until a lease that is held ends later than it does now."""
    before = float(link.do("ZSCORE", key, member))
    until(lambda: float(link.do("ZSCORE", key, member)) > before)


def test_places_are_there_again_in_a_redis_that_has_forgotten_them(tmp_path, stack, lines, monkeypatch):
    monkeypatch.setattr(ledger, "_LEASE_S", 1.5)
    monkeypatch.setattr(link, "_PAUSE_S", 0.05)
    redis = Redis(tmp_path / "redis", appendonly="no")
    stack.callback(redis.kill)
    opened = shared(redis, stack, lines)
    first, second = opened.ledger(), opened.ledger()
    assert lines == [f"{redis.url} has appendonly off: when it ends, counts are lost"] * 2
    assert first.enter("alice", 1)
    redis.kill()
    until(lambda: first._link._lost)  # it renews its places
    redis.start()
    until(lambda: redis.ask(f"EXISTS {first._key('sessions', 'alice')}") == b":1\r\n")
    assert second.enter("alice", 1) is None
    assert f"{redis.url} is within reach again, and has forgotten everything" in lines


def test_a_replica_whose_clock_is_an_hour_off_counts_alike(opened, monkeypatch):
    right, wrong = (Quotas(Quota(images_hour=2), ledger=opened.ledger()) for _ in range(2))
    right.images("alice")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3700)
    wrong.images("alice")
    for one in (right, wrong):
        with pytest.raises(ServiceError, match="2 images an hour") as refused:
            one.images("alice")
        assert 3500 < refused.value.retry_after_s <= 3601


def test_what_was_begun_an_hour_ago_counts_in_all_alone(opened):
    own = opened.ledger()
    quotas = Quotas(Quota(images_hour=3, images=7), ledger=own)
    key, minute = own._key("images", "alice"), int(time.time()) // 60
    for ago, count in ((61, 1), (60, 2), (30, 1)):
        own._link.do("HSET", key, str(minute - ago), count)
    quotas.images("alice", 2)
    with pytest.raises(RuleError, match="3 images an hour") as refused:
        quotas.images("alice")
    assert 25 * 60 < refused.value.retry_after_s <= 30 * 60 + 1
    assert own._link.do("HGET", key, "0") == b"3", "old minutes are put together"
    own._link.do("HDEL", key, str(minute - 30))
    with pytest.raises(RuleError, match="7 images in all"):
        quotas.images("alice", 3)
    quotas.images("alice")


@everywhere
def test_bodies_of_keys_lie_where_they_are_told(opened, place, tmp_path):
    key_id = put(opened.keys(folder=place), "alice", LARGE)
    again = put(opened.keys(folder=place), "alice", LARGE)  # by a second replica, under a name of its own
    assert key_id == again
    other = opened.keys(folder=place)
    assert other.load("alice", key_id) == LARGE
    if place == str(tmp_path / "keys"):
        until(lambda: len([*Path(place).iterdir()]) == 1)
        (body,) = Path(place).iterdir()
        assert (body.stat().st_mode & 0o777, Path(place).stat().st_mode & 0o777) == (0o600, 0o700)
    _, found = other._find("alice", key_id)
    other.forget("alice", key_id)
    until(lambda: not other._bodies.get(found.body, found.size))


@everywhere
def test_a_body_that_is_gone_or_damaged_is_no_key(opened, place):
    store = opened.keys(folder=place)
    key_id = put(store, "alice", SMALL)
    _, found = store._find("alice", key_id)
    store._bodies.remove(found.body)
    with pytest.raises(RuleError, match="register them again"):
        store.load("alice", key_id)
    assert store.seconds_left("alice", key_id) == store.size == 0
    key_id = put(store, "alice", SMALL)
    _, found = store._find("alice", key_id)
    store._bodies.remove(found.body)
    with open(__file__, "rb") as other:
        store._bodies.put(found.body, other)
    with pytest.raises(RuleError, match="register them again"):
        store.load("alice", key_id)


def test_keys_expire_between_replicas_and_are_registered_again(opened):
    first, second = opened.keys(days=3e-5), opened.keys(days=3e-5)
    key_id = put(first, "alice", SMALL)
    assert second.load("alice", key_id) == SMALL
    until(lambda: not second.seconds_left("alice", key_id))
    with pytest.raises(RuleError, match="a session's keys must be registered, and not expired"):
        second.load("alice", key_id)
    assert put(second, "alice", SMALL) == key_id
    assert first.load("alice", key_id) == SMALL


def test_keys_that_have_expired_leave_their_room(opened):
    first, second = opened.keys(days=1e-5, gigabytes=1e-8), opened.keys(days=1e-5, gigabytes=1e-8)
    key_id = put(first, "alice", bytes(10))
    until(lambda: not second.seconds_left("alice", key_id))
    put(second, "bob", bytes(10))
    assert first.size == 10


def test_registrations_that_are_on_their_way_share_the_quota(opened):
    first, second = opened.keys(), opened.keys()
    coming = first.receive("alice", bytes(32), 1, 1)
    with pytest.raises(RuleError, match="a client registers at most 1 sets of keys at once"):
        second.receive("alice", bytes(32), 1, 1)
    coming.cancel()
    second.receive("alice", bytes(32), 1, 1).cancel()


def test_room_is_held_while_keys_get_on(opened, monkeypatch):
    """And not for a replica that died meanwhile."""
    monkeypatch.setattr("privcirnet.service.shared.keys._DRAFT_S", 1.0)
    first, second = opened.keys(gigabytes=1e-8), opened.keys(gigabytes=1e-8)
    coming = first.receive("alice", bytes(32), 10, 1)
    before = float(first._link.do("ZSCORE", first._keys[1], coming._draft))
    until(lambda: coming._write(b"") or float(first._link.do("ZSCORE", first._keys[1], coming._draft)) > before)
    assert second.size == 10
    until(lambda: second.size == 0)
    other = second.receive("bob", bytes(32), 10, 1)
    coming._stay()
    assert second.size == 10
    coming.cancel()
    other.cancel()
    assert second.size == 0


def test_a_registration_that_nobody_waits_for_keeps_nothing(opened):
    store = opened.keys()
    coming = store.receive("alice", hashlib.sha256(SMALL).digest(), len(SMALL), 1)
    for piece in split(SMALL):
        coming.add(piece)
    put_body = store._bodies.put

    def cut(name, file):
        put_body(name, file)
        coming.cancel()

    store._bodies.put = cut
    coming.settle()
    until(lambda: not store._bodies.get(coming._body, len(SMALL)))
    assert store.size == 0


def test_a_folder_that_replicas_share_is_nobody_elses(opened, tmp_path):
    folder, old = tmp_path / "prepared", time.time() - 100_000
    first = opened.prepared(folder)
    first.of(ALICE).put(ONE, b"one")
    (body,) = folder.glob("*.prepared")
    os.utime(body, (old, old))
    names = ("old.prepared", "new.prepared", "old.draft", "new.draft")
    for name in names:
        (folder / name).touch(0o600)
        if name.startswith("old"):
            os.utime(folder / name, (old, old))
    second = opened.prepared(folder)
    assert {path.name for path in folder.iterdir()} == {"lock", body.name, "new.prepared", "new.draft"}
    with pytest.raises(FolderLockedError):
        PreparedWork(folder)
    assert second.of(ALICE).take(ONE) == b"one"


def test_a_shared_folder_that_is_restored_has_nothing_that_was_used(opened, tmp_path):
    """Redis has the claims. Nor does a server without Redis use any of it."""
    folder, notes, first = tmp_path / "prepared", [], opened.prepared(tmp_path / "prepared")
    for serial in (ONE, TWO):
        first.of(ALICE).put(serial, serial)
    shutil.copytree(folder, tmp_path / "backup")
    assert first.of(ALICE).take(ONE) == ONE
    shutil.copytree(tmp_path / "backup", folder, dirs_exist_ok=True)
    second = opened.prepared(folder)
    assert second.of(ALICE).serials() == [TWO]
    with pytest.raises(UnusablePreparationError):
        second.of(ALICE).take(ONE)
    assert second.of(ALICE).take(TWO) == TWO
    with closing(PreparedWork(tmp_path / "backup", note=notes.append)) as alone:
        assert alone.of(ALICE).serials() == []
    assert "prepared work of 2 inferences was removed, with no claim on it" in notes[0]


def test_what_is_in_a_replicas_memory_is_of_use_there_alone(opened):
    first, second = opened.prepared(), opened.prepared()
    for serial in (ONE, TWO):
        first.of(ALICE).put(serial, serial)
    assert (first.count("alice"), second.count("alice")) == (2, 2)
    assert (first.size, second.size) == (32, 0)
    assert (first.of(ALICE).serials(), second.of(ALICE).serials()) == ([ONE, TWO], [])
    with pytest.raises(UnusablePreparationError):
        second.of(ALICE).take(ONE)
    with pytest.raises(UnusablePreparationError):
        first.of(ALICE).take(ONE)
    second.make_room(ALICE, 1)  # the owner has left the first replica: what it left there makes room
    assert first.of(ALICE).serials() == []
    first.of(Binding(peer="bob")).put(ONE, b"bob's")
    assert len(first._bodies) == 1, "bodies that others have taken out are forgotten"
    first.close()
    assert second.count("bob") == 0


def test_a_redis_that_hangs_is_asked_once(opened, redis, monkeypatch):
    monkeypatch.setattr(link, "_TIMEOUT_S", 0.2)
    own = opened.ledger()
    own.begin("alice", 1, 0, 0)
    os.kill(redis._process.pid, signal.SIGSTOP)
    asked, call = [], own._link._redis.execute_command
    monkeypatch.setattr(own._link._redis, "execute_command", lambda *a, **k: (asked.append(1), call(*a, **k))[1])
    try:
        for _ in range(5):
            with pytest.raises(SharedStateUnavailableError):
                own.begin("alice", 1, 0, 0)
        assert len(asked) == 1
    finally:
        os.kill(redis._process.pid, signal.SIGCONT)


def test_a_full_redis_refuses_and_counts_nothing(opened, redis, lines):
    own = opened.ledger()
    assert own.begin("alice", 1, 2, 0) == 0
    redis.ask("CONFIG SET maxmemory 1")
    with pytest.raises(SharedStateUnavailableError):
        own.begin("alice", 1, 2, 0)
    assert "does not do as it is told: " in lines[-1]
    redis.ask("CONFIG SET maxmemory 0")
    assert own.begin("alice", 1, 2, 0) == 0, "nobody had to look for it"
    assert own.begin("alice", 1, 2, 0) > 0


def test_whatever_else_lies_in_redis_begins_nothing(opened, lines):
    """A string where a table is, no number, a path as a body's name, a short label: refused, for that client alone."""
    own, keys, work = opened.ledger(), opened.keys(), opened.prepared()
    redis = own._link._redis
    redis.set(own._key("images", "alice"), "x")
    field = f"{digest('alice')}.{bytes(32).hex()}"
    peer = ALICE.label(ONE).peer
    for body in ("../../etc/passwd", "f" * 31 + "/", "f" * 30, "f" * 32 + "\n"):
        redis.hset(keys._keys[0], field, f"1 1 {body}")
        with pytest.raises(SharedStateUnavailableError):
            keys.load("alice", bytes(32))
    redis.hset(keys._keys[0], field, "1")
    redis.hset(work._inventory._of(peer), "short", "1 1 folder")
    for call in (
        lambda: own.begin("alice", 1, 0, 0),
        lambda: keys.load("alice", bytes(32)),
        lambda: keys.receive("alice", bytes(32), 1, 1),
        lambda: work.count("alice"),
    ):
        with pytest.raises(SharedStateUnavailableError):
            call()
    assert all("does not do as it is told" in line for line in lines)
    assert own.begin("bob", 1, 0, 0) == 0


def test_a_redis_that_was_emptied_is_out_of_reach_until_a_server_starts_anew(opened, redis, stack, lines, monkeypatch):
    """FLUSHALL by another program in it, or eviction: nobody gets an image beyond the quota, and the log says why."""
    monkeypatch.setattr(link, "_PAUSE_S", 0.05)
    own, keys, work = opened.ledger(), opened.keys(), opened.prepared()
    assert own.begin("alice", 1, 1, 0) == 0
    assert own.reachable()
    redis.ask("FLUSHALL")
    for begun in (
        lambda: own.begin("alice", 1, 1, 0),
        lambda: own.enter("alice", 1),
        lambda: keys.seconds_left("alice", bytes(32)),
        lambda: work.count("alice"),
    ):
        with pytest.raises(SharedStateUnavailableError):
            begun()
    assert not own.reachable()
    told = f"{redis.url} is out of reach: it has forgotten everything, as after FLUSHALL"
    until(lambda: any("is of no use: it has forgotten" in line for line in lines))
    assert [line.startswith(told) for line in lines].count(True) == 3, "once for each connection"
    time.sleep(0.2)
    assert not own.reachable(), "it does not go on by itself"
    other = opened.ledger()
    until(own.reachable)
    assert (other.begin("alice", 1, 1, 0), own.begin("alice", 1, 1, 0)) == (0, float("inf"))


def test_every_script_notices(opened, redis):
    found = opened.ledger()._link
    redis.ask("FLUSHALL")
    scripts = [one for module in (ledger, link, ledger, shared_keys) for one in vars(module).values()]
    scripts = [one for one in scripts if isinstance(one, link.Script)]
    assert len(scripts) > 10
    for script in scripts:
        found._lost = False
        with pytest.raises(SharedStateUnavailableError):
            found.run(script, [found.key("a"), found.key("b"), found.key("c")], *(7 * [b"1"]))
        assert found._lost


@pytest.mark.parametrize(
    ("url", "lacks"),
    [
        ("redis://10.0.0.5:6379/0", "TLS and a password"),
        ("redis://:secret@10.0.0.5/0", "TLS"),
        ("rediss://redis.example.org/0", "a password"),
        ("redis:///0?host=10.0.0.5", "TLS and a password"),
        ("rediss://:secret@10.0.0.5/0?ssl_cert_reqs=none", "TLS"),
    ],
)
def test_beyond_loopback_redis_is_encrypted_and_has_a_password(url, lacks):
    told = f"must be reached by TLS and with a password: got .* without {lacks}"
    with pytest.raises(RuleError, match=told) as refused:
        RedisConnection(url, "test")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["rediss://:secret@127.1.2.3:1/0", "redis://localhost:1", "redis://[::1]:1/0"])
def test_on_loopback_it_may_be_plain(url):
    with pytest.raises(RuleError, match="must be within reach"):
        RedisConnection(url, "test")


def test_a_redis_that_drops_what_it_is_told_is_refused(redis):
    redis.ask("CONFIG SET maxmemory-policy allkeys-lru")
    with pytest.raises(RuleError, match=r"Redis must keep what it is told: got .*: maxmemory-policy allkeys-lru"):
        RedisConnection(redis.url, "test")


def test_a_redis_that_writes_late_or_does_not_say_is_noted(redis, lines):
    redis.ask("CONFIG SET appendfsync everysec")
    RedisConnection(redis.url, "test", lines.append).close()
    redis.ask("ACL SETUSER shy on >word ~* +@all -info -config")
    RedisConnection(redis.url.replace("//", "//shy:word@"), "test", lines.append).close()
    assert "another appendfsync than always" in lines[0]
    assert "does not say whether it keeps what it is told" in lines[1]
    assert "word" not in lines[1].replace("password", "")


def test_replicas_of_another_release_are_refused(redis):
    redis.ask("SET {test}:form 2")
    with pytest.raises(RuleError, match="replicas that share state must be of one release"):
        RedisConnection(redis.url, "test")
    RedisConnection(redis.url, "other").close()


@pytest.mark.parametrize(
    "url", ["redis://:secret@127.0.0.1:1/0", "redis://:secret@127.0.0.1:port/0", "redis://:half/secret@a/1"]
)
def test_a_password_is_never_said(url):
    with pytest.raises(RuleError, match="the state that replicas share must be within reach") as refused:
        RedisConnection(url, "test")
    assert "secret" not in str(refused.value) + shown(url)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(RuleError, match=r"pip install 'privcirnet\[redis\]'"):
        RedisConnection("redis://127.0.0.1/0", "test")


def test_lines_of_all_replicas_are_numbered(opened, redis, stack):
    """What begins has a number or does not begin; what ends is written down anyway."""
    audited, told = [], []
    logs = [Log(told.append, "json", audited.append, number=opened.ledger()._link.number) for _ in range(2)]
    threads = [
        threading.Thread(target=lambda log=log: [log.record("image begun", "alice") for _ in range(20)]) for log in logs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(line)["number"] for line in audited) == [*range(1, 41)]
    redis.kill()
    with pytest.raises(SharedStateUnavailableError):
        logs[0].record("image begun", "alice")
    assert len(audited) == 40
    logs[0].audit("image", "alice")
    assert json.loads(audited[-1])["number"] is None
    assert len(told) == 1
