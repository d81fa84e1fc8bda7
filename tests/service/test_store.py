"""The store of evaluation keys: whose they are, how long, how many."""

import hashlib

import pytest

from privcirnet.errors import RuleError
from privcirnet.service.messages import split
from privcirnet.service.store import KeyStore, StoreLimits

DAY = 86_400.0
SMALL, LARGE = b"small", b"large" * 500_000


class Clock:
    now = 1_700_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def private(tmp_path):
    tmp_path.chmod(0o700)


def test_a_folder_that_others_can_read_is_refused_and_left_alone(tmp_path):
    tmp_path.chmod(0o750)
    with pytest.raises(
        RuleError, match=r"a folder with weights or keys must be its owner's alone: got .* with mode 750"
    ):
        KeyStore(folder=tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def put(store, client, keys, most=4, announced=None):
    key_id = hashlib.sha256(keys if announced is None else announced).digest()
    registration = store.receive(client, key_id, len(keys), most)
    try:
        for piece in split(keys):
            registration.add(piece)
        registration.settle()
        registration.finish()
    finally:
        registration.cancel()
    return key_id


@pytest.fixture(params=["memory", "folder"])
def folder(request, tmp_path):
    return tmp_path / "keys" if request.param == "folder" else None


@pytest.mark.parametrize("keys", [SMALL, LARGE])
def test_keys_are_found_by_their_owner_alone(folder, keys):
    store = KeyStore(folder=folder)
    key_id = put(store, "alice", keys)
    assert store.load("alice", key_id) == keys
    assert store.size == len(keys)
    assert store.seconds_left("bob", key_id) == 0
    with pytest.raises(RuleError, match="a session's keys must be registered, and not expired"):
        store.load("bob", key_id)


def test_keys_outlive_a_restart_and_drafts_do_not(tmp_path):
    key_id = put(KeyStore(folder=tmp_path), "alice", SMALL)
    (tmp_path / "killed.draft").write_bytes(b"half")
    again = KeyStore(folder=tmp_path)
    assert again.load("alice", key_id) == SMALL
    assert [path.suffix for path in tmp_path.iterdir()] == [".keys"]
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert next(tmp_path.iterdir()).stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_is_no_key(tmp_path):
    store = KeyStore(folder=tmp_path)
    key_id = put(store, "alice", SMALL)
    next(tmp_path.iterdir()).write_bytes(b"smalk")
    with pytest.raises(RuleError, match="register them again"):
        store.load("alice", key_id)
    assert not list(tmp_path.iterdir())


def test_keys_expire(folder):
    clock = Clock()
    store = KeyStore(StoreLimits(days=2), folder, clock)
    key_id = put(store, "alice", SMALL)
    clock.now += 1.9 * DAY
    assert 0 < store.seconds_left("alice", key_id) < 0.2 * DAY
    clock.now += 0.2 * DAY
    with pytest.raises(RuleError, match="not expired"):
        store.load("alice", key_id)
    assert store.size == 0


def test_a_full_store_says_when_to_come_again(folder):
    clock = Clock()
    store = KeyStore(StoreLimits(gigabytes=1e-8, days=1), folder, clock)
    key_id = put(store, "alice", SMALL)
    clock.now += 0.75 * DAY
    with pytest.raises(RuleError, match="must have room for keys, of 10 bytes: got 6 bytes more") as refused:
        put(store, "bob", b"larger")
    assert 0.24 * DAY < refused.value.retry_after_s < 0.26 * DAY
    assert store.load("alice", key_id) == SMALL
    put(store, "bob", b"tiny")


def test_what_is_being_received_counts(folder):
    store = KeyStore(StoreLimits(gigabytes=1e-8), folder)
    registration = store.receive("alice", bytes(32), 8, 4)
    with pytest.raises(RuleError, match="must have room"):
        store.receive("bob", bytes(32), 8, 4)
    registration.cancel()
    store.receive("bob", bytes(32), 8, 4).cancel()
    assert store.size == 0


def test_a_clients_oldest_keys_make_room_for_its_new_ones(folder):
    clock = Clock()
    store = KeyStore(folder=folder, clock=clock)
    ids = []
    for number in range(3):
        clock.now += 1
        ids.append(put(store, "alice", bytes([number]), most=2))
    other = put(store, "bob", SMALL, most=2)
    assert [store.seconds_left("alice", key_id) > 0 for key_id in ids] == [False, True, True]
    assert store.load("bob", other) == SMALL


def test_keys_that_are_not_what_was_announced(folder):
    store = KeyStore(folder=folder)
    with pytest.raises(RuleError, match="keys must have the SHA-256 that was announced"):
        put(store, "alice", SMALL, announced=LARGE)
    assert store.size == 0


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "mine.keys").write_text("x")
    with pytest.raises(RuleError, match="the store of keys must be a folder of its own"):
        KeyStore(folder=tmp_path)
