"""Replicas behind nginx as deploy/ has it: sessions stick, streams pass on, and what goes wrong ends well."""

import json
import time
from concurrent import futures
from contextlib import ExitStack, contextmanager

import grpc
import pytest

from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.service.access import ClientAccess, ServerAccess
from privcirnet.service.certificates import make_trial
from privcirnet.service.client import AFFINITY, Retries, ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.messages import CHUNK, TRANSPORT
from privcirnet.service.refusals import Refused
from tests.he.networks import network
from tests.service.authorities import with_tokens
from tests.service.nginxes import BINARIES, Nginx
from tests.service.redises import Redis
from tests.service.running import rest, serving, started, until
from tests.service.test_faults import OTHER, right
from tests.service.test_retries import asked, retries


class Folders:
    """Certificates: of a server with tokens, of a client with one, and of both with mutual TLS."""

    def __init__(self, folder):
        self.mutual = make_trial(folder / "trial", ["127.0.0.1", "localhost"])
        self.server = with_tokens(*self.mutual, folder / "tokens", alice="0123abcd")
        self.client = folder / "tokens" / "alice"
        self.authority = self.client / "ca.crt"

    @property
    def access(self) -> ClientAccess:
        return ClientAccess.of(self.client)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return Folders(tmp_path_factory.mktemp("tls"))


@contextmanager
def replicated(folders, folder, find=None, limits=None):
    """(nginx, two services behind it, in this process)."""
    server, more = Server(network(), "cleartext"), {} if find is None else {"find": find}
    limits = limits or ServiceLimits(connections=256)
    with ExitStack() as stack:
        made = [serving(server, limits=limits, access=ServerAccess.of(folders.server)) for _ in range(2)]
        services = [stack.enter_context(one) for one in made]
        addresses, tls = [service.address for service in services], folders.server
        yield stack.enter_context(Nginx(folder / "nginx", addresses, tls, folders.authority, **more)), services


def through(nginx, folders, told=None, **more):
    """A client that comes through the proxy."""
    patience = Retries() if told is None else retries(told, 20)
    return ServiceClient(nginx.address, "cleartext", access=folders.access, retries=patience, **more)


def of(services, remote):
    """(the replica of a client's session, the other one)."""
    until(lambda: sum(service.sessions for service in services) == 1)
    return services if services[0].sessions else services[::-1]


@pytest.mark.parametrize("find", BINARIES)
def test_a_client_stays_at_one_replica(folders, tmp_path, find):
    with replicated(folders, tmp_path, find) as (nginx, services):
        chosen = set()
        for _ in range(12):
            with through(nginx, folders) as remote:
                own, other = of(services, remote)
                for _ in range(3):
                    assert right(asked(remote).logits)
                    remote.reopen()
                until(lambda own=own: own.sessions == 1)
                assert not other.sessions
                chosen.add(own.address)
            until(lambda own=own: not own.sessions)
        assert len(chosen) == 2, "all clients at one replica"
        assert {line["client"] for service in services for line in service.audited.of("image")} == {"alice"}
        assert len(nginx.calls) > 12
        assert "0123abcd" not in "".join(nginx.calls)


def test_refusals_come_through(folders, tmp_path):
    """The rule, and when to come again; and what shows no token gets nothing."""
    with replicated(folders, tmp_path, limits=ServiceLimits(sessions=1, connections=64)) as (nginx, _):
        stranger = ClientAccess(grpc.ssl_channel_credentials(folders.authority.read_bytes()))
        with pytest.raises(Refused, match="a client must be known: got no bearer token"):
            ServiceClient(nginx.address, "cleartext", access=stranger)
        with ExitStack() as stack:
            clients = (stack.enter_context(through(nginx, folders)) for _ in range(3))
            with pytest.raises(Refused, match="sessions at once: got one more; come again in") as refused:
                list(clients)
        assert refused.value.retry_after_s > 0


def test_a_full_replica_is_left(folders, tmp_path):
    """A client without prepared work shows another hash then, until the proxy finds it a place."""
    with replicated(folders, tmp_path, limits=ServiceLimits(sessions=1, connections=64)) as (nginx, services):
        told = []
        with through(nginx, folders) as first, through(nginx, folders, told) as second:
            assert [service.sessions for service in services] == [1, 1]
            assert right(asked(first).logits)
            assert right(asked(second).logits)
        assert all("sessions at once" in line for line in told)


@pytest.mark.parametrize("find", BINARIES)
def test_chunks_pass_on_as_they_come(folders, tmp_path, find):
    """One after the other in either direction, in one call; none waits on a disk."""
    calls = []

    def echo(requests, context):
        calls.append(dict(context.invocation_metadata()))
        yield from requests

    key, certificate = ((folders.server / f"server.{kind}").read_bytes() for kind in ("key", "crt"))
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, options=TRANSPORT)
        handler = grpc.stream_stream_rpc_method_handler(echo)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("privcirnet.v1.Inference", {"Session": handler}),)
        )
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
        server.start()
        with Nginx(tmp_path / "nginx", [("127.0.0.1", port)], folders.server, folders.authority, find) as nginx:
            credentials = grpc.ssl_channel_credentials(folders.authority.read_bytes())
            address = f"127.0.0.1:{nginx.address[1]}"
            with grpc.secure_channel(address, credentials, TRANSPORT) as channel:
                chunks = [bytes([number]) * CHUNK for number in range(24)]
                seen = []

                def one_by_one():
                    for number, chunk in enumerate(chunks):
                        until(lambda number=number: len(seen) == number)
                        yield chunk

                call = channel.stream_stream("/privcirnet.v1.Inference/Session")
                metadata = ((AFFINITY, "0" * 32), ("authorization", "Bearer 0123abcd"))
                for reply in call(one_by_one(), timeout=60, metadata=metadata):
                    seen.append(reply)
                assert seen == chunks
                assert list(call(iter(chunks), timeout=60, metadata=metadata)) == chunks
            assert "temporary file" not in nginx.errors
        server.stop(0)
    assert {call[AFFINITY] for call in calls} == {"0" * 32}
    assert {call["authorization"] for call in calls} == {"Bearer 0123abcd"}


@pytest.mark.parametrize("find", BINARIES)
def test_mutual_tls_passes_through(folders, tmp_path, find):
    """The replicas see the client's own certificate; its address decides where it goes."""
    server, access = Server(network(), "cleartext"), [ServerAccess.of(folders.mutual[0]) for _ in range(2)]
    with serving(server, access=access[0]) as first, serving(server, access=access[1]) as second:
        with Nginx(tmp_path / "nginx", [first.address, second.address], None, None, find) as nginx:
            used = set()
            for _ in range(4):
                with ServiceClient(nginx.address, "cleartext", access=ClientAccess.of(folders.mutual[1])) as remote:
                    assert right(asked(remote).logits)
            for service in (first, second):
                used |= {service.address for line in service.audited.of("image") if line["client"] == "trial"}
            assert len(used) == 1


def test_nginx_is_killed_in_an_image(folders, tmp_path):
    with replicated(folders, tmp_path) as (nginx, services):
        told = []
        with through(nginx, folders, told) as remote:
            original, sent = remote.handle, []

            def handle(message):
                sent.append(message)
                if len(sent) == 2:
                    nginx.kill()
                    nginx.start()
                return original(message)

            remote.handle = handle
            assert right(asked(remote).logits)
            assert told
        keys = [line["keys"] for service in services for line in service.audited.of("keys registered")]
        assert len(keys) == 1


def test_a_draining_replica_sends_clients_to_the_other(folders, tmp_path):
    """Who is in an image gets its answer, who is between two comes again elsewhere, and so does whoever is new."""
    limits = ServiceLimits(grace_s=60.0, connections=256)
    with replicated(folders, tmp_path, limits=limits) as (nginx, services):
        with through(nginx, folders, []) as idle:
            own, other = of(services, idle)
            with ServiceClient(own.address, "cleartext", access=folders.access) as busy:
                prepare(busy.client, busy)
                exchange = busy.client.infer(OTHER)
                message = exchange.send(busy.handle(next(exchange)))
                own.stop()
                until(lambda: own.sessions == 1)
                assert right(asked(idle).logits)
                for _ in range(6):
                    with through(nginx, folders) as new:
                        assert right(asked(new).logits)
                assert right(rest(exchange, busy, message))
        assert len(other.audited.of("image")) == 7


REPLICA = """
import json, sys
from pathlib import Path
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.ring import sampling
from privcirnet.service.access import ServerAccess
from privcirnet.service.limits import ServiceState
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.log import Log, appending
from privcirnet.service.quotas import Quotas
from privcirnet.service.server import Service
from privcirnet.service.shared.ledger import SharedInventory
from privcirnet.service.shared.keys import SharedKeys
from privcirnet.service.shared.ledger import SharedLedger
from privcirnet.service.shared.link import RedisConnection
from privcirnet.service.store import StoreLimits
from tests.he.networks import network
from tests.service.running import catalogue, digests_of_masks

folder, port = Path(sys.argv[1]), int(sys.argv[2])
given = json.loads((folder / "given.json").read_text())
link = RedisConnection(given["redis"], "test")
inventory = SharedInventory(link, False, 30.0)
digests_of_masks((folder / "masks.txt").open("a", buffering=1).write)
books = ServiceState(
    limits=ServiceLimits(connections=256),
    quotas=Quotas(ledger=SharedLedger(link)),
    store=SharedKeys(StoreLimits(), link),
    prepared_work=PreparedWork(inventory=inventory),
    log=Log(lambda line: None, "json", appending(folder / "audit.jsonl"), number=link.number),
)
service = Service(catalogue(only=Server(network(), given["engine"])), ("127.0.0.1", port), ServerAccess.of(Path(given["tls"])), books)
print(service.address[1], flush=True)
service.run()
"""


class Replicas:
    """Processes that share a Redis, behind nginx; killed ones can be started again where they were."""

    def __init__(self, folder, folders, stack, engine):
        self.redis = Redis(folder / "redis")
        stack.callback(self.redis.kill)
        given = {"redis": self.redis.url, "tls": str(folders.server), "engine": engine}
        self._stack, self.folders = stack, [folder / "one", folder / "two"]
        self.processes, self.ports = [], [0, 0]
        for number, own in enumerate(self.folders):
            own.mkdir()
            (own / "given.json").write_text(json.dumps(given))
            self.processes.append(None)
            self.start(number)
        addresses = [("127.0.0.1", port) for port in self.ports]
        self.nginx = stack.enter_context(Nginx(folder / "nginx", addresses, folders.server, folders.authority))

    def start(self, number):
        served = started(self.folders[number], self.ports[number], REPLICA)
        self.ports[number], self.processes[number] = self._stack.enter_context(served)

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number].wait()

    def audited(self, event):
        """Lines of the audit logs of both in their order, each with the number of its replica."""
        found = []
        for number, folder in enumerate(self.folders):
            lines = (folder / "audit.jsonl").read_text().splitlines()
            found += [{**line, "replica": number} for line in map(json.loads, lines) if line["event"] == event]
        return sorted(found, key=lambda line: line["number"])

    @property
    def masks(self):
        return [mask for folder in self.folders for mask in (folder / "masks.txt").read_text().split()]


def asked_through(replicas, folders, engine, prepared, told, number=0):
    """The answer to an image, at whose message of a number its replica is killed; that one is started again."""
    patience = Retries(20, told.append, lambda seconds: time.sleep(min(seconds, 0.3)))
    with ServiceClient(replicas.nginx.address, engine, access=folders.access, retries=patience) as remote:
        if prepared:
            prepare(remote.client, remote)
        serials, sent, original = remote.store.serials(), [], remote.handle
        own = replicas.audited("session opened")[-1]["replica"]

        def handle(message):
            sent.append(message)
            if len(sent) == number:
                replicas.kill(own)
            return original(message)

        remote.handle = handle
        answer = asked(remote)
        assert not set(serials) & set(remote.store.serials())
    if number:
        replicas.start(own)
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [False, True], ids=["waited", "prepared"])
@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_a_replica_is_killed_in_an_image(folders, tmp_path, engine, prepared, drawn):
    """At any message. The other one answers, with the same keys and other masks; no serial is taken twice."""
    with ExitStack() as stack:
        replicas = Replicas(tmp_path, folders, stack, engine)
        told = []
        length = len(asked_through(replicas, folders, engine, prepared, told).traffic)
        numbers = range(1, length + 1) if engine == "cleartext" else sorted({1, (length + 1) // 2, length})
        for times, number in enumerate(numbers, start=1):
            answer = asked_through(replicas, folders, engine, prepared, told, number)
            assert right(answer.logits), number
            assert len(told) >= times - 1  # before the first message, another session begins without a word
        assert length > 1
        ends = replicas.audited("image")
        assert len(ends) >= len(numbers)
        taken = [line["serial"] for line in replicas.audited("image begun") if line.get("prepared")]
        assert len(set(taken)) == len(taken)
        keys = [line["keys"] for line in replicas.audited("keys registered")]
        assert len(set(keys)) == len(keys), "a client's keys were registered once"
        everything = drawn + replicas.masks
        assert len(set(everything)) == len(everything) > 0, "something was used twice"
