"""A server that shuts down: nobody new comes in, who waits is sent elsewhere at once, what has begun may end."""

import socket

import pytest

from privcirnet.errors import Lost
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from tests.he.networks import network
from tests.service.running import rest, serving, until
from tests.service.test_faults import OTHER, right


def listens(address) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def test_draining():
    with serving(Server(network(), "cleartext"), limits=ServiceLimits(grace_s=60.0)) as service:
        with ServiceClient(service.address, "cleartext") as busy, ServiceClient(service.address, "cleartext") as idle:
            prepare(busy.client, busy)
            exchange = busy.client.infer(OTHER)
            message = exchange.send(busy.handle(next(exchange)))
            until(lambda: service.sessions == 2)
            service.stop()
            until(lambda: not listens(service.address))
            until(lambda: service.sessions == 1)
            with pytest.raises(Lost, match=r"another replica may be there|a server must listen at its address"):
                idle.handle(next(idle.client.infer(OTHER)))
            assert right(rest(exchange, busy, message))
            with pytest.raises(Lost, match=r"another replica may be there|a server must listen at its address"):
                busy.handle(next(busy.client.infer(OTHER)))
        assert not service.lines.of("the server failed")
