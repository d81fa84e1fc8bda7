"""Preparation by actors of a Ray of this machine: right answers, a lost actor costs its piece alone, programs change."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from socket import socket

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.background_preparation import BackgroundPreparation
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service import prepared_workers
from privcirnet.service.access import PLAIN_SERVER
from privcirnet.service.client import ServiceClient
from privcirnet.service.prepared_workers import ActorOptions, PreparedWorkers, check_where
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.refusals import Refused
from privcirnet.service.server import Reloaded
from tests.conftest import ROOT
from tests.he.networks import network, random_image
from tests.service.running import rest, serving, until

IMAGE = random_image(network())


def right(program, logits, image=IMAGE) -> bool:
    """Whether logits are the integer network's, up to truncations on shares, of which each is one unit off at most."""
    expected = interpret(program, image)["head"].ravel()
    return bool(np.abs(logits.ravel() - expected).max() < 0.2 * np.abs(expected).max())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Ray of this machine, with a token: its address."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'privcirnet[ray]'")
    folder = tmp_path_factory.mktemp("ray")
    (folder / "token").write_text("0" * 64)
    with socket() as one, socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        head, port = (found.getsockname()[1] for found in (one, two))
    settings = f"--head --block --port={head} --ray-client-server-port={port} --num-cpus=2 --include-dashboard=false"
    more = ["--min-worker-port=0", "--max-worker-port=0"]  # any that are free
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(folder / "token"))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", *settings.split(), *more]
        with (folder / "log").open("w") as log, subprocess.Popen(words, stdout=log, stderr=log, cwd=folder) as process:
            try:
                until(lambda: "runtime started" in (folder / "log").read_text(), 150)
                yield f"ray://127.0.0.1:{port}"
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def workers(cluster):
    """Two actors of one core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared_workers, "_CPUS", 1)
        with closing(reached(cluster)) as found:
            yield found


def reached(cluster: str, attempts: int = 3) -> PreparedWorkers:
    """Workers of a cluster; on a busy machine a new Ray now and then refuses the first client."""
    try:
        return PreparedWorkers(cluster, 2, ActorOptions("cleartext", 1.0))
    except RuleError:
        if attempts == 1:
            raise
        return reached(cluster, attempts - 1)


def pids(workers) -> list[int]:
    """The processes of the actors."""
    return [seat.ask("__ray_call__", lambda worker: os.getpid()) for seat in workers._seats]


def held(workers) -> list[tuple[set[str], int]]:
    """What each actor holds: versions, and how many sessions."""
    look = lambda worker: (set(worker._servers), len(worker._sessions))  # noqa: E731
    return [seat.ask("__ray_call__", look) for seat in workers._seats]


@pytest.fixture
def elsewhere(monkeypatch) -> list[bool]:
    """Whether each request that a session of this process has answered was offline work."""
    asked, original = list[bool](), Session.handle

    def handle(session, message):
        asked.append(wire.is_offline(message))
        return original(session, message)

    monkeypatch.setattr(Session, "handle", handle)
    return asked


@contextmanager
def service_of(workers, **more):
    with serving(Server(network(), "cleartext"), books={"workers": workers}, **more) as service:
        yield service


def begun(remote) -> tuple[Generator[bytes, bytes, None], bytes]:
    """A preparation of one image after its first round, and the next request."""
    exchange = remote.client.prepare(1)
    agreeing = remote.handle(next(exchange))
    return exchange, exchange.send(remote.handle(exchange.send(agreeing)))


@pytest.mark.slow
def test_images_prepared_elsewhere_are_right(workers, elsewhere):
    """Two sessions at once have an actor each; nothing of them is left when they end."""
    with service_of(workers) as service:
        with ServiceClient(service.address, "cleartext") as one, ServiceClient(service.address, "cleartext") as two:
            for remote in (one, two):
                prepare(remote.client, remote, 3)
            assert [sessions for _, sessions in held(workers)] == [1, 1]
            assert service.books.prepared_work.count("local") == 6
            for remote in (one, two, one):
                assert right(network(), run(remote.client, remote, IMAGE)[0])
                assert not remote.client.waited
        until(lambda: [sessions for _, sessions in held(workers)] == [0, 0])
        assert not any(elsewhere)
        assert service.books.prepared_work.count("local") == 3
        assert [line["count"] for line in service.audited.of("prepared")] == [3, 3]


@pytest.mark.slow
def test_an_image_does_not_wait_for_a_preparation(workers):
    """Both actors stand still meanwhile; the image was prepared before."""
    with (
        service_of(workers) as service,
        ServiceClient(service.address, "cleartext") as preparing,
        ServiceClient(service.address, "cleartext") as ready,
    ):
        prepare(ready.client, ready, 1)
        exchange, message = begun(preparing)
        processes = pids(workers)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        replies = []
        waiting = threading.Thread(target=lambda: replies.append(preparing.handle(message)))
        try:
            waiting.start()
            assert right(network(), run(ready.client, ready, IMAGE)[0])
            assert not replies
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)
        waiting.join()
        exchange.send(replies[0])
        exchange.close()


@pytest.mark.slow
def test_a_lost_actor_costs_its_preparations_alone(workers):
    with (
        service_of(workers) as service,
        ServiceClient(service.address, "cleartext") as one,
        ServiceClient(service.address, "cleartext") as two,
    ):
        prepare(two.client, two, 1)
        image = two.client.infer(IMAGE)
        request = image.send(two.handle(next(image)))
        exchange, message = begun(one)
        processes = pids(workers)
        for process in processes:
            os.kill(process, signal.SIGKILL)
        with pytest.raises(Refused, match="a preparation's worker must stay until its end") as refused:
            one.handle(message)
        exchange.close()
        assert refused.value.retry_after_s == 1
        assert one.prepared == 0
        assert right(network(), rest(image, two, request))
        one.reopen()
        prepare(one.client, one, 1)
        assert right(network(), run(one.client, one, IMAGE)[0])
        assert not one.client.waited
        assert not {*processes} & {*pids(workers)}


@pytest.mark.slow
def test_whoever_keeps_a_stock_prepares_again(workers):
    with service_of(workers) as service, ServiceClient(service.address, "cleartext") as remote:
        rounds = []

        def progress(round):
            rounds.append(round)
            if len(rounds) == 3:  # offline work has begun
                for process in pids(workers):
                    os.kill(process, signal.SIGKILL)

        idle = BackgroundPreparation(remote.client, remote, 2, remote.reopen, progress=progress)
        idle.fill()
        assert (remote.prepared, idle.stopped) == (2, "")
        assert right(network(), idle.run(IMAGE)[0])
        assert not remote.client.waited


@pytest.mark.slow
def test_a_reload_changes_what_actors_hold(workers):
    """A session that is open prepares with the version that it began with."""
    old, new = (network(seed=seed) for seed in (0, 1))
    before, after = (
        Catalogue({"only": ProgramVersion("only", v, Server(x, "cleartext"))}) for v, x in (("1", old), ("2", new))
    )
    books = {"workers": workers}
    with serving(before, books=books, reload=lambda before: Reloaded(after, PLAIN_SERVER)) as service:
        with ServiceClient(service.address, "cleartext") as remote:
            prepare(remote.client, remote, 1)
            assert [held for held, _ in held(workers)] == [{"1"}, {"1"}]
            service.reload()
            until(lambda: [held for held, _ in held(workers)] == [{"2"}, {"2"}])
            prepare(remote.client, remote, 1)
            assert right(old, run(remote.client, remote, IMAGE)[0])
            assert not remote.client.waited
        with ServiceClient(service.address, "cleartext") as remote:
            prepare(remote.client, remote, 1)
            assert right(new, run(remote.client, remote, IMAGE)[0])
            assert not remote.client.waited


@pytest.mark.slow
def test_more_actors_than_cores_are_refused(workers, monkeypatch):
    monkeypatch.setattr(prepared_workers, "_connected", lambda where: workers._ray)
    monkeypatch.setattr(PreparedWorkers, "close", lambda self: None)
    with pytest.raises(RuleError, match="a Ray cluster must have the cores of all actors: got 2 times 1 for 99;"):
        PreparedWorkers("", 99, ActorOptions("cleartext", 1.0))


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("10.0.0.1:6379", "prepared_workers must be a Ray cluster: got 10.0.0.1:6379; use ray://HOST:10001"),
        ("ray://[::1]:10001", "a Ray cluster must be protected: got ray://[::1]:10001 without RAY_AUTH_MODE=token;"),
        ("ray://10.0.0.1:10001", "got ray://10.0.0.1:10001 without RAY_AUTH_MODE=token RAY_USE_TLS=1; set it here"),
    ],
)
def test_where_a_ray_may_be(where, why, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_USE_TLS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuleError, match=re.escape(why)):
        check_where(where)


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(
        RuleError, match=re.escape('prepared_workers needs Ray: got none; pip install "privcirnet[ray]"')
    ):
        PreparedWorkers("ray://127.0.0.1:10001", 0, ActorOptions("cleartext", 1.0))


@pytest.mark.slow
def test_without_its_cluster_the_server_goes_on(cluster, workers):
    """What is prepared is used; then the server prepares. The last test of this file, as the connection is lost."""
    with service_of(workers) as service, ServiceClient(service.address, "cleartext") as remote:
        prepare(remote.client, remote, 1)
        exchange, message = begun(remote)
        workers._ray.shutdown()
        with pytest.raises(Refused, match="a preparation's worker must stay until its end"):
            remote.handle(message)
        exchange.close()
        for seat in workers._seats:
            seat.lost = True
        remote.reopen()
        for waits in (False, True):
            assert right(network(), run(remote.client, remote, IMAGE)[0])
            assert remote.client.waited == waits
