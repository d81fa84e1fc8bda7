"""Prepared work in its store: nobody gets any of it twice, nor another's, nor damaged, whatever happens to a process."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline import store_files
from privcirnet.he.protocol.offline.store import Binding, MemoryStore, PreparedWork
from privcirnet.he.protocol.offline.store_files import UnusablePreparationError
from tests.conftest import ROOT

BODY = bytes(range(256)) * 16
ALICE = Binding(bytes([1]) * 32, "alice", bytes([2]) * 32)
DAY = 86_400.0


@pytest.fixture(params=["memory", "folder"])
def prepared_work(request, tmp_path):
    found = PreparedWork(tmp_path / "prepared" if request.param == "folder" else None)
    yield found
    found.close()


def serial() -> bytes:
    return secrets.token_bytes(16)


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix in (".prepared", ".draft"))


def test_what_is_put_is_taken_once(prepared_work):
    store = prepared_work.of(ALICE)
    first, second = serial(), serial()
    store.put(first, BODY)
    store.put(second, b"")
    with pytest.raises(RuleError, match="must have a serial of its own"):
        store.put(first, b"other")
    assert store.serials() == [first, second]
    assert store.size == prepared_work.size == len(BODY)
    assert store.take(first) == BODY
    with pytest.raises(UnusablePreparationError, match=r"must be there and whole: got none of serial [0-9a-f]{32}"):
        store.take(first)
    assert store.take(second) == b""
    assert store.serials() == []
    assert store.size == 0


@pytest.mark.parametrize(
    "other",
    [
        Binding(bytes([3]) * 32, "alice", bytes([2]) * 32),
        Binding(bytes([1]) * 32, "bob", bytes([2]) * 32),
        Binding(bytes([1]) * 32, "alice", bytes([3]) * 32),
    ],
    ids=["program", "peer", "owner"],
)
def test_another_binding_finds_nothing(prepared_work, other):
    known = serial()
    prepared_work.of(ALICE).put(known, BODY)
    assert prepared_work.of(other).serials() == []
    with pytest.raises(UnusablePreparationError):
        prepared_work.of(other).take(known)
    prepared_work.of(other).drop(known)
    assert prepared_work.of(ALICE).take(known) == BODY


def test_lengths_of_names_are_checked():
    with pytest.raises(RuleError, match="an owner of prepared work must have 32 bytes: got 31 bytes"):
        Binding(bytes(32), "alice", bytes(31))
    with pytest.raises(RuleError, match="a serial must have 16 bytes: got 17 bytes"):
        MemoryStore().take(bytes(17))


def test_no_serial_is_taken_twice_by_threads(prepared_work):
    """More threads than serials, all at once, each after each serial."""
    store, serials = prepared_work.of(ALICE), [serial() for _ in range(20)]
    for number, known in enumerate(serials):
        store.put(known, bytes([number]))
    barrier = threading.Barrier(8)

    def take_all(_):
        barrier.wait()
        found = []
        for known in serials:
            try:
                found.append(store.take(known))
            except UnusablePreparationError:
                continue
        return found

    with ThreadPoolExecutor(8) as pool:
        taken = [body for found in pool.map(take_all, range(8)) for body in found]
    assert sorted(taken) == [bytes([number]) for number in range(20)]


def test_no_serial_is_taken_twice_even_without_the_lock(tmp_path, monkeypatch):
    """Two objects on one folder, which the lock excludes: who removes the claim has it."""
    monkeypatch.setattr(store_files.fcntl, "flock", lambda *_: None)
    store, known = PreparedWork(tmp_path / "prepared").of(ALICE), serial()
    store.put(known, BODY)
    other = PreparedWork(tmp_path / "prepared").of(ALICE)
    assert other.take(known) == BODY
    with pytest.raises(UnusablePreparationError, match="none of serial"):
        store.take(known)


def test_two_processes_do_not_share_a_folder(tmp_path):
    with_lock = PreparedWork(tmp_path / "prepared")
    program = (
        "import sys; from pathlib import Path; from privcirnet.he.protocol.offline.store import PreparedWork; "
        "PreparedWork(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "prepared")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "must have one process at a time: got " in done.stderr
    with_lock.close()
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_everything_is_found_again(tmp_path):
    folder, serials = tmp_path / "prepared", [serial() for _ in range(5)]
    before = PreparedWork(folder)
    for number, known in enumerate(serials):
        before.of(ALICE).put(known, bytes([number]))
    before.of(ALICE).take(serials[2])
    owner = before.owner
    before.close()
    after = PreparedWork(folder)
    assert after.owner == owner
    assert after.of(ALICE).serials() == [*serials[:2], *serials[3:]]
    assert after.of(ALICE).take(serials[3]) == b"\x03"
    assert (folder.stat().st_mode & 0o777, {path.stat().st_mode & 0o777 for path in folder.iterdir()}) == (
        0o700,
        {0o600},
    )


def test_a_folder_that_others_can_read_is_refused(tmp_path):
    (tmp_path / "prepared").mkdir(mode=0o755)
    with pytest.raises(RuleError, match="must be its owner's alone"):
        PreparedWork(tmp_path / "prepared")


def test_a_damaged_owner_is_replaced(tmp_path):
    notes = []
    first = PreparedWork(tmp_path / "prepared")
    owner = first.owner
    first.close()
    (tmp_path / "prepared" / "owner").write_bytes(owner[:-1])
    assert PreparedWork(tmp_path / "prepared", note=notes.append).owner != owner
    assert notes[0].endswith("owner was damaged: earlier prepared work is not used any more")


@given(data=st.data())
def test_an_edited_or_truncated_file_is_removed_unused(tmp_path_factory, data):
    """Any byte changed, any end cut off or appended: while the store is open, or before it was."""
    folder, notes, known = tmp_path_factory.mktemp("edited") / "prepared", [], serial()
    prepared_work = PreparedWork(folder, note=notes.append)
    prepared_work.of(ALICE).put(known, BODY)
    (name,) = files(folder)
    content = (folder / name).read_bytes()
    if data.draw(st.booleans(), "truncate"):
        damaged = content[: data.draw(st.integers(0, len(content) - 1))]
    elif data.draw(st.booleans(), "append"):
        damaged = content + data.draw(st.binary(min_size=1, max_size=50))
    else:
        place = data.draw(st.integers(0, min(400, len(content) - 1)) | st.integers(0, len(content) - 1))
        damaged = content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
    (folder / name).write_bytes(damaged)
    if data.draw(st.booleans(), "reopened"):
        prepared_work.close()
        prepared_work = PreparedWork(folder, note=notes.append)
    with pytest.raises(UnusablePreparationError, match="prepared work must be there and whole"):
        prepared_work.of(ALICE).take(known)
    assert files(folder) == []
    prepared_work.close()


def test_a_file_of_another_name_is_removed(tmp_path):
    """A copy under another serial, such as somebody would make to use prepared work twice."""
    folder, notes, known, copy = tmp_path / "prepared", [], serial(), serial()
    before = PreparedWork(folder)
    before.of(ALICE).put(known, BODY)
    before.close()
    (name,) = files(folder)
    (folder / name.replace(known.hex(), copy.hex())).write_bytes((folder / name).read_bytes())
    after = PreparedWork(folder, note=notes.append)
    assert after.of(ALICE).serials() == [known]
    assert files(folder) == [name]
    assert "was removed unused: it belongs to another name" in notes[0]


def test_a_full_disk_leaves_nothing_half_written(tmp_path, file_limit):
    folder = tmp_path / "prepared"
    store, first, second = PreparedWork(folder).of(ALICE), serial(), serial()
    store.put(first, b"small")
    file_limit(1000)
    with pytest.raises(RuleError, match=r"must be kept on a disk: got .*: File too large; make room"):
        store.put(second, BODY)
    assert len(files(folder)) == 1
    assert store.serials() == [first]
    store.put(second, b"also small")
    assert (store.take(first), store.take(second)) == (b"small", b"also small")


@pytest.mark.parametrize("place", ["fsync", "replace"])
def test_an_error_of_the_disk_keeps_nothing(tmp_path, monkeypatch, place):
    folder = tmp_path / "prepared"
    store, known = PreparedWork(folder).of(ALICE), serial()

    def broken(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(*((store_files.os, "fsync") if place == "fsync" else (store_files.Path, "replace")), broken)
        with pytest.raises(RuleError, match="Input/output error"):
            store.put(known, BODY)
    assert files(folder) == store.serials() == []
    store.put(known, BODY)
    with monkeypatch.context() as patch:
        patch.setattr(store_files.os, "fsync", broken)
        with pytest.raises(RuleError, match="Input/output error"):
            store.take(known)
    with pytest.raises(UnusablePreparationError):
        store.take(known)


def test_the_limit_is_for_all_and_refuses(prepared_work):
    limited = PreparedWork(limit=2 * len(BODY))
    first, second = limited.of(ALICE), limited.of(Binding(peer="bob"))
    known = serial()
    first.put(known, BODY)
    second.put(serial(), BODY)
    with pytest.raises(RuleError, match=r"must fit into 8192 bytes: got 8192 bytes and 1 more"):
        second.put(serial(), b"1")
    first.drop(known)
    second.put(serial(), b"1")


def test_what_is_too_old_goes(tmp_path):
    now, notes = [1e9], []
    prepared_work = PreparedWork(days=2, clock=lambda: now[0], note=notes.append)
    store, known = prepared_work.of(ALICE), serial()
    store.put(known, BODY)
    now[0] += 1.9 * DAY
    assert store.serials() == [known]
    now[0] += 0.2 * DAY
    with pytest.raises(UnusablePreparationError):
        store.take(known)
    assert notes == ["prepared work of 1 inferences was removed unused: older than 2 days"]


def test_other_programs_go(prepared_work):
    new = Binding(bytes([9]) * 32, "alice", ALICE.owner)
    stays, goes, bobs = serial(), serial(), serial()
    prepared_work.of(ALICE).put(goes, BODY)
    prepared_work.of(new).put(stays, BODY)
    prepared_work.of(Binding(ALICE.program, "bob")).put(bobs, BODY)
    assert prepared_work.retain([new.program], peer="alice") == 1
    assert prepared_work.count("alice") == prepared_work.count("bob") == 1
    assert prepared_work.retain([new.program]) == 1
    assert prepared_work.of(new).serials() == [stays]


def test_what_a_lost_client_left_makes_room(prepared_work):
    """The oldest of other owners of the same peer; never the owner's own, nor another peer's."""
    lost = Binding(ALICE.program, "alice", bytes([7]) * 32)
    old, newer, mine = serial(), serial(), serial()
    prepared_work.of(lost).put(old, BODY)
    prepared_work.of(lost).put(newer, BODY)
    prepared_work.of(ALICE).put(mine, BODY)
    prepared_work.of(Binding(ALICE.program, "bob")).put(serial(), BODY)
    prepared_work.make_room(ALICE, 3)
    assert prepared_work.of(lost).serials() == [newer]
    prepared_work.make_room(ALICE, 1)
    assert prepared_work.of(lost).serials() == []
    assert prepared_work.of(ALICE).serials() == [mine]
    assert prepared_work.count("bob") == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from privcirnet.he.protocol.offline import store_files
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.offline.store import Binding

folder, what, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = PreparedWork(folder).of(Binding(bytes([1]) * 32, "alice", bytes([2]) * 32))
seen = 0

def killing(function):
    def wrapped(*arguments, **more):
        global seen
        for _ in range(2):  # before the call and after it
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
            if _ == 0:
                found = function(*arguments, **more)
        return found
    return wrapped

for owner, name in ((os, "open"), (os, "fsync"), (Path, "replace"), (Path, "open"), (Path, "unlink")):
    setattr(owner, name, killing(getattr(owner, name)))
serial = bytes.fromhex(sys.argv[4])
if what == "put":
    store.put(serial, bytes(range(256)) * 16)
else:
    body = store.take(serial)
    os.write(1, body)
os.write(2, b"done")
"""


@pytest.mark.parametrize(("what", "restored"), [("put", False), ("take", False), ("take", True)])
def test_killed_at_every_step(tmp_path, what, restored):
    """After each of them prepared work is there whole, or gone; what was handed out is gone, and a draft does not stay.

    That is so too if the folder is restored as it was before.
    """
    outcomes, step = [], 0
    while True:
        folder, known = tmp_path / str(step), serial()
        before = PreparedWork(folder)
        if what == "take":
            before.of(ALICE).put(known, BODY)
        before.close()
        shutil.copytree(folder, backup := tmp_path / f"{step} before")
        command = [sys.executable, "-c", KILLED, str(folder), what, str(step), known.hex()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if restored:
            shutil.rmtree(folder)
            backup.rename(folder)
        after = PreparedWork(folder)
        left = after.of(ALICE).serials()
        assert not list(folder.glob("*.draft"))
        if left:
            assert after.of(ALICE).take(known) == BODY
        after.close()
        if done.stderr == b"done":
            assert bool(left) == (what == "put")
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert done.stdout == b""
        outcomes.append(bool(left))
        step += 1
    assert len(outcomes) >= 8
    assert {True, False} == set(outcomes)
    assert outcomes == sorted(outcomes, reverse=what == "take"), "it changes once"


def test_killed_while_many_take(tmp_path):
    """A process that takes one after the other is killed: what it handed out is not there, the others are whole."""
    program = (
        "import os, sys; from pathlib import Path; from privcirnet.he.protocol.offline.store import Binding; from privcirnet.he.protocol.offline.store import PreparedWork\n"
        "store = PreparedWork(Path(sys.argv[1])).of(Binding(bytes([1]) * 32, 'alice', bytes([2]) * 32))\n"
        "for serial in store.serials():\n"
        "    store.take(serial); os.write(1, serial)\n"
    )
    folder = tmp_path / "prepared"
    before, serials = PreparedWork(folder), {serial() for _ in range(200)}
    for known in serials:
        before.of(ALICE).put(known, BODY)
    before.close()
    with subprocess.Popen([sys.executable, "-c", program, str(folder)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        taken = process.stdout.read(16 * 20)
        os.kill(process.pid, signal.SIGKILL)
        taken += process.stdout.read()
    after = PreparedWork(folder).of(ALICE)
    left, handed = set(after.serials()), {taken[start : start + 16] for start in range(0, len(taken), 16)}
    assert not left & handed
    assert left | handed <= serials
    assert len(serials - left - handed) <= 1, "but for the one that it had in its hands"
    assert all(after.take(known) == BODY for known in left)
