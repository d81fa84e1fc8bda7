"""Metrics at a port of their own."""

import urllib.request

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.parties.server import Server
from tests.he.networks import network, random_image
from tests.service.running import ask, serving, until


def test_what_prometheus_reads():
    with serving(Server(network(), "cleartext")) as service:
        listening = service.books.metrics.listen("127.0.0.1", 0)
        ask(service, random_image(network()))
        until(lambda: not service.sessions)
        with urllib.request.urlopen(f"http://127.0.0.1:{listening.port}/metrics", timeout=5) as page:
            text = page.read().decode()
        with pytest.raises(RuleError, match="metrics must have a port of their own"):
            service.books.metrics.listen("127.0.0.1", listening.port)
        listening.close()
    for line in ('privcirnet_images_total{program="only"} 1.0', "privcirnet_sessions 0.0", "process_resident_memory"):
        assert line in text
    assert "local" not in text
