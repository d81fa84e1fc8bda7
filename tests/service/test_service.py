"""A service and its clients: results, turns, refusals, programs, the end."""

import asyncio
import threading
import time

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from privcirnet.errors import RuleError
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import sampling
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.messages import SERVICE
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.refusals import Refused
from privcirnet.service.server import Reloaded, Service
from tests.he.networks import network, random_image, residual_of_the_image
from tests.he.parties import seeded
from tests.service.running import ask, catalogue, serving, until

IMAGE = random_image(network())


def expected(engine: str, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Logits of both parties in this process, with masks that repeat."""
    server = Server(network(), engine)
    client = Client(server.greeting(), engine)
    session = server.session(client.keys())
    monkeypatch.setattr(sampling, "uniform", seeded(7))
    return run(client, session, IMAGE)[0]


@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_logits_over_grpc_are_those_of_one_process(engine, monkeypatch):
    """With the same masks, bit for bit; over and over in one session, and in the next one."""
    wanted = expected(engine, monkeypatch)
    with serving(Server(network(), engine)) as service, ServiceClient(service.address, engine) as remote:
        for _ in range(2):
            monkeypatch.setattr(sampling, "uniform", seeded(7))
            logits, traffic = run(remote.client, remote, IMAGE)
            assert np.array_equal(logits, wanted)
            assert len(traffic) == schedule_of(network()).rounds
            remote.reopen()
    assert len(service.audited.of("image")) == 2
    assert len(service.audited.of("keys registered")) == 1, "they are sent once"


def test_the_only_session_is_computed_where_it_is_read_once_its_rounds_are_known_to_be_quick(monkeypatch):
    names, handle = [], Session.handle

    def noted(session, message):
        names.append(threading.current_thread().name.startswith("privcirnet turn"))
        return handle(session, message)

    monkeypatch.setattr(Session, "handle", noted)
    program, image = network(), random_image(network())
    with serving(Server(program, "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        prepare(remote.client, remote, 2)
        names.clear()
        (offer,) = service._calls.catalogue.offers
        offer.took.clear()
        run(remote.client, remote, image)
        rounds = len(names)
        assert names[:rounds] == [True] * rounds, "nothing is known of the first image"
        assert len(offer.took) == rounds
        names.clear()
        offer.took.update(dict.fromkeys(offer.took, 0.0))
        run(remote.client, remote, image)
        assert names == [False] * rounds
        with ServiceClient(service.address, "cleartext") as other:
            prepare(other.client, other)
            names.clear()
            run(other.client, other, image)
            assert names == [True] * rounds, "of two sessions neither holds up the other"


def test_two_clients_at_once_do_not_disturb_each_other():
    """Their requests alternate, image by image and step by step; each has its own keys, masks and shares."""
    program, images = network(), [random_image(network(), seed) for seed in range(4)]
    server = Server(program, "cleartext")
    client = Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    wanted = [run(client, session, image)[0] for image in images]
    found: dict[int, np.ndarray] = {}
    with serving(server) as service:
        meet = threading.Barrier(2, timeout=10)

        def ask(numbers):
            with ServiceClient(service.address, "cleartext") as remote:
                meet.wait()
                for number in numbers:
                    found[number], _ = run(remote.client, remote, images[number], lambda _: meet.wait())

        threads = [threading.Thread(target=ask, args=(numbers,)) for numbers in ((0, 1), (2, 3))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    for number, logits in enumerate(wanted):
        assert np.abs(found[number] - logits).max() < 0.2 * np.abs(logits).max(), "up to truncations"


def test_sessions_take_turns(monkeypatch):
    """Counters and threads belong to the engine, of which there is one."""
    original, inside, most = Session.handle, [], []

    def watched(self, message):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        try:
            return original(self, message)
        finally:
            inside.pop()

    monkeypatch.setattr(Session, "handle", watched)
    with serving(Server(network(), "cleartext")) as service:
        threads = [threading.Thread(target=ask, args=(service,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(most) == 3 * schedule_of(network()).rounds
    assert max(most) == 1


def test_a_client_too_many_is_told_when_to_come_again():
    with serving(Server(network(), "cleartext"), ServiceLimits(sessions=1)) as service:
        with ServiceClient(service.address, "cleartext"):
            rule = "a server has at most 1 sessions at once: got one more"
            with pytest.raises(Refused, match=rule) as refused:
                ServiceClient(service.address, "cleartext")
            assert refused.value.retry_after_s > 0
        until(lambda: not service.sessions)
        ask(service)


def test_the_servers_refusal_reaches_the_client():
    with serving(Server(network(), "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        with pytest.raises(Refused, match=r"refused: a message must be about step 65533: got magic b'PCN3', st"):
            remote.handle(wire.frame(3, []))
        with pytest.raises(Refused):
            remote.handle(wire.frame(1, []))
    assert "a message must be about step 65533" in service.lines.of("refused")[0]["why"]


def test_keys_of_another_program_are_refused_and_forgotten(monkeypatch):
    monkeypatch.setattr(Client, "keys", lambda self: b"no keys")
    with serving(Server(network(), "cleartext")) as service:
        with pytest.raises(Refused, match="keys must be for the plan's rotations"):
            ServiceClient(service.address, "cleartext")
        assert service.books.store.size == 0


def test_a_bug_says_nothing_of_itself_to_the_client(monkeypatch):
    def broken(self, message):
        raise ZeroDivisionError("secret weight 3")

    with serving(Server(network(), "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        with monkeypatch.context() as patch:
            patch.setattr(Session, "handle", broken)
            words = r"^the server at \S+ refused: a server must not fail: got it did"
            with pytest.raises(Refused, match=words):
                run(remote.client, remote, IMAGE)
        assert "secret weight 3" in service.lines.of("the server failed")[0]["why"]
        ask(service)


def test_the_servers_shares_reach_only_a_function_of_its_own_process():
    seen = []
    with serving(Server(network(), "cleartext"), finished=seen.append) as service:
        ask(service)
        until(lambda: len(seen) == 1)
    assert isinstance(seen[0], Session)


def test_several_programs_by_name_and_version():
    offered = catalogue(a=Server(network(), "cleartext"), b=Server(residual_of_the_image(), "cleartext"))
    with serving(offered) as service:
        with pytest.raises(RuleError, match="a client must name a program of its server: got ''"):
            ServiceClient(service.address, "cleartext")
        for name, program in {"a": network(), "b": residual_of_the_image()}.items():
            with ServiceClient(service.address, "cleartext", program=name) as remote:
                assert remote.version == offered.find(name, "").version
                run(remote.client, remote, random_image(program))


def test_a_reload_leaves_old_sessions_what_they_have():
    """The old client goes on; a new one gets the new program; one that read the old description is told."""
    after = Catalogue({"only": ProgramVersion.of("only", Server(residual_of_the_image(), "cleartext"))})
    with serving(Server(network(), "cleartext"), reload=lambda before: Reloaded(after, service.access)) as service:
        service.access = service._calls.access
        with ServiceClient(service.address, "cleartext") as old:
            service.reload()
            until(lambda: service.lines.of("reloaded"))
            run(old.client, old, IMAGE)
            with ServiceClient(service.address, "cleartext") as new:
                assert new.version != old.version
                run(new.client, new, random_image(residual_of_the_image()))
            with pytest.raises(Refused, match="a program's version must be the current one"):
                old.reopen()


def test_who_is_idle_when_a_service_stops_is_told_to_come_again():
    with serving(Server(network(), "cleartext")) as service:
        remote = ServiceClient(service.address, "cleartext")
    with remote, pytest.raises(RuleError, match=r"it shuts down; connect again|must listen at its address"):
        run(remote.client, remote, IMAGE)


def test_an_image_ends_before_the_service_does():
    with serving(Server(network(), "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        prepare(remote.client, remote)
        stop = iter([service.stop])
        logits, _ = run(remote.client, remote, IMAGE, lambda _: next(stop, lambda: None)())
        assert logits.size == 10
        with pytest.raises(RuleError, match=r"it shuts down; connect again|a server must listen at its address"):
            run(remote.client, remote, IMAGE)


def test_health():
    with serving(Server(network(), "cleartext")) as service:
        with grpc.insecure_channel(f"127.0.0.1:{service.address[1]}") as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            for name in ("", SERVICE):
                found = check(health_pb2.HealthCheckRequest(service=name), timeout=5)
                assert found.status == health_pb2.HealthCheckResponse.SERVING


def test_a_service_is_made_where_a_loop_runs_already():
    """As in a notebook."""

    async def make() -> Service:
        return Service(catalogue())

    service = asyncio.run(make())
    thread = threading.Thread(target=service.run)
    thread.start()
    service.stop()
    thread.join()


def test_nobody_listens():
    with serving(Server(network(), "cleartext")) as service:
        words = f"able to listen at its address: got 127.0.0.1:{service.address[1]}: Address already in use"
        with pytest.raises(RuleError, match=words):
            Service(catalogue(only=Server(network(), "cleartext")), service.address)
    words = f"a server must listen at its address: got the server at 127.0.0.1:{service.address[1]}: .*refused"
    with pytest.raises(RuleError, match=words):
        ServiceClient(service.address)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_plain_text_stays_on_loopback(host):
    with pytest.raises(RuleError, match="a server must use TLS beyond loopback"):
        Service(catalogue(only=Server(network(), "cleartext")), (host, 0))
    with pytest.raises(RuleError, match="a client must use TLS beyond loopback"):
        ServiceClient((host, 1))


def test_a_reply_that_is_too_long_is_not_read(monkeypatch):
    with serving(Server(network(), "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        monkeypatch.setattr(Session, "handle", lambda self, message: bytes(schedule_of(network()).sizes.reply + 1))
        with pytest.raises(RuleError, match=r"a message must have at most \d+ bytes here"):
            run(remote.client, remote, IMAGE)
