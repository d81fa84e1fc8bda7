"""An exact program's sessions end whenever they like: every answer is right, or one clear error and the next one is."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from privcirnet.errors import Interrupted, Lost, RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.ot import silent
from privcirnet.he.program import bounds
from privcirnet.he.program.exact import ExactReLU, exact
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Network, Program
from privcirnet.he.program.rearrangement import Flatten
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties import background_preparation
from privcirnet.he.protocol.parties.background_preparation import BackgroundPreparation
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service.access import LOCAL
from privcirnet.service.client import Retries, ServiceClient
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.refusals import Refused, busy
from privcirnet.service.server import Service
from tests.he.layer_examples import paper_layer
from tests.he.mpc.ot import toy_base
from tests.he.networks import N, random_image, with_weights
from tests.he.parties import parties
from tests.service.relay import Relay, relaying
from tests.service.running import serving, until
from tests.service.test_retries import cut_at


def with_a_relu() -> Program:
    """A convolution, an exact ReLU, a linear layer."""
    first, head = paper_layer(LinearShape(8, 8, 4, 8, 3, 2, 1), 2, N), paper_layer(LinearShape.gemm(1, 128, 10), 2, N)
    nodes = (
        Node("x", Input(-8, 15), (), (4, 8, 8), -4),
        Node("first", Linear(first), ("x",), (8, 4, 4), -8),
        Node("relu", ExactReLU(4), ("first",), (8, 4, 4), -4),
        Node("flat", Flatten(), ("relu",), (128, 1, 1), -4),
        Node("head", Linear(head), ("flat",), (10, 1, 1), -8),
    )
    program = with_weights(nodes, 30, 0)
    return replace(program, nodes=exact(nodes, bounds.prove(Network(nodes, program.weights))))


PROGRAM = with_a_relu()
IMAGE = random_image(PROGRAM)
TRUTH = interpret(PROGRAM, IMAGE)["head"].ravel()
SOON = Retries(5, sleep=lambda seconds: time.sleep(min(seconds, 0.05)))


@pytest.fixture(params=["softspoken", "silent"])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Silent transfers come from a small code, and must be refilled."""
    monkeypatch.setattr(silent, "CODE", silent.LpnParameters(trees=128, depth=6, seed=128))
    toy_base.put(monkeypatch)
    return replace(PROGRAM, transfers=request.param)


def right(remote: ServiceClient, persist: bool = False) -> bool:
    """Whether an image has the network's very logits; ``persist``: asked for again where that may help."""
    attempt = partial(run, remote.client, remote, IMAGE)
    logits, _ = remote.persist(attempt) if persist else attempt()
    return bool((logits.ravel() == TRUTH).all())


def agreed(remote: ServiceClient, *services: Service) -> bool:
    """Whether no half is left alone, once both parties have compared them."""
    remote.reopen()
    mine = set(remote.store.serials())
    there = {label.serial for one in services for label in one.books.prepared_work._inventory.here()}
    return mine <= there and len(mine) == remote.prepared


class Ends:
    """Ways in which a session ends between two preparations."""

    @staticmethod
    def opened_again(remote: ServiceClient, relay: Relay, first: Service, second: Service) -> None:
        remote.reopen()

    @staticmethod
    def silence(remote: ServiceClient, relay: Relay, first: Service, second: Service) -> None:
        """The server's patience ends at once: a short one could end in the middle of a slow machine's image."""

        def expire(waits: set[asyncio.Timeout]) -> None:
            for wait in waits:
                if not wait.expired():
                    wait.reschedule(0)

        def ended() -> bool:
            first._from_outside(partial(expire, first._sessions._idle))  # again: it may not yet be waiting
            return remote._stream.ended

        until(ended)

    @staticmethod
    def restart(remote: ServiceClient, relay: Relay, first: Service, second: Service) -> None:
        first.stop()
        relay.target = second.address
        until(lambda: remote._stream.ended)

    @staticmethod
    def move(remote: ServiceClient, relay: Relay, first: Service, second: Service) -> None:
        relay.cut(second.address)
        until(lambda: remote._stream.ended)

    @staticmethod
    def refusal(remote: ServiceClient, relay: Relay, first: Service, second: Service) -> None:
        for service in (first, second):
            service.books.quotas.change(Quota(prepared=1), {})
        with pytest.raises(Refused, match="a client may have 1 inferences prepared here"):
            prepare(remote.client, remote, 2)
        for service in (first, second):
            service.books.quotas.change(Quota(), {})

    @staticmethod
    def failed_preparation(remote: ServiceClient, relay: Relay, first: Service, second: Service) -> None:
        with refused_at(3), suppress(Refused):
            prepare(remote.client, remote)


ENDS: dict[str, Callable[[ServiceClient, Relay, Service, Service], None]] = {
    name: end.__func__ for name, end in vars(Ends).items() if isinstance(end, staticmethod)
}


@contextmanager
def refused_at(number: int, error: RuleError | None = None) -> Iterator[None]:
    """Sessions refuse a message of a number, once."""
    seen, original = [], Session.handle

    def handle(self: Session, message: bytes) -> bytes:
        seen.append(message)
        if len(seen) == number:
            raise error or busy("a server must have room", "none", 1.0)
        return original(self, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "handle", handle)
        yield


@contextmanager
def replicas(program: Program) -> Iterator[tuple[Service, Service, Relay]]:
    server = Server(program, "cleartext")
    with serving(server) as first, serving(server) as second, relaying(first.address) as relay:
        yield first, second, relay
    for service in (first, second):
        assert not service.lines.of("the server failed")


@pytest.mark.parametrize("end", ENDS)
def test_a_session_that_ends_between_two_preparations(program: Program, end: str, drawn: list[str]) -> None:
    """The next image is right without a retry, and so is the stock of a thread."""
    with replicas(program) as (first, second, relay), ServiceClient(relay.address, "cleartext") as remote:
        prepare(remote.client, remote)
        assert right(remote)
        ENDS[end](remote, relay, first, second)
        assert right(remote)
        assert right(remote)
        idle = BackgroundPreparation(remote.client, remote, 1, remote.reopen)
        idle.fill()
        assert (idle.stock, idle.stopped) == (1, "")
        assert agreed(remote, first, second)
    assert Counter(drawn).most_common(1)[0][1] == 1, "something was used twice"


def length(program: Program) -> int:
    """Messages of an image that has its own preparation made, in a new session."""
    with serving(Server(program, "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        return len(run(remote.client, remote, IMAGE)[1])


def test_a_stock_is_filled_up_whatever_ends(program: Program) -> None:
    """A thread's: after a restart, after silence, after a refusal of every kind."""
    with replicas(program) as (first, second, relay), ServiceClient(relay.address, "cleartext") as remote:
        with BackgroundPreparation(remote.client, remote, 2, remote.reopen) as idle:
            for end in ("opened_again", "move", "refusal"):
                until(lambda: idle.stock == 2, 30)
                with idle._held():
                    ENDS[end](remote, relay, first, second)
                idle.run(IMAGE)
            until(lambda: idle.stock == 2, 30)
            assert idle.stopped == ""


def test_an_image_in_the_middle_of_a_preparation(program: Program) -> None:
    """It cannot be run without: it waits for the one under way, in place of one that ends it."""
    most = len(prepare(*parties(program, "cleartext")))
    for steps in range(1, most):
        client, session = parties(program, "cleartext")
        idle = BackgroundPreparation(client, session, 1)
        for _ in range(steps):
            idle._step()
        logits, _ = idle.run(IMAGE)
        assert (logits.ravel() == TRUTH).all()
        idle.fill()
        assert (idle.stock, idle.stopped, len(idle.done)) == (1, "", 2)


@pytest.mark.parametrize(
    ("program", "when"),
    [
        ("softspoken", "before it is sent"),
        ("silent", "after its reply"),
        pytest.param("softspoken", "after its reply", marks=pytest.mark.slow),
        pytest.param("silent", "before it is sent", marks=pytest.mark.slow),
    ],
    indirect=["program"],
)
def test_a_connection_that_is_cut_at_any_message(program: Program, when: str, drawn: list[str]) -> None:
    """Of a preparation and its image, from one replica to the other: one error at most, and the next image is right."""
    with replicas(program) as (first, second, relay), ServiceClient(relay.address, "cleartext") as remote:
        original, most = remote.handle, length(program)
        for number in range(1, most + 1):
            target = (second, first)[number % 2].address
            remote.reopen()  # transfers begin anew
            cut_at(remote, relay, number, when, target)
            with suppress(Lost, Interrupted):
                for _ in range(2):  # a machine at work may show the cut with the second
                    assert right(remote)
            if when == "after its reply":
                until(lambda: remote._stream.ended)
            remote.handle = original
            assert right(remote), number
        assert agreed(remote, first, second)
    assert Counter(drawn).most_common(1)[0][1] == 1, "something was used twice"


def test_a_message_that_is_refused_at_any_place(program: Program) -> None:
    with replicas(program) as (first, second, relay):
        with ServiceClient(relay.address, "cleartext", retries=SOON) as remote:
            for number in range(1, length(program) + 1):
                with refused_at(number), suppress(Refused):
                    assert right(remote, persist=number % 2 == 0)
                assert right(remote), number
            assert agreed(remote, first, second)


def test_a_server_that_has_lost_the_transfers_says_so_and_is_asked_again(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when whoever prepared for it was replaced: the same session, and nothing known to the client."""
    sessions, original = [], Server.session

    def session(*given: object) -> Session:
        sessions.append(original(*given))
        return sessions[-1]

    def forget(sessions: list[Session]) -> None:
        sessions[-1]._prepared._transfers = None

    monkeypatch.setattr(Server, "session", session)
    with replicas(program) as (_, _, relay), ServiceClient(relay.address, "cleartext", retries=SOON) as remote:
        assert right(remote)
        forget(sessions)
        with pytest.raises(Refused, match="oblivious transfers must be begun before they are used") as refused:
            right(remote)
        assert refused.value.retry_after_s == 1
        assert right(remote)
        forget(sessions)
        assert right(remote, persist=True)
        forget(sessions)
        idle = BackgroundPreparation(remote.client, remote, 1, remote.reopen)
        idle.fill()
        assert (idle.stock, idle.stopped) == (1, "")


def test_a_preparation_does_not_go_on_in_another_session(program: Program) -> None:
    with replicas(program) as (first, _, relay), ServiceClient(relay.address, "cleartext") as remote:
        ahead = remote.client.prepare(1)
        message = next(ahead)
        while wire.begins(message) != wire.TRANSFERS:
            message = ahead.send(remote.handle(message))
        remote.reopen()
        with pytest.raises(RuleError, match="a preparation must end in the session that it began in"):
            remote.handle(message)
        ahead.close()
        assert right(remote)
        assert first.books.prepared_work.count(LOCAL) == 0


def test_a_quota_that_passes_is_tried_again(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says when: the stock does not stay empty for good."""
    quotas = Quotas(Quota(images_hour=1))
    with serving(Server(program, "cleartext"), books={"quotas": quotas}) as service:
        with ServiceClient(service.address, "cleartext") as remote:
            idle = BackgroundPreparation(remote.client, remote, 2, remote.reopen)
            idle.fill()
            assert idle.stock == 1
            assert "a client may begin 1 images an hour" in idle.stopped
            quotas.change(Quota(), {})
            idle.fill()
            assert idle.stock == 1, "it was told when to come again"
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3700, perf_counter=time.perf_counter)
            monkeypatch.setattr(background_preparation, "time", later)
            idle.fill()
            assert (idle.stock, idle.stopped) == (2, "")
