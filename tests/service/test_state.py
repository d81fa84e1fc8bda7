"""What must be counted or used once, by one server with files of its own, and by replicas that share a Redis."""

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store import Binding, PreparedWork
from privcirnet.he.protocol.offline.store_files import UnusablePreparationError
from privcirnet.service.messages import split
from privcirnet.service.quotas import LocalLedger, Quota, Quotas
from privcirnet.service.refusals import ServiceError, SharedStateUnavailableError
from privcirnet.service.shared import link
from privcirnet.service.shared.keys import SharedKeys
from privcirnet.service.shared.ledger import SharedInventory, SharedLedger
from privcirnet.service.shared.link import RedisConnection
from privcirnet.service.store import KeyRegistry, KeyStore, Registration, StoreLimits
from tests.service.redises import Redis
from tests.service.running import until

DAY = 86_400.0
SMALL, LARGE = b"small", b"large" * 2_000_000
ALICE = Binding(bytes([1]) * 32, "alice", bytes([2]) * 32)


@dataclass
class State:
    """Ways to open the same state; where a folder is one process's own, each gives the same object again."""

    ledger: Callable[[], object]
    keys: Callable[..., KeyRegistry]
    prepared: Callable[..., PreparedWork]


def shared(redis: Redis, stack: ExitStack, lines: list[str] | None = None) -> State:
    """The state of a new replica for each of its parts."""

    def connected() -> RedisConnection:
        found = RedisConnection(redis.url, "test", [].append if lines is None else lines.append)
        stack.callback(found.close)
        return found

    def open_ledger():
        found = SharedLedger(connected())
        stack.callback(found.close)
        return found

    def open_keys(**limits):
        found = SharedKeys(StoreLimits(**limits), connected())
        stack.callback(found.close)
        return found

    def open_prepared(folder: Path | None = None, limit: int | None = None, days: float = 30.0):
        found = PreparedWork(folder, limit, days, inventory=SharedInventory(connected(), bool(folder), days))
        stack.callback(found.close)
        return found

    return State(open_ledger, open_keys, open_prepared)


@pytest.fixture(params=["own", "redis"])
def state(request, tmp_path, stack) -> State:
    if request.param == "redis":
        return shared(request.getfixturevalue("redis"), stack)
    tmp_path.chmod(0o700)
    kept = {}

    def once(what, make):
        return kept.setdefault(what, None) or kept.update({what: make()}) or kept[what]

    def open_ledger():
        found = LocalLedger(tmp_path / "images.sqlite")
        stack.callback(found.close)
        return found

    return State(
        open_ledger,
        lambda **limits: once("keys", lambda: KeyStore(StoreLimits(**limits), tmp_path / "keys")),
        lambda folder=None, limit=None, days=30.0: once("prepared", lambda: PreparedWork(folder, limit, days)),
    )


def send(registration: Registration, keys: bytes) -> None:
    for piece in split(keys):
        registration.add(piece)
    registration.settle()


def put(store: KeyRegistry, client: str, keys: bytes, most: int = 4) -> bytes:
    key_id = hashlib.sha256(keys).digest()
    registration = store.receive(client, key_id, len(keys), most)
    try:
        send(registration, keys)
        registration.finish()
    finally:
        registration.cancel()
    return key_id


def at_once(function: Callable[[int], object], threads: int) -> list[object]:
    """What a function returns to threads that call it at the same time."""
    ready = threading.Barrier(threads)

    def called(number: int) -> object:
        ready.wait()
        return function(number)

    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(called, range(threads))]


@pytest.mark.parametrize("quota", [Quota(images=50), Quota(images_hour=50)])
def test_quotas_are_exact_under_threads_of_two_replicas(state, quota):
    replicas = [Quotas(quota, ledger=state.ledger()) for _ in range(2)]

    def begun(number):
        count = 0
        for _ in range(10):
            with suppress(ServiceError):
                replicas[number % 2].images("alice")
                count += 1
        return count

    assert sum(at_once(begun, 8)) == 50
    replicas[0].images("bob", 50)
    with pytest.raises(RuleError, match=r"a client may begin 50 images .*: got one more"):
        replicas[1].images("bob")


def test_what_does_not_fit_whole_is_not_counted(state):
    quotas = Quotas(Quota(images=3), ledger=state.ledger())
    quotas.images("alice", 2)
    with pytest.raises(RuleError, match="3 images in all: got 2 more"):
        quotas.images("alice", 2)
    quotas.images("alice")


def test_an_hour_says_when_there_is_room_again(state):
    quotas = Quotas(Quota(images_hour=1), ledger=state.ledger())
    quotas.images("alice")
    with pytest.raises(ServiceError, match="1 images an hour") as refused:
        quotas.images("alice")
    assert 3500 < refused.value.retry_after_s <= 3601


@pytest.mark.parametrize("keys", [SMALL, LARGE, b""])
def test_keys_that_one_replica_took_another_finds(state, keys):
    key_id = put(state.keys(), "alice", keys)
    other = state.keys()
    assert other.load("alice", key_id) == keys
    assert other.size == len(keys)
    assert 29 * DAY < other.seconds_left("alice", key_id) <= 30 * DAY
    assert other.seconds_left("bob", key_id) == 0
    other.forget("alice", key_id)
    with pytest.raises(RuleError, match="a session's keys must be registered, and not expired"):
        state.keys().load("alice", key_id)


def test_the_quota_and_the_room_of_keys_are_of_all_replicas(state):
    stores = [state.keys(gigabytes=1e-8), state.keys(gigabytes=1e-8)]
    ids = [put(stores[number % 2], "alice", bytes([number]), most=2) for number in range(3)]
    assert [stores[0].seconds_left("alice", key_id) > 0 for key_id in ids] == [False, True, True]
    coming = stores[0].receive("bob", bytes(32), 8, 2)
    with pytest.raises(RuleError, match="must have room for keys, of 10 bytes: got 1 bytes more"):
        stores[1].receive("carol", bytes(32), 1, 2)
    coming.cancel()
    assert stores[1].size == 2
    stores[1].receive("carol", bytes(32), 1, 2).cancel()


def test_of_two_keys_of_one_millisecond_the_first_goes_first(state):
    store = state.keys()
    for number in range(20):
        key_ids = [hashlib.sha256(bytes([number, which])).digest() for which in range(2)]
        registrations = [store.receive("alice", key_id, 2, 4) for key_id in key_ids]
        for which, registration in enumerate(registrations):
            send(registration, bytes([number, which]))
        for registration in registrations:
            registration.finish()
        for registration in registrations:
            registration.cancel()
        put(store, "alice", b"another", most=2)
        assert [store.seconds_left("alice", key_id) > 0 for key_id in key_ids] == [False, True]
        store.forget("alice", hashlib.sha256(b"another").digest())
        store.forget("alice", key_ids[1])


def test_a_serial_is_claimed_once_by_threads_of_two_replicas(state, tmp_path):
    replicas = [state.prepared(tmp_path / "prepared").of(ALICE) for _ in range(2)]
    serials = [bytes([number]) * 16 for number in range(20)]
    for serial in serials:
        replicas[0].put(serial, serial)

    def taken(number):
        found = []
        for serial in serials:
            try:
                found.append(bytes(replicas[number % 2].take(serial)))
            except UnusablePreparationError:
                continue
        return found

    assert sorted(body for found in at_once(taken, 16) for body in found) == serials
    assert replicas[1].serials() == []


def test_prepared_inferences_are_counted_over_replicas(state, tmp_path):
    replicas = [state.prepared(tmp_path / "prepared", limit=6) for _ in range(2)]
    stores = [one.of(ALICE, lambda: 2) for one in replicas]
    stores[0].put(bytes([1]) * 16, b"one")
    stores[1].put(bytes([2]) * 16, b"two")
    assert stores[0].serials() == stores[1].serials() == [bytes([1]) * 16, bytes([2]) * 16]
    assert [one.count("alice") for one in replicas] == [2, 2]
    with pytest.raises(RuleError, match=r"must fit into 6 bytes: got 6 bytes and 1 more"):
        stores[1].put(bytes([3]) * 16, b"3")
    with pytest.raises(RuleError, match="a client may have 2 inferences prepared: got one more"):
        stores[1].put(bytes([3]) * 16, b"")
    with pytest.raises(RuleError, match="must have a serial of its own"):
        stores[1].put(bytes([1]) * 16, b"")
    assert stores[1].take(bytes([1]) * 16) == b"one"


@pytest.mark.parametrize(("limit", "most", "kept"), [(None, 5, 5), (70, None, 7)])
def test_nobody_prepares_more_than_there_is_room_for(state, tmp_path, limit, most, kept):
    replicas = [state.prepared(tmp_path / "prepared", limit).of(ALICE, lambda: most) for _ in range(2)]

    def prepared(number):
        with suppress(RuleError):
            replicas[number % 2].put(bytes([number]) * 16, bytes(10))
            return True

    assert at_once(prepared, 16).count(True) == kept
    assert len(replicas[0].serials()) == len([*(tmp_path / "prepared").glob("*.prepared")]) == kept


def back(*parts) -> None:
    """Wait until ledgers, stores and inventories have seen that Redis is there again."""
    until(lambda: not any(part._link._lost for part in parts))


def test_counts_and_claims_survive_a_redis_that_is_killed(redis, stack, tmp_path, monkeypatch):
    monkeypatch.setattr(link, "_PAUSE_S", 0.05)
    lines = []
    opened = shared(redis, stack, lines)
    quotas, keys, work = Quotas(Quota(images=3), ledger=opened.ledger()), opened.keys(), opened.prepared(tmp_path / "p")
    quotas.images("alice", 2)
    key_id = put(keys, "alice", LARGE)
    for number in (1, 2):
        work.of(ALICE).put(bytes([number]) * 16, b"body")
    (used,) = [path for path in (tmp_path / "p").iterdir() if (bytes([1]) * 16).hex() in path.name]
    copy = used.read_bytes()
    work.of(ALICE).take(bytes([1]) * 16)
    redis.kill()
    with pytest.raises(SharedStateUnavailableError):
        quotas.images("alice")
    used.write_bytes(copy)
    redis.start()
    back(quotas._ledger)
    quotas.images("alice")
    with pytest.raises(RuleError, match="3 images in all"):
        quotas.images("alice")
    assert keys.load("alice", key_id) == LARGE
    with pytest.raises(UnusablePreparationError):
        work.of(ALICE).take(bytes([1]) * 16)
    assert work.of(ALICE).take(bytes([2]) * 16) == b"body"
    assert any("is out of reach" in line for line in lines)
    assert any("is within reach again" in line for line in lines)


def test_a_redis_that_is_gone_is_asked_once(redis, stack, monkeypatch):
    """Everything is refused with when to come again, and only the first call waits for it."""
    opened = shared(redis, stack)
    quotas, keys, work = Quotas(ledger=opened.ledger()), opened.keys(), opened.prepared()
    asked = []
    for part in (quotas._ledger._link, keys._link, work._inventory._link):
        call = part._redis.execute_command
        monkeypatch.setattr(
            part._redis, "execute_command", lambda *a, call=call, **k: (asked.append(1), call(*a, **k))[1]
        )
    assert quotas._ledger.reachable()
    redis.kill()
    calls = [
        lambda: quotas.images("alice"),
        lambda: quotas.session("alice", 4).__enter__(),
        lambda: keys.load("alice", bytes(32)),
        lambda: keys.receive("alice", bytes(32), 1, 1),
        lambda: work.of(ALICE).take(bytes(16)),
    ]
    for call in [*calls, *calls]:
        with pytest.raises(
            SharedStateUnavailableError, match=r"a server must reach the state that it shares: .*; come again in 2 s"
        ):
            call()
    assert not quotas._ledger.reachable()
    assert len(asked) == 1 + 3, "once through each connection"
