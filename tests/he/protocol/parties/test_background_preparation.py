"""The stock of prepared inferences: it fills up while nobody waits, and an image goes first."""

import threading
import time

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.background_preparation import BackgroundPreparation
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Session
from tests.he.networks import network, random_image
from tests.he.parties import check, parties
from tests.service.running import until

PROGRAM = network()


class Watched:
    """A session that tells what is asked of it, and can be held up or made to refuse."""

    def __init__(self, session: Session) -> None:
        self.session, self.asked = session, list[bool]()
        self.gate, self.inside = threading.Event(), threading.Event()
        self.refuse = lambda message: None
        self.gate.set()

    def handle(self, message: bytes) -> bytes:
        self.asked.append(wire.is_offline(message))
        self.inside.set()
        assert self.gate.wait(10)
        self.refuse(message)
        return self.session.handle(message)


@pytest.fixture
def watched() -> tuple[Client, Watched]:
    client, session = parties(PROGRAM, "cleartext")
    return client, Watched(session)


def test_the_stock_fills_up_between_images(watched):
    client, server = watched
    with BackgroundPreparation(client, server, 3) as idle:
        for seed in range(5):
            until(lambda: idle.stock == 3)
            idle.run(random_image(PROGRAM, seed))
            assert not client.waited
        until(lambda: idle.stock == 3)
        assert sum(one.count for one in idle.done) == 8
        assert idle.stopped == ""
    assert not [t for t in threading.enumerate() if t.name == "privcirnet idle preparation"]
    check(PROGRAM, client, server.session, random_image(PROGRAM), "prepared")


def comes_in_the_middle(idle: BackgroundPreparation, client: Client, server: Watched) -> int:
    """An image comes while an exchange is held up, and is run before another one; the exchanges begun before it."""
    server.inside.wait(10)
    image = threading.Thread(target=idle.run, args=(random_image(PROGRAM),))
    image.start()
    until(lambda: idle._images == 1)
    begun = len(server.asked)
    server.gate.set()
    image.join(10)
    assert not client.waited
    until(lambda: idle.stock == idle.count)
    return begun


def test_an_image_uses_the_preparation_under_way(watched):
    """Held up in the middle of the first preparation, when an image comes: the preparation ends first, and is used."""
    client, server = watched
    server.gate.clear()
    with BackgroundPreparation(client, server, 1) as idle:
        begun = comes_in_the_middle(idle, client, server)
    assert begun == 1
    assert len(idle.done) == 2
    offline = sum(len(one.traffic) for one in idle.done) - 2  # each begins with AGREE
    assert server.asked.count(True) == offline, "none was done twice"


def test_an_image_with_prepared_work_waits_for_one_exchange_at_most(watched):
    """Held up in the middle of the second preparation, when an image comes: it is next, and nothing comes between."""
    client, server = watched
    BackgroundPreparation(client, server, 1).fill()
    done = len(server.asked)
    server.gate.clear()
    server.inside.clear()
    with BackgroundPreparation(client, server, 2) as idle:
        begun = comes_in_the_middle(idle, client, server)
    assert begun == done + 1
    first = server.asked.index(True, begun)
    assert server.asked[begun:first] == [False] * (first - begun), "an image's rounds, and nothing between them"


def test_many_threads_bring_images(watched):
    client, server = watched
    right = []
    with BackgroundPreparation(client, server, 2) as idle:

        def bring(seed: int) -> None:
            with idle.image():
                check(PROGRAM, client, server.session, random_image(PROGRAM, seed))
                right.append(client.waited)

        threads = [threading.Thread(target=bring, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
            time.sleep(0.01)
        for thread in threads:
            thread.join(20)
    assert len(right) == 6


def test_without_a_thread_it_works_when_it_is_told_to(watched):
    client, server = watched
    idle = BackgroundPreparation(client, server, 3, patience_s=float("inf"))
    assert idle.stock == 0
    idle.fill()
    assert idle.stock == 3
    assert [one.count for one in idle.done] == [3], "all at once: nobody waits"
    idle.run(random_image(PROGRAM))
    assert idle.stock == 2
    idle.rest(0.0)
    assert idle.stock == 2
    idle.rest(0.2)
    assert idle.stock == 3


def test_several_are_prepared_at_once_where_that_is_quick(watched):
    client, server = watched
    for patience, counts in ((1e-9, [1] * 5), (100.0, [1, 4])):
        idle = BackgroundPreparation(client, server, client.prepared + 5, patience_s=patience)
        idle.fill()
        assert [one.count for one in idle.done] == counts


def test_a_refusal_leaves_what_there_is(watched):
    """A server with room for two: they are prepared one by one, then it is asked no more until one is used."""
    client, server = watched
    calls = []

    def refuse(message: bytes) -> None:
        count = int.from_bytes(message[-2:], "little") if wire.begins(message) == wire.PREPARE else 0
        if client.prepared + count > 2:
            raise RuleError("a server must have room", got=count, remedy="wait")

    server.refuse = refuse
    idle = BackgroundPreparation(client, server, 5, lambda: calls.append(0), patience_s=float("inf"))
    idle.fill()
    assert (idle.stock, idle.stopped, len(calls)) == (2, "a server must have room: got 1; wait", 2)
    idle.fill()
    assert len(calls) == 2
    idle.run(random_image(PROGRAM))
    assert not client.waited
    idle.fill()
    assert (idle.stock, len(calls)) == (2, 2)


def test_what_the_thread_could_not_mend_reaches_the_next_image(watched):
    client, server = watched

    def lost() -> None:
        raise RuleError("a peer must stay", got="its end", remedy="connect again")

    def refuse(message: bytes) -> None:
        if wire.is_offline(message):
            lost()

    server.refuse = refuse
    with BackgroundPreparation(client, server, 5, lost) as idle:
        until(lambda: idle._failure is not None)
        with pytest.raises(RuleError, match="a peer must stay"):
            idle.run(random_image(PROGRAM))


def test_closing_gives_up_what_is_not_whole(watched):
    client, server = watched
    server.gate.clear()
    with BackgroundPreparation(client, server, 1):
        server.inside.wait(10)
        threading.Timer(0.05, server.gate.set).start()
    assert client.prepared == 0
    idle = BackgroundPreparation(client, server, 1)
    idle.fill()
    assert idle.stock == 1
    check(PROGRAM, client, server.session, random_image(PROGRAM), "prepared")
