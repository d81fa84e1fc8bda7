"""A stranger that opens no window for flow control is sent nothing, and whoever writes to it waits. It holds up nobody.

Everyone who reaches the port may watch the server's health, so watches are few.
"""

from contextlib import ExitStack

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.service import messages, server
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.refusals import Refused
from tests.he.networks import network, random_image
from tests.service.running import serving, until
from tests.service.strangers import channel, takes_nothing

WATCH, CHECK = "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/Check"
IMAGE = random_image(network())
Status = health_pb2.HealthCheckResponse


def watch(through, name=""):
    return health_pb2_grpc.HealthStub(through).Watch(health_pb2.HealthCheckRequest(service=name), timeout=20)


def watches(service) -> int:
    return service._health._watches.total()


@pytest.mark.parametrize("path", [WATCH, CHECK, *(method.path for method in messages.METHODS.values())])
def test_it_does_not_hold_up_the_end(path):
    """:func:`serving` fails if the service does not end."""
    with ExitStack() as stack:
        with serving(Server(network(), "cleartext"), ServiceLimits(grace_s=0.2)) as service:
            stack.enter_context(takes_nothing(service, path, b""))
            with ServiceClient(service.address, "cleartext") as remote:
                run(remote.client, remote, IMAGE)
            until(lambda: path != WATCH or watches(service) == 1)


def test_a_session_that_takes_nothing_does_not_hold_up_the_end_either():
    with ExitStack() as stack:
        with serving(Server(network(), "cleartext"), ServiceLimits(grace_s=0.2)) as service:
            with ServiceClient(service.address, "cleartext") as remote:
                opening = messages.SessionRequest(program=remote._program, keys=remote._id, owner=bytes(32))
            path = messages.METHODS["Session"].path
            stack.enter_context(takes_nothing(service, path, opening.SerializeToString()))
            until(lambda: service.sessions == 1)


def test_sessions_are_told_first():
    """While a watcher takes nothing, whoever is between two images learns that the server stops."""
    with serving(Server(network(), "cleartext")) as service, takes_nothing(service, WATCH, b""):
        with ServiceClient(service.address, "cleartext") as remote:
            run(remote.client, remote, IMAGE)
            until(lambda: watches(service) == 1)
            service.stop()
            with pytest.raises(Refused, match="a server must stay up for a new image"):
                remote._stream.receive(0, 10.0)


def test_other_watchers_are_told():
    with serving(Server(network(), "cleartext")) as service, takes_nothing(service, WATCH, b""):
        until(lambda: watches(service) == 1)
        with channel(service) as through:
            told = watch(through)
            assert next(told).status == Status.SERVING
            service.stop()
            assert next(told).status == Status.NOT_SERVING


def test_a_watcher_that_takes_nothing_loses_its_place():
    with serving(Server(network(), "cleartext"), ServiceLimits(timeout_s=0.3)) as service:
        with takes_nothing(service, WATCH, b""):
            until(lambda: watches(service) == 1)
            until(lambda: watches(service) == 0)


def test_a_watch_has_a_greatest_age():
    with serving(Server(network(), "cleartext"), ServiceLimits(age_s=0.3)) as service, channel(service) as through:
        told = watch(through, "something else")
        assert next(told).status == Status.SERVICE_UNKNOWN
        with pytest.raises(grpc.RpcError) as ended:
            next(told)
        assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        until(lambda: watches(service) == 0)


@pytest.mark.parametrize(("total", "each"), [(3, 9), (9, 3)])
def test_watches_are_few(monkeypatch, total, each):
    """Of one address and of all; a place is free again when a watcher leaves."""
    monkeypatch.setattr(server, "_WATCHES", total)
    monkeypatch.setattr(server, "_WATCHES_EACH", each)
    with serving(Server(network(), "cleartext")) as service, channel(service) as through:
        held = [watch(through) for _ in range(3)]
        assert [next(told).status for told in held] == [Status.SERVING] * 3
        with pytest.raises(grpc.RpcError) as refused:
            next(watch(through))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        (line,) = service.lines.of("refused")
        assert "too many watches" in line["why"]
        held.pop().cancel()
        until(lambda: watches(service) == 2)
        assert next(watch(through)).status == Status.SERVING
