"""A program and its sessions begin both parties once, and use nothing twice, whatever ends them."""

import copy
import gc
import hashlib
import os
import pickle
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Barrier, Thread, get_ident

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import CleartextClient
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties import server
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.ring import sampling
from privcirnet.runs import interactive
from privcirnet.runs.compiled import CompiledProgram
from tests.he.mpc.ot import toy_base
from tests.he.networks import network, random_image
from tests.service.running import digests_of_masks
from tests.service.test_exact_faults import PROGRAM as EXACT

CLEAR = {"engine": "cleartext", "weights_gb": 1.0}


@dataclass
class Seen:
    """Servers, clients and oblivious transfers that were begun, digests of preparations' messages and of all draws."""

    servers: list[weakref.ref[Server]] = field(default_factory=list)
    clients: list[weakref.ref[Client]] = field(default_factory=list)
    keys: int = 0
    transfers: int = 0
    messages: list[bytes] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)

    @property
    def begun(self) -> tuple[int, int, int, int]:
        return len(self.servers), len(self.clients), self.keys, self.transfers


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    found = Seen()
    monkeypatch.setattr(sampling, "uniform", sampling.uniform)  # as it was, in the end
    digests_of_masks(lambda line: found.drawn.append(line.strip()))
    toy_base.put(monkeypatch)
    server, client, keys, handle = Server.__init__, Client.__init__, Client.keys, Session.handle

    def begin_server(self: Server, *given: object, **named: object) -> None:
        found.servers.append(weakref.ref(self))
        server(self, *given, **named)

    def begin_client(self: Client, *given: object, **named: object) -> None:
        found.clients.append(weakref.ref(self))
        client(self, *given, **named)

    def make_keys(self: Client) -> bytes:
        found.keys += 1
        return keys(self)

    def note(self: Session, message: bytes) -> bytes:
        found.transfers += wire.begins(message) == wire.TRANSFERS
        found.threads.append(get_ident())
        if wire.is_offline(message) and len(message) > 200:
            found.messages.append(hashlib.sha256(message).digest())
        return handle(self, message)

    monkeypatch.setattr(Server, "__init__", begin_server)
    monkeypatch.setattr(Client, "__init__", begin_client)
    monkeypatch.setattr(Client, "keys", make_keys)
    monkeypatch.setattr(Session, "handle", note)
    yield found
    for each in (found.drawn, found.messages):
        assert not each or Counter(each).most_common(1)[0][1] == 1, "something was used twice"


@pytest.fixture(params=["exact", "square"])
def integer(request: pytest.FixtureRequest) -> Program:
    """An exact ReLU; or a square, and truncations that may be one unit off."""
    return EXACT if request.param == "exact" else network()


def images_of(integer: Program, count: int = 1, seed: int = 0) -> np.ndarray:
    images = np.stack([random_image(integer, seed + each) for each in range(count)])
    return images * 2.0 ** integer.nodes[0].log_step


def right(program: CompiledProgram, images: np.ndarray, logits: np.ndarray) -> bool:
    """Whether logits are the integer network's: bit for bit, or as far as truncations at random allow."""
    integer, output = program.integer, program.integer.output
    wanted = np.stack([interpret(integer, image)[output.name].ravel() for image in program.integers(images)])
    off = np.abs(logits / 2.0**output.log_step - wanted).max()
    return bool(off <= (0 if integer is EXACT else 0.1 * np.abs(wanted).max()))


def test_the_second_call_begins_nothing(integer: Program, seen: Seen) -> None:
    program, begun = CompiledProgram(integer), list[tuple[int, int, int, int]]()
    for call in range(3):
        images = images_of(integer, 1 + call % 2, seed=10 * call)
        assert right(program, images, program(images, check=call == 1, engine="cleartext"))
        begun.append(seen.begun)
    assert begun[0] == begun[1] == begun[2]
    assert begun[0][:3] == (1, 1, 1)
    assert bool(begun[0][3]) == (integer is EXACT)


def test_other_settings_begin_other_parties_in_their_place(seen: Seen) -> None:
    program, images = CompiledProgram(network()), images_of(network())
    program(images, engine="cleartext")
    program(images, engine="cleartext", weights_gb=0.5)
    gc.collect()
    assert [each() is not None for each in seen.servers] == [False, True]
    program(images, engine="cleartext", weights_gb=0.5)
    assert len(seen.servers) == 2


def test_a_session_takes_prepared_inferences_while_there_are_any(integer: Program, seen: Seen) -> None:
    notes = list[tuple[str, float]]()

    @contextmanager
    def bar(description: str, total: int) -> Iterator[Callable[..., None]]:
        yield lambda note="", by=1, to=None, of=None: notes.append((description, (to or 0) / max(total, 1)))

    program = CompiledProgram(integer, bar=bar)
    with program.session(prepare=3, engine="cleartext") as session:
        assert session.prepared == 3
        assert {name for name, _ in notes} == {"Preparing inferences"}
        assert [part for _, part in notes] == sorted(part for _, part in notes)
        assert notes[-1][1] == 1
        begun, images = seen.begun, images_of(integer, 4)
        for each, left in enumerate((2, 1, 0, 0)):
            assert right(program, images[each : each + 1], session(images[each : each + 1], check=each == 1))
            assert session.prepared == left
        session.prepare(1)
        assert str(session).startswith("session of engine cleartext: 1 inferences prepared; 4 images, ")
        assert right(program, images[:2], session(images[:2]))
        assert seen.begun == begun
    assert str(session) == "session of engine cleartext, closed"


def test_a_session_counts_what_is_sent(seen: Seen) -> None:
    program, images = CompiledProgram(network()), images_of(network(), 2)
    with program.session(engine="cleartext") as session:
        assert str(session).endswith("0 images, 0.00 MB and 0 rounds, with keys and preparation")
        session(images)
        sent = session._parties.sent
        assert (sent.images, sent.rounds) == (2, len(seen.threads))
        assert f"{sent.bytes / 1e6:.2f} MB and {sent.rounds} rounds" in str(session)


@pytest.mark.parametrize("prepare", [0, 1])
def test_shares_are_kept_for_an_audit_alone(prepare: int, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """One session is checked and not checked, in turns: a server that nobody watches zeroes each share after its use."""
    forgotten, forget, audits = [], server.zero, []
    wrong_nodes = interactive.wrong_nodes
    monkeypatch.setattr(server, "zero", lambda held, names: forgotten.extend(names) or forget(held, names))
    monkeypatch.setattr(interactive, "wrong_nodes", lambda *given: audits.append(1) or wrong_nodes(*given))
    program, images = CompiledProgram(EXACT), images_of(EXACT)
    with program.session(prepare, engine="cleartext") as session:
        for check in (False, True, False, True):
            forgotten.clear()
            session(images, check=check)
            assert bool(forgotten) != check
    assert len(audits) == 2


@pytest.mark.parametrize(
    ("when", "error"),
    [("before", RuleError("a server must", got="not", remedy="again")), ("after", KeyboardInterrupt())],
    ids=["refused before a message", "interrupted after one"],
)
def test_a_call_that_ends_in_the_middle_is_followed_by_a_right_one(
    integer: Program, seen: Seen, monkeypatch: pytest.MonkeyPatch, when: str, error: BaseException
) -> None:
    """At some message. What was drawn for it is not used again."""
    program, images = CompiledProgram(integer), images_of(integer)
    program(images, **CLEAR)
    first = len(seen.threads)
    program(images, **CLEAR)
    handle, most = Session.handle, len(seen.threads) - first
    for number in range(0, most, 1 + most // 6):
        left = [number]

        def broken(self: Session, message: bytes, left: list[int] = left) -> bytes:
            left[0] -= 1
            if left[0] == -1 and when == "before":
                raise error
            reply = handle(self, message)
            if left[0] == -1:
                raise error
            return reply

        servers = len(seen.servers)
        with monkeypatch.context() as patch:
            patch.setattr(Session, "handle", broken)
            with pytest.raises(type(error)):
                program(images, **CLEAR)
        assert right(program, images, program(images, **CLEAR))
        assert len(seen.servers) == servers + 1


def test_a_beginning_that_is_interrupted(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    program, images = CompiledProgram(network()), images_of(network())
    with monkeypatch.context() as patch:
        patch.setattr(Server, "session", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            program(images, **CLEAR)
    assert right(program, images, program(images, **CLEAR))


def test_images_that_are_refused_leave_the_session(seen: Seen) -> None:
    program, images = CompiledProgram(network()), images_of(network())
    with program.session(prepare=1, engine="cleartext") as session:
        for given in (images[0], 1000 * images, images[:0]):
            with pytest.raises(RuleError, match=r"images must|pixels must|must be images"):
                session(given)
        assert session.prepared == 1


def test_prepared_inferences_are_dropped_by_a_failure(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    program, images = CompiledProgram(EXACT), images_of(EXACT)
    with program.session(prepare=2, engine="cleartext") as session:
        with monkeypatch.context() as patch:
            patch.setattr(Session, "handle", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                session(images)
        assert session.prepared == 0
        assert right(program, images, session(images))


def test_closed(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is free at once, without a collection; keys are closed. A program begins anew, a session does not."""
    closed, close = [], CleartextClient.close
    monkeypatch.setattr(CleartextClient, "close", lambda self: closed.append(self) or close(self))
    program, images = CompiledProgram(network()), images_of(network())
    program.close()
    session = program.session(engine="cleartext")
    gc.disable()
    try:
        for number, each in enumerate((program, session), start=1):
            _ = program(images, engine="cleartext") if each is program else session(images)
            assert len(closed) == number - 1
            each.close()
            each.close()
            assert len(closed) == number
            assert [seen.servers[-1](), seen.clients[-1]()] == [None, None]
    finally:
        gc.enable()
    for use in (lambda: session(images), lambda: session.prepare(1)):
        with pytest.raises(RuleError, match=r"a session must be open: got a closed one; begin another: program\.ses"):
            use()
    assert right(program, images, program(images, engine="cleartext"))


def test_garbage_is_collected(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """References alone end it: there is no cycle from the program to its parties and back."""
    closed, close = [], Client.close
    monkeypatch.setattr(Client, "close", lambda self: closed.append(1) or close(self))
    images = images_of(network())
    gc.disable()
    try:
        for make in (lambda: CompiledProgram(network()), lambda: CompiledProgram(network()).session(**CLEAR)):
            used = make()
            _ = used(images) if not isinstance(used, CompiledProgram) else used(images, **CLEAR)
            assert len(closed) == len(seen.servers) - 1
            del used
            assert len(closed) == len(seen.servers)
            assert [seen.servers[-1](), seen.clients[-1]()] == [None, None]
    finally:
        gc.enable()


def through_pickle(program: CompiledProgram) -> CompiledProgram:
    return pickle.loads(pickle.dumps(program))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, replace, through_pickle])
def test_copies_share_nothing(copied: Callable[[CompiledProgram], CompiledProgram], seen: Seen) -> None:
    program, images = CompiledProgram(network()), images_of(network())
    program(images, **CLEAR)
    other = copied(program)
    assert right(other, images, other(images, **CLEAR))
    assert len(seen.servers) == len(seen.clients) == 2
    del other
    program(images, **CLEAR)
    assert len(seen.servers) == 2
    assert str(copied(program)) == str(program)


def test_threads_take_turns(integer: Program, seen: Seen) -> None:
    """No image is between two messages of another, and the session is one."""
    program, images = CompiledProgram(integer), images_of(integer, 3)
    found, ready = dict[int, np.ndarray](), Barrier(3)

    def work(number: int) -> None:
        ready.wait()
        found[number] = program(images[number : number + 1], **CLEAR)

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(right(program, images[n : n + 1], found[n]) for n in range(3))
    assert len(seen.servers) == 1
    assert sum(a != b for a, b in zip(seen.threads, seen.threads[1:], strict=False)) == 2


def test_a_copy_of_the_process_begins_its_own(integer: Program, seen: Seen) -> None:
    """And has forgotten its parent's keys, also where another thread of the parent was in the middle of an image."""
    program, images = CompiledProgram(integer), images_of(integer)
    session = program.session(prepare=1, **CLEAR)
    program(images, **CLEAR)
    servers, clients = len(seen.servers), [each() for each in seen.clients]
    with program._parties._lock:  # another thread's
        if not (child := os.fork()):
            try:
                fine = [client._engine is None for client in clients] == [True, True]
                fine &= session.prepared == 0
                fine &= right(program, images, program(images, **CLEAR)) and right(program, images, session(images))
                os._exit(0 if fine and len(seen.servers) == servers + 2 else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.prepared == 1
    assert right(program, images, program(images, **CLEAR))
    assert right(program, images, session(images))
    assert len(seen.servers) == servers


@pytest.mark.parametrize("count", [-1, 1.5, "8", None])
def test_prepare_is_a_number_of_images(count: object) -> None:
    with pytest.raises(RuleError, match=r"prepare must be a whole number of images: got .*; use 8"):
        CompiledProgram(network()).session(count, engine="cleartext")


def test_a_single_image_has_no_batch_axis() -> None:
    program, images = CompiledProgram(network()), images_of(network())
    message = r"images must have a batch axis: got shape \(4, 8, 8\), a single one; give images\[:1\] or images\[None\]"
    with pytest.raises(RuleError, match=message):
        program(images[0])
