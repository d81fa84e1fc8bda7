"""A megabyte of zeros under gzip is a gigabyte when it is inflated, and gRPC inflates before anybody says who it is.

Both sides refuse every message that is compressed, and inflate none. gRPC alone bounded what it inflates only from
1.82.2 on.
"""

import gzip
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2

from privcirnet.errors import RuleError
from privcirnet.he.protocol.parties.server import Server
from privcirnet.service import messages
from privcirnet.service.client import ServiceClient
from tests.he.networks import network
from tests.service.running import catalogue, serving
from tests.service.strangers import channel

ZEROS = b"\x7a\xa0\x8d\x06" + bytes(100_000)
"""A message of any kind: an unknown field that is skipped."""
ALGORITHMS = grpc.Compression.Gzip, grpc.Compression.Deflate


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """Bytes of each message that either side was given to read."""
    found, parse = [], messages._read
    monkeypatch.setattr(messages, "_read", lambda made, content: (found.append(len(content)), parse(made, content))[1])
    return found


def asked(through, path, shape, compression):
    """A call of any shape with one message."""
    make = getattr(through, shape)(path, lambda message: message, lambda message: message)
    sent = iter([ZEROS]) if shape.startswith("stream") else ZEROS
    answer = make(sent, timeout=10, compression=compression)
    return answer if shape.endswith("unary") else next(answer)


CALLS = [(method.path, method.shape) for method in messages.METHODS.values()]
HEALTH = [("/grpc.health.v1.Health/Check", "unary_unary"), ("/grpc.health.v1.Health/Watch", "unary_stream")]


@pytest.mark.parametrize("compression", ALGORITHMS)
@pytest.mark.parametrize(("path", "shape"), CALLS + HEALTH)
def test_a_server_refuses_it_unread(read, capfd, path, shape, compression):
    with serving(Server(network(), "cleartext")) as service, channel(service) as through:
        with pytest.raises(grpc.RpcError) as refused:
            asked(through, path, shape, compression)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert re.search("Compression algorithm '(gzip|deflate)' is disabled", refused.value.details())
    assert max(read, default=0) < len(gzip.compress(ZEROS)) + 100, "it was inflated"
    assert "is disabled" not in capfd.readouterr().err, "whoever sends one writes to the server's stderr"


@contextmanager
def hostile(compression):
    """A server whose every reply is compressed."""
    greeting = catalogue(only=Server(network(), "cleartext")).offers[0].greeting
    program = messages.Program(name="only", version="1")
    replies = {
        "Programs": lambda request, context: messages.ProgramList(programs=[program]),
        "Describe": lambda request, context: iter([messages.Chunk(data=greeting, last=True)]),
    }
    handlers = {
        name: getattr(grpc, f"{messages.METHODS[name].shape}_rpc_method_handler")(
            reply, messages.METHODS[name].request.FromString, lambda reply: reply.SerializeToString() + ZEROS
        )
        for name, reply in replies.items()
    }
    server = grpc.server(ThreadPoolExecutor(2), compression=compression)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(messages.SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield "127.0.0.1", port
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize("compression", ALGORITHMS)
@pytest.mark.parametrize("name", ["Programs", "Describe"])
def test_a_client_refuses_it_unread(read, monkeypatch, name, compression):
    if name == "Describe":
        program = messages.Program(name="only", version="1")
        monkeypatch.setattr(ServiceClient, "_chosen", lambda self, name: program)
    with hostile(compression) as address:
        for _ in range(10):  # whether a stream's first message comes before its refusal is a race
            with pytest.raises(RuleError, match=r"is disabled|Exception deserializing|version of the protocol"):
                ServiceClient(address, "cleartext")
    assert max(read, default=0) < len(ZEROS), "it was inflated"


def test_an_uncompressed_message_of_that_size_is_read(read):
    with serving(Server(network(), "cleartext")) as service, channel(service) as through:
        asked(through, *CALLS[0], None)
        health = asked(through, *HEALTH[0], None)
    assert max(read) == len(ZEROS)
    assert health_pb2.HealthCheckResponse.FromString(health).status == health_pb2.HealthCheckResponse.SERVING
