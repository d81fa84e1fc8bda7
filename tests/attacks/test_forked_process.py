"""A party's process is copied (fork) with what it has made ahead, and both copies go on.

What hides or masks a message is used once. If both copies used it, whoever gets both messages would take one off the
other: the server's replies would tell the client of the weights, the client's answers the server of the image.
"""

import os
import pickle
import signal

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store import Binding, PreparedWork
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.system import threads
from tests.he.networks import network, random_image
from tests.he.parties import check

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]


@pytest.fixture(autouse=True)
def _alone():
    """No thread of this process works while it is copied."""
    before = threads.count()
    threads.use(1)
    yield
    threads.use(before)


def in_both(function):
    """What a function returns in a copy of this process, and what it returns here; an error as its text."""
    end, begin = os.pipe()
    if not (child := os.fork()):
        signal.alarm(60)  # a copy that hangs ends, and its pipe with it
        try:
            with os.fdopen(begin, "wb") as pipe:
                pickle.dump(outcome(function), pipe)
        finally:
            os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as pipe:
        copied = pickle.load(pipe)
    os.waitpid(child, 0)
    return copied, outcome(function)


def outcome(function):
    try:
        return function()
    except (RuleError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture(scope="module")
def server():
    """Whose kernels are compiled: a copy of a process with threads cannot count on compiling any."""
    made = Server(network(), "kernel")
    client, session = parties(made)
    prepare(client, session)
    for _ in range(2):  # the first is prepared
        run(client, session, random_image(network()))
    return made


def parties(server):
    client = Client(server.greeting())
    return client, server.session(client.keys())


def test_a_server_s_prepared_work_serves_one_of_the_copies(server):
    client, session = parties(server)
    prepare(client, session)
    copied, here = in_both(session._prepared.store.serials)
    assert (len(copied), len(here)) == (0, 1)


def test_an_image_in_progress_starts_over_in_a_copy_of_the_server(server):
    """Else the client answers one question in two ways, and compares the next ones."""
    client, session = parties(server)
    prepare(client, session)
    steps = client.infer(random_image(network()))
    answer = steps.send(session.handle(next(steps)))
    copied, here = in_both(lambda: session.handle(answer))
    assert copied.startswith("RuleError: a message must be about step")
    assert isinstance(here, bytes)


def test_a_client_s_prepared_work_and_image_stay_in_its_process(server):
    """Else the server asks two different questions, and takes one answer off the other."""
    client, session = parties(server)
    prepare(client, session, 2)
    steps = client.infer(random_image(network()))
    question = session.handle(next(steps))
    copied, here = in_both(lambda: steps.send(question))
    assert copied.startswith("RuleError: what a process begins must end in it: got a copy of the process")
    assert isinstance(here, bytes)
    assert in_both(lambda: client.prepared) == (0, 1)


def test_a_preparation_stays_in_its_process(server):
    client, session = parties(server)
    steps = client.prepare(1)
    begun = session.handle(steps.send(session.handle(next(steps))))  # after what both have left
    copied, request = in_both(lambda: steps.send(begun))
    assert copied.startswith("RuleError: what a process begins must end in it")
    copied, here = in_both(lambda: session.handle(request))
    assert copied.startswith("RuleError: a message must be about step")
    assert isinstance(here, bytes)


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_one_of_the_copies_takes_prepared_work(kind, tmp_path):
    prepared_work = PreparedWork(tmp_path / "prepared" if kind == "folder" else None)
    store, serial, parent = prepared_work.of(Binding()), bytes(16), os.getpid()
    store.put(serial, b"prepared work")
    copied, here = in_both(lambda: bytes(store.take(serial)))
    assert "none of serial" in copied
    assert here == b"prepared work"
    with prepared_work._inventory._held():  # as if another thread was at it
        copied, here = in_both(lambda: prepared_work.size if os.getpid() != parent else 0)
    assert copied == here == 0
    prepared_work.close()


def test_a_copy_goes_on_with_a_new_image(server):
    client, session = parties(server)
    run(client, session, random_image(network()))
    both = in_both(lambda: len(check(network(), client, session, random_image(network()))))
    assert both[0] == both[1] > 0, "messages of an image of which everything is right"
