"""A connection of one process, and of one thread at a time."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from tests.he.networks import network, random_image
from tests.service.running import serving, until

IMAGE = random_image(network())
SHAPE = interpret(network(), IMAGE)["head"].shape


@pytest.fixture
def remote() -> Iterator[ServiceClient]:
    with serving(Server(network(), "cleartext")) as service, ServiceClient(service.address, "cleartext") as found:
        yield found


def test_a_copy_of_the_process_is_told_to_connect(remote: ServiceClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        for use in (lambda: run(remote.client, remote, IMAGE), remote.reopen):
            with pytest.raises(RuleError, match=r"a connection must be used by the process that opened it: .*\(fork\)"):
                use()
    run(remote.client, remote, IMAGE)


def test_a_fork_ends_with_the_reason(remote: ServiceClient) -> None:
    run(remote.client, remote, IMAGE)
    receiving, sending = os.pipe()
    if not (child := os.fork()):
        try:
            run(remote.client, remote, IMAGE)
        except RuleError as error:
            os.write(sending, str(error).encode())
        finally:
            remote.close()
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as told:
        assert "a copy of the process (fork); connect in each process" in told.read()
    os.waitpid(child, 0)
    run(remote.client, remote, IMAGE)


@pytest.mark.parametrize("prepared", [0, 4])
def test_of_threads_one_runs_and_the_others_are_told_why(remote: ServiceClient, prepared: int) -> None:
    """Whichever is first gets its answer, and the client goes on."""
    if prepared:
        prepare(remote.client, remote, prepared)
    told, shapes, together = list[str](), list[tuple[int, ...]](), threading.Barrier(4)

    def ask() -> None:
        together.wait()
        try:
            shapes.append(run(remote.client, remote, IMAGE)[0].shape)
        except RuleError as error:
            told.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(shapes) + len(told) == 4
    assert set(shapes) == {SHAPE}
    assert all("give each thread a client of its own" in line for line in told)
    assert remote.prepared == max(prepared - len(shapes), 0), "who is refused takes nothing"
    run(remote.client, remote, IMAGE)


def test_a_request_beside_another_is_refused(remote: ServiceClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it reaches gRPC, which ends the process's calls for it; the first one is answered."""
    inside, go_on, answers = threading.Event(), threading.Event(), list[tuple[int, ...]]()
    receive = remote._stream.receive

    def held(most: int, seconds: float) -> bytes:
        inside.set()
        assert go_on.wait(10)
        return receive(most, seconds)

    monkeypatch.setattr(remote._stream, "receive", held)
    first = threading.Thread(target=lambda: answers.append(run(remote.client, remote, IMAGE)[0].shape))
    first.start()
    assert inside.wait(10)
    with pytest.raises(RuleError, match="a connection must be used by one thread at a time"):
        prepare(remote.client, remote)
    go_on.set()
    first.join(10)
    assert answers == [SHAPE]


def test_a_client_runs_one_image_at_a_time() -> None:
    server = Server(network(), "cleartext")
    client, told = Client(server.greeting(), "cleartext"), list[str]()
    session = server.session(client.keys())
    image = client.infer(IMAGE)
    message = image.send(session.handle(next(image)))

    def ask() -> None:
        with pytest.raises(RuleError, match="a client must run one image at a time") as refused:
            next(client.infer(IMAGE))
        told.append(str(refused.value))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(10)
    assert len(told) == 1
    with suppress(StopIteration):
        while True:
            message = image.send(session.handle(message))


def test_a_session_that_silence_ended_is_opened_again_by_the_next_image() -> None:
    server, limits = Server(network(), "cleartext"), ServiceLimits(timeout_s=0.2)
    with serving(server, limits) as service, ServiceClient(service.address, "cleartext") as remote:
        prepare(remote.client, remote, 2)
        for left in (1, 0):
            until(lambda: remote._stream.ended)
            run(remote.client, remote, IMAGE)
            assert (remote.client.waited, remote.prepared, remote.client.dropped) == (False, left, [])
