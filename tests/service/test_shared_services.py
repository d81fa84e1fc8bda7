"""Two services that share a Redis: a client finds its keys and its prepared work at either, and nothing is used twice."""

import json
import threading
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import grpc
import pytest

from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service.client import ServiceClient
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.refusals import Refused
from privcirnet.service.shared import ledger, link
from tests.he.networks import network
from tests.service.relay import relaying
from tests.service.running import reopened, serving, until
from tests.service.test_faults import ANSWER, OTHER, right
from tests.service.test_state import shared

AWAY = "a server must reach the state that it shares: got it is out of reach; come again in"


@contextmanager
def replica(opened, server, folder=None, **quota):
    """A service with a connection to the shared state of its own, whose audit log has numbers."""
    ledger, keys, work = opened.ledger(), opened.keys(), opened.prepared(folder)
    books = {"quotas": Quotas(Quota(**quota), ledger=ledger), "store": keys, "prepared_work": work}
    with serving(server, books=books) as service:
        service.books.log._number = ledger._link.number
        yield service


@pytest.fixture
def replicas(redis, stack, tmp_path):
    """Makes two replicas, with a folder of prepared work that they share."""

    def made(**quota):
        opened, server = shared(redis, stack), Server(network(), "cleartext")
        return [stack.enter_context(replica(opened, server, tmp_path / "prepared", **quota)) for _ in range(2)]

    return made


def asked(remote) -> str:
    """How an image was run, whose result is right."""
    assert right(run(remote.client, remote, OTHER)[0].reshape(ANSWER.shape))
    return "waited" if remote.client.waited else "prepared"


def audited(*services) -> list[dict]:
    """All replicas' lines once all sessions are closed, of which none is missing and no serial is there twice."""
    for service in services:
        until(lambda of=service.audited.of: len(of("session closed")) == len(of("session opened")))
    lines = sorted(
        (json.loads(line) for service in services for line in service.audited), key=lambda line: line["number"]
    )
    assert [line["number"] for line in lines] == [*range(1, len(lines) + 1)]
    serials = [line["serial"] for line in lines if "serial" in line]
    assert len(set(serials)) == len(serials)
    return lines


def test_keys_are_registered_once_for_both(replicas):
    first, second = replicas()
    with relaying(first.address) as relay, ServiceClient(relay.address, "cleartext") as remote:
        assert asked(remote) == "waited"
        relay.cut(second.address)
        until(lambda: reopened(remote))
        assert asked(remote) == "waited"
    events = [line["event"] for line in audited(first, second)]
    assert events == [
        "keys registered",
        *["session opened", "preparation begun", "prepared", "image begun", "image", "session closed"] * 2,
    ]


def test_keys_that_are_gone_meanwhile_are_registered_again(replicas):
    first, second = replicas()
    with relaying(first.address) as relay, ServiceClient(relay.address, "cleartext") as remote:
        first.books.store.forget("local", remote._id)
        relay.cut(second.address)
        until(lambda: reopened(remote))
        assert asked(remote) == "waited"
    assert [len(service.audited.of("keys registered")) for service in (first, second)] == [1, 1]


def test_prepared_work_is_used_at_the_other_once(replicas):
    first, second = replicas()
    with relaying(first.address) as relay, ServiceClient(relay.address, "cleartext") as remote:
        prepare(remote.client, remote, 2)
        serials = remote.store.serials()
        assert asked(remote) == "prepared"
        relay.cut(second.address)
        until(lambda: reopened(remote))
        assert asked(remote) == "prepared"
        assert first.books.prepared_work.count("local") == 0
    used = [line["serial"] for line in audited(first, second) if "serial" in line]
    assert sorted(used) == sorted(serial.hex() for serial in serials)


def test_two_replicas_that_are_asked_for_one_serial_at_once(replicas):
    """One of two clients with the same halves, as a copied folder has them, is told that there is none."""
    first, second = replicas()
    with ServiceClient(first.address, "cleartext") as one, ServiceClient(second.address, "cleartext") as two:
        prepare(one.client, one, 1)
        (serial,) = one.store.serials()
        message = next(one.client.infer(OTHER))
        replies, ready = [], threading.Barrier(2)
        two._binding = one._binding
        two.reopen()

        def ask(remote):
            ready.wait()
            replies.append(remote.handle(message))

        threads = [threading.Thread(target=ask, args=(remote,)) for remote in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    used = [line for line in audited(first, second) if "serial" in line]
    assert [line["serial"] for line in used] == [serial.hex()]
    assert len({len(reply) for reply in replies}) == 2, "one has an answer, the other's has no parts"


def test_a_quota_of_images_is_exact_over_both(replicas):
    services, counts = replicas(images=10, sessions=8), []

    def work(service):
        with ServiceClient(service.address, "cleartext") as remote:
            count = 0
            with suppress(Refused):
                while True:
                    asked(remote)
                    count += 1
            counts.append(count)

    threads = [threading.Thread(target=work, args=(services[number % 2],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(counts), sum(counts)) == (4, 10)
    assert [line["event"] for line in audited(*services)].count("image begun") == 10


def test_sessions_are_counted_over_both(replicas):
    first, second = replicas(sessions=1)
    with ServiceClient(first.address, "cleartext"):
        with pytest.raises(Refused, match="a client has at most 1 sessions at once"):
            ServiceClient(second.address, "cleartext")
    until(lambda: first.sessions == 0)
    with ServiceClient(second.address, "cleartext") as remote:
        asked(remote)


def test_a_redis_that_goes_in_mid_image_and_comes_back(replicas, redis, monkeypatch):
    """The image ends, audited; neither a session nor an image begins; then it goes on by itself."""
    monkeypatch.setattr(link, "_PAUSE_S", 0.05)
    monkeypatch.setattr(ledger, "_LEASE_S", 0.5)
    first, _ = replicas(sessions=3)
    with ExitStack() as stack:
        running, idle, ready = (stack.enter_context(ServiceClient(first.address, "cleartext")) for _ in range(3))
        prepare(ready.client, ready, 1)
        prepare(running.client, running, 1)
        exchange = running.client.infer(OTHER)
        message = exchange.send(running.handle(next(exchange)))
        redis.kill()
        with pytest.raises(Refused, match=AWAY):
            asked(idle)
        with pytest.raises(Refused, match=AWAY):
            asked(ready)
        with pytest.raises(Refused, match=AWAY):
            ServiceClient(first.address, "cleartext")
        logits = None
        while logits is None:
            try:
                message = exchange.send(running.handle(message))
            except StopIteration as end:
                logits = end.value
        assert right(logits.reshape(ANSWER.shape))
        (line,) = first.audited.of("image")
        assert line["number"] is None
        assert not first.lines.of("the server failed")
        refused = first.books.metrics.refused.labels(grpc.StatusCode.UNAVAILABLE.name)._value.get()
        assert refused == 3
        redis.start()
        parts = first.books.store, first.books.quotas._ledger, first.books.prepared_work._inventory
        until(lambda: not any(part._link._lost for part in parts))
        assert asked(running) == "waited", "its session is the same"
        for remote in (idle, ready):
            until(partial(reopens, remote))  # what had begun when Redis went has a place for a while
            assert asked(remote) == "waited"


def reopens(remote) -> bool:
    try:
        remote.reopen()
    except Refused as refused:
        return "sessions at once" not in str(refused)
    return True


def test_nothing_is_answered_that_has_no_number(replicas, redis):
    """Redis goes between the count and the line of the audit log."""
    first, _ = replicas()
    with ServiceClient(first.address, "cleartext") as remote:
        number = first.books.log._number
        first.books.log._number = lambda: (redis.kill(), number())[1]
        with pytest.raises(Refused, match=AWAY):
            asked(remote)
    assert not first.audited.of("image begun")


def test_metrics_say_that_they_do_not_know(replicas, redis):
    first, _ = replicas()
    redis.kill()
    values = {
        sample.name: sample.value for family in first.books.metrics.registry.collect() for sample in family.samples
    }
    assert str(values["privcirnet_keys_bytes"]) == str(values["privcirnet_prepared_bytes"]) == "nan"
