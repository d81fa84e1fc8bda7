"""Health checks that say whether there is room."""

import threading
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from privcirnet.he.protocol.parties.server import Server
from privcirnet.service import server
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.quotas import LocalLedger, Quotas
from privcirnet.service.server import ROOM
from privcirnet.service.shared.ledger import SharedLedger
from privcirnet.service.shared.link import RedisConnection
from tests.he.networks import network
from tests.service.redises import Redis
from tests.service.running import serving, until
from tests.service.strangers import channel
from tests.service.test_faults import begun

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Far(LocalLedger):
    """A ledger that may be out of reach."""

    there = True

    def reachable(self):
        return self.there


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(server, "_LOOK_S", 0.05)


@contextmanager
def asking(service):
    with channel(service) as through:
        stub = health_pb2_grpc.HealthStub(through)
        yield lambda name: stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status


def test_a_full_server_says_so():
    with serving(Server(network(), "cleartext"), limits=ServiceLimits(sessions=1)) as service:
        with asking(service) as ask:
            assert ask(ROOM) == SERVING
            with ServiceClient(service.address, "cleartext"):
                until(lambda: ask(ROOM) == NOT_SERVING)
                assert ask("") == SERVING
            until(lambda: ask(ROOM) == SERVING)


def test_a_server_without_its_state_says_so():
    ledger = Far()
    with serving(Server(network(), "cleartext"), books={"quotas": Quotas(ledger=ledger)}) as service:
        with asking(service) as ask:
            assert ask(ROOM) == SERVING
            ledger.there = False
            until(lambda: ask(ROOM) == NOT_SERVING)
            assert ask("") == SERVING
            ledger.there = True
            until(lambda: ask(ROOM) == SERVING)
    ledger.close()


def test_a_watch_is_told_of_every_change():
    with (
        serving(Server(network(), "cleartext"), limits=ServiceLimits(sessions=1)) as service,
        channel(service) as through,
    ):
        watch = health_pb2_grpc.HealthStub(through).Watch(health_pb2.HealthCheckRequest(service=ROOM), timeout=30)
        assert next(watch).status == SERVING
        with ServiceClient(service.address, "cleartext"):
            assert next(watch).status == NOT_SERVING
        assert next(watch).status == SERVING
        service.stop()
        assert next(watch).status == NOT_SERVING
        assert list(watch) == []


def test_many_who_ask_are_one_look(monkeypatch):
    """Nobody can make the server ask for its state more often, nor wait for it in its loop."""
    asked, goes_on = [], threading.Event()
    monkeypatch.setattr(server, "_LOOK_S", 60.0)

    class Slow(LocalLedger):
        def reachable(self):
            asked.append(threading.current_thread().name)
            return goes_on.wait(20)

    ledger = Slow()
    with serving(Server(network(), "cleartext"), books={"quotas": Quotas(ledger=ledger)}) as service:
        with channel(service) as through, asking(service) as ask:
            check = health_pb2_grpc.HealthStub(through).Check
            calls = [check.future(health_pb2.HealthCheckRequest(service=ROOM), timeout=20) for _ in range(5)]
            until(lambda: asked)
            assert ask("") == SERVING
            goes_on.set()
            assert {call.result().status for call in calls} == {SERVING}
    assert len(asked) == 1
    ledger.close()


def test_probes_in_plain_text_have_a_port_of_their_own():
    """It answers while the server drains; there is nothing but health."""
    with serving(Server(network(), "cleartext"), limits=ServiceLimits(grace_s=20.0), probes=True) as service:
        with grpc.insecure_channel(f"127.0.0.1:{service.probes}") as through:
            stub = health_pb2_grpc.HealthStub(through)

            def ask(name):
                return stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status

            assert (ask(""), ask(ROOM)) == (SERVING, SERVING)
            with pytest.raises(grpc.RpcError) as refused:
                through.unary_unary("/privcirnet.v1.Inference/Programs")(b"", timeout=5)
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
            with ServiceClient(service.address, "cleartext") as busy:
                begun(busy)
                service.stop()
                until(lambda: ask(ROOM) == NOT_SERVING)
                assert service.sessions == 1


def test_a_ledger_in_redis_says_whether_it_is_there(tmp_path):
    redis = Redis(tmp_path / "redis")
    link = RedisConnection(redis.url, "test")
    ledger = SharedLedger(link)
    try:
        assert ledger.reachable()
        redis.kill()
        assert not ledger.reachable()
    finally:
        redis.kill()
        ledger.close()
        link.close()
