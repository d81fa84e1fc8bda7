"""Each reply about a layer says something of its weights to a client that deviates. So nothing of an image is for nothing.

A client that gives up preparations read a whole stem in 23 of them, under a quota of one image: they were not counted,
nor audited. Now an image counts once, when its preparation begins or when it comes without one; the count and a line of
the audit log are on the disk before the engine sees a request.
"""

import os
import signal
import sqlite3
from contextlib import ExitStack, closing, contextmanager

import pytest

from privcirnet.errors import Lost
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline import correlated
from privcirnet.he.protocol.offline.correlated import CorrelationFormat
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service.client import ServiceClient
from privcirnet.service.quotas import LocalLedger, Quota, Quotas
from privcirnet.service.refusals import Refused
from tests.he.networks import network, random_image
from tests.service.running import Lines, serving, started, until

IMAGE = random_image(network())
SIZE = CorrelationFormat("server", network(), bytes(32)).length
NO_MORE = "a client may begin 1 images in all: got one more"


def begun(remote, kind, count=1):
    """A preparation, or an image that waits for one, after the first reply that has something of a layer's weights."""
    exchange = remote.client.prepare(count) if kind == "prepare" else remote.client.infer(IMAGE)
    message = next(exchange)
    while True:
        reply = remote.handle(message)
        if wire.begins(reply) not in (wire.PREPARE, wire.AGREE):
            return exchange
        message = exchange.send(reply)


WAYS = ("in its session", "with its session", "with its connection", "not at all")


@pytest.mark.parametrize("given_up", WAYS)
@pytest.mark.parametrize("then", ["prepare", "infer"])
def test_a_preparation_that_is_given_up_was_an_image(given_up, then):
    """However it is given up, the quota of one image is used up, and the audit log has it."""
    books = {"quotas": Quotas(Quota(images=1, prepared=1))}
    with serving(Server(network(), "cleartext"), books=books) as service, ExitStack() as stack:
        remote = stack.enter_context(ServiceClient(service.address, "cleartext"))
        begun(remote, "prepare")
        if given_up == "with its session":
            remote.reopen()
        elif given_up == "with its connection":
            remote.close()
            remote = stack.enter_context(ServiceClient(service.address, "cleartext"))
        elif given_up == "not at all":
            remote = stack.enter_context(ServiceClient(service.address, "cleartext"))
        with pytest.raises(Refused, match=NO_MORE if given_up != "not at all" else "1 inferences"):
            begun(remote, then)
        (line,) = service.audited.of("preparation begun")
        assert (line["client"], line["count"]) == ("local", 1)
        assert not service.audited.of("image begun")


@contextmanager
def under(**quota):
    """A service with a quota, and a client of it."""
    with serving(Server(network(), "cleartext"), books={"quotas": Quotas(Quota(**quota))}) as service:
        with ServiceClient(service.address, "cleartext") as remote:
            yield service, remote


def test_all_images_of_a_preparation_count():
    with under(images=3) as (service, remote):
        begun(remote, "prepare", 2)
        remote.reopen()
        with pytest.raises(Refused, match="a client may begin 3 images in all: got 2 more"):
            begun(remote, "prepare", 2)
        remote.reopen()
        begun(remote, "prepare", 1)
        assert [line["count"] for line in service.audited.of("preparation begun")] == [2, 1]


def test_a_prepared_image_counts_once():
    with under(images=2) as (service, remote):
        prepare(remote.client, remote, 2)
        for _ in range(2):
            run(remote.client, remote, IMAGE)
            assert not remote.client.waited
        with pytest.raises(Refused, match="a client may begin 2 images in all"):
            run(remote.client, remote, IMAGE)
        assert [line["prepared"] for line in service.audited.of("image begun")] == [True, True]


def test_an_image_whose_prepared_work_is_gone_counts():
    """What the server does not have it has not counted, or lost with what was: a made-up number buys nothing."""
    with under(images=1) as (service, remote):
        prepare(remote.client, remote, 1)
        service.books.prepared_work.retain([])
        with pytest.raises(Refused, match=NO_MORE):
            run(remote.client, remote, IMAGE)


def test_it_is_counted_and_audited_before_the_engine_sees_it(tmp_path, monkeypatch):
    found, handle = [], Session.handle

    def handled(session, message):
        with closing(sqlite3.connect(tmp_path / "images.sqlite")) as other:
            count = other.execute("SELECT COALESCE(SUM(count), 0) FROM images").fetchone()[0]
        if wire.begins(message) != wire.AGREE:
            lines = service.audited.of("image begun") + service.audited.of("preparation begun")
            found.append((count, len(lines)))
        return handle(session, message)

    monkeypatch.setattr(Session, "handle", handled)
    with closing(Quotas(ledger=LocalLedger(tmp_path / "images.sqlite"))) as quotas:
        with serving(Server(network(), "cleartext"), books={"quotas": quotas}) as service:
            with ServiceClient(service.address, "cleartext") as remote:
                begun(remote, "prepare")
    assert set(found) == {(1, 1)}


SERVER = """
import sys
from pathlib import Path
from privcirnet.he.protocol.parties.server import Server
from privcirnet.service.limits import ServiceState
from privcirnet.service.log import Log, appending
from privcirnet.service.quotas import LocalLedger
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.server import Service
from tests.he.networks import network
from tests.service.running import catalogue

folder = Path(sys.argv[1])
quotas = Quotas(Quota(images=1), ledger=LocalLedger(folder / "images.sqlite"))
books = ServiceState(quotas=quotas, log=Log(audit=appending(folder / "audit.jsonl")))
service = Service(catalogue(only=Server(network(), "cleartext")), ("127.0.0.1", int(sys.argv[2])), books=books)
print(service.address[1], flush=True)
service.run()
"""


def test_a_killed_server_has_counted_and_audited(tmp_path):
    """The client may be quick, and lucky: the server is gone as soon as the first reply has come."""
    with started(tmp_path, program=SERVER) as (port, process):
        with ServiceClient(("127.0.0.1", port), "cleartext") as remote:
            begun(remote, "prepare")
            os.kill(process.pid, signal.SIGKILL)
    lines = Lines((tmp_path / "audit.jsonl").read_text().splitlines())
    assert len(lines.of("preparation begun")) == 1
    with started(tmp_path, program=SERVER) as (port, _), ServiceClient(("127.0.0.1", port), "cleartext") as remote:
        with pytest.raises(Refused, match=NO_MORE):
            begun(remote, "infer")


def test_preparations_in_several_sessions_share_the_quota():
    """What is being prepared counts as prepared, until it is given up."""
    with under(prepared=2) as (service, first), ServiceClient(service.address, "cleartext") as other:
        begun(first, "prepare", 2)
        with pytest.raises(Refused, match="a client may have 2 inferences prepared here: got one more"):
            begun(other, "prepare")
        first.close()
        until(lambda: service.sessions == 0)
        other.reopen()
        prepare(other.client, other, 2)


def test_preparations_in_several_sessions_share_the_room():
    with closing(PreparedWork(limit=int(1.5 * SIZE))) as prepared_work:
        with serving(Server(network(), "cleartext"), books={"prepared_work": prepared_work}) as service:
            with ServiceClient(service.address, "cleartext") as one, ServiceClient(service.address, "cleartext") as two:
                begun(one, "prepare")
                with pytest.raises(Refused, match="a server must have room for prepared work"):
                    begun(two, "prepare")


def test_a_round_without_a_beginning_gets_nothing():
    """A request about a layer, ahead or not, that is not the first of anything."""
    with serving(Server(network(), "cleartext")) as service:
        for position in (wire.OFFLINE + 1, wire.PREPARED, 2, wire.OUTPUT):
            with ServiceClient(service.address, "cleartext") as remote:
                remote.handle(wire.frame(wire.AGREE, [b""]))
                remote._begun[True] = wire.PREPARE  # an honest client would not even ask
                with pytest.raises((Refused, Lost), match="must be"):
                    remote.handle(wire.frame(position, [correlated.write_count(1)]))
