"""Prepared work over the service: it outlives both parties, is used once, and whatever happens the next image works."""

import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager

import numpy as np
import pytest

from privcirnet.errors import Lost, RuleError
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.correlated import CorrelationFormat
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.runs.compiled import infer
from privcirnet.runs.parties import RunOptions
from privcirnet.service.client import ServiceClient
from privcirnet.service.programs import Catalogue, ProgramVersion
from privcirnet.service.quotas import Quota, Quotas
from privcirnet.service.refusals import Refused
from privcirnet.service.server import Reloaded
from privcirnet.service.store import KeyStore
from tests.conftest import ROOT
from tests.he.networks import network, random_image, residual_of_the_image
from tests.service.running import reopened, serving, started, until

IMAGES = np.stack([random_image(network(), seed) for seed in range(4)])
SIZE = CorrelationFormat("server", network(), bytes(32)).length


def right(image, logits) -> bool:
    """Whether logits are the integer network's, up to truncations on shares, of which each is one unit off at most."""
    expected = interpret(network(), image)["head"].ravel()
    return bool(np.abs(logits.ravel() - expected).max() < 0.2 * np.abs(expected).max())


def asked(remote, image=IMAGES[0]) -> str:
    """How an image was run, whose result is right."""
    assert right(image, run(remote.client, remote, image)[0])
    return "waited" if remote.client.waited else "prepared"


@contextmanager
def server(tmp_path, **more):
    """A service whose prepared work and keys are in folders, where the next one finds them."""
    quotas = Quotas(more.pop("quota", Quota()))
    with closing(PreparedWork(tmp_path / "server", more.pop("limit", None))) as prepared_work:
        books = {"prepared_work": prepared_work, "quotas": quotas, "store": KeyStore(folder=tmp_path / "keys")}
        with serving(more.pop("server", None) or Server(network(), "cleartext"), books=books, **more) as service:
            service.prepared_work = prepared_work
            yield service


@contextmanager
def client(tmp_path, service, notes=None):
    """A client whose prepared work is in a folder, where the next one finds it."""
    note = (notes if notes is not None else []).append
    with closing(PreparedWork(tmp_path / "client", note=note)) as prepared_work:
        with ServiceClient(service.address, "cleartext", prepared_work=prepared_work) as remote:
            yield remote


@pytest.fixture
def port():
    """A port of the service that stays when it starts again: a client's prepared work belongs to a server's address."""
    with serving(Server(network(), "cleartext")) as service:
        return service.address


def test_prepared_work_outlives_both_and_needs_no_keys(tmp_path, port):
    with server(tmp_path, address=port) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 3)
        assert asked(remote) == "prepared"
        assert remote.prepared == service.prepared_work.count("local") == 2
    with server(tmp_path, address=port) as service:
        with client(tmp_path, service) as remote:
            assert (remote.prepared, remote.bytes_keys) == (2, 0)
            assert [asked(remote, image) for image in IMAGES[:2]] == ["prepared", "prepared"]
            assert remote.bytes_keys == 0
            assert asked(remote) == "waited"
            assert remote.bytes_keys > 0
    assert not list((tmp_path / "server").glob("*.prepared")) + list((tmp_path / "client").glob("*.prepared"))


def test_metrics_and_audit_log_tell_images_and_preparations_apart(tmp_path):
    with server(tmp_path, quota=Quota(images=2)) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 2)
        assert [asked(remote), asked(remote)] == ["prepared", "prepared"]
        with pytest.raises(Refused, match="a client may begin 2 images in all"):
            asked(remote)
        until(lambda: service.sessions == 0)
        assert [line["count"] for line in service.audited.of("prepared")] == [2]
        assert [line.get("prepared") for line in service.audited.of("image")] == [True, True]
        values = {
            sample.name: sample.value
            for family in service.books.metrics.registry.collect()
            for sample in family.samples
        }
        names = ("images", "images_prepared", "prepared")
        assert [values[f"privcirnet_{name}_total"] for name in names] == [2, 2, 2]
        assert values["privcirnet_prepared_bytes"] == 0


def dropped(found) -> list[str]:
    return found.summary(None, np.zeros(len(IMAGES))).phases.dropped


def test_a_quota_of_preparations(tmp_path):
    """What does not fit into it is run without; what is used makes room."""
    with server(tmp_path, quota=Quota(prepared=2)) as service, client(tmp_path, service) as remote:
        for count, got in ((3, "0 and 3 more"), (1, "one more")):
            with pytest.raises(Refused, match=f"a client may have 2 inferences prepared here: got {got}"):
                prepare(remote.client, remote, count)
            remote.reopen()
            if not remote.prepared:
                prepare(remote.client, remote, 2)
        assert remote.prepared == 2
        assert asked(remote) == "prepared"
        prepare(remote.client, remote, 1)
        found = infer(remote, IMAGES, RunOptions(prepare=5), keep=True)
        assert [answer.prepared for answer in found.answers] == [True, True, True, True]
        assert "a client may have 2 inferences prepared here" in dropped(found)[-1]


def test_a_quota_of_one(tmp_path):
    """Each image is then prepared by itself."""
    with server(tmp_path, quota=Quota(prepared=1)) as service, client(tmp_path, service) as remote:
        found = infer(remote, IMAGES, RunOptions(prepare=2))
        assert all(right(*both) for both in zip(IMAGES, found.logits, strict=True))
    with pytest.raises(RuleError, match=r"a quota must have .* keys, prepared >= 1: got prepared=0"):
        Quota(prepared=0)


def test_a_full_server(tmp_path):
    """It refuses before the work, tells when to come again, and nobody loses prepared work to somebody else."""
    with server(tmp_path, limit=int(1.5 * SIZE)) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 1)
        with pytest.raises(Refused, match="a server must have room for prepared work, of") as refused:
            prepare(remote.client, remote, 1)
        assert refused.value.retry_after_s > 0
        remote.reopen()
        assert [asked(remote), asked(remote)] == ["prepared", "waited"]


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_disk_that_is_full_in_mid_preparation(tmp_path, file_limit, side):
    """Neither side keeps a half, and the image says so, too, until there is room."""
    with server(tmp_path) as service, client(tmp_path, service) as remote:
        sizes = {"client": CorrelationFormat("client", network(), bytes(32)).length, "server": SIZE}
        if side == "server":
            remote.store = remote.client._prepared.store = PreparedWork().of(remote._binding)
        file_limit(min(sizes.values()) // 2)
        with pytest.raises(RuleError, match=r"prepared work must be kept on a disk: got .*File too large"):
            prepare(remote.client, remote, 1)
        remote.reopen()
        assert (remote.prepared, service.prepared_work.count("local")) == (0, 0)
        with pytest.raises(RuleError, match=r"prepared work must be kept on a disk: got .*File too large"):
            asked(remote)
        file_limit(1 << 30)
        remote.reopen()
        assert asked(remote) == "waited"


@pytest.mark.parametrize("side", ["client", "server"])
def test_one_side_lost_its_store(tmp_path, port, side):
    """The pair is dropped on the other side too, and the message says so."""
    with server(tmp_path, address=port) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 2)
    for path in (tmp_path / side).glob("*.prepared"):
        path.unlink()
    with server(tmp_path, address=port) as service, client(tmp_path, service) as remote:
        assert asked(remote) == "waited"
        if side == "server":
            assert len(remote.client.dropped) == 2
            assert "the server has no prepared work" in remote.client.dropped[0]
        assert remote.prepared == 0
        prepare(remote.client, remote, 1)
        assert remote.prepared == service.prepared_work.count("local") == 1, "and nothing is left of the others"
        assert asked(remote, IMAGES[1]) == "prepared"


def test_the_server_loses_it_while_a_session_runs(tmp_path):
    with server(tmp_path) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 2)
        service.prepared_work.retain([])
        assert asked(remote) == "waited"
        assert "the server has no prepared work" in remote.client.dropped[0]
        assert remote.prepared == 0


def test_a_copy_of_the_clients_folder_uses_nothing_twice(tmp_path, port, monkeypatch):
    """Restored from a backup: no share of a second image under the same random numbers leaves the client."""
    sent = []
    with server(tmp_path, address=port) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 1)
        (path,), (serial,) = (tmp_path / "client").glob("*.prepared"), remote.store.serials()
        copy = path.read_bytes()
        assert asked(remote) == "prepared"
    path.write_bytes(copy)
    path.chmod(0o600)
    handle = ServiceClient.handle
    monkeypatch.setattr(ServiceClient, "handle", lambda self, message: (sent.append(message), handle(self, message))[1])
    with server(tmp_path, address=port) as service, client(tmp_path, service) as remote:
        assert asked(remote, IMAGES[1]) == "waited"
    assert not [message for message in sent if wire.begins(message) == wire.ONLINE and serial in message]
    assert not path.exists()


@pytest.mark.parametrize("side", ["client", "server"])
def test_damaged_prepared_work(tmp_path, port, side):
    with server(tmp_path, address=port) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 1)
    (path,) = (tmp_path / side).glob("*.prepared")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with server(tmp_path, address=port) as service, client(tmp_path, service) as remote:
        assert asked(remote) == "waited"
        if side == "client":
            assert any("its checksum is wrong" in why for why in remote.client.dropped)
        else:
            (line,) = service.lines.of("prepared work dropped")
            assert "its checksum is wrong" in line["why"]
        prepare(remote.client, remote, 1)
        assert asked(remote, IMAGES[1]) == "prepared"


def test_another_program_drops_its_prepared_work(tmp_path):
    """At a reload with a log line; the client drops its halves when it comes again."""
    new = Catalogue({"only": ProgramVersion.of("only", Server(residual_of_the_image(), "cleartext"))})
    notes = []
    with server(tmp_path, reload=lambda before: Reloaded(new, service._calls.access)) as service:
        service.prepared_work._note = service.lines.append
        with client(tmp_path, service) as remote:
            prepare(remote.client, remote, 2)
            service.reload()
            until(lambda: service.prepared_work.count("local") == 0)
        with client(tmp_path, service, notes) as remote:
            assert remote.prepared == 0
    assert "prepared work of 2 inferences was removed unused: of another program" in service.lines
    assert notes == ["prepared work of 2 inferences was removed unused: of another program"]


def test_another_client_finds_nothing(tmp_path):
    """The same identity, such as of a plain server, with a folder of its own."""
    with server(tmp_path) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 1)
        with client(tmp_path / "other", service) as other:
            assert asked(other) == "waited"
            (serial,) = remote.store.serials()
            message = wire.frame(wire.ONLINE, [serial, next(other.client.infer(IMAGES[0]))])
            assert wire.begins(other.handle(message)) == wire.ONLINE
        assert asked(remote) == "prepared"


def test_a_session_without_keys_is_for_prepared_work_alone(tmp_path, monkeypatch):
    with server(tmp_path) as service, client(tmp_path, service) as remote:
        prepare(remote.client, remote, 1)
        monkeypatch.setattr(remote, "_keys", None)
        monkeypatch.setattr(remote, "_id", b"")
        remote.reopen()
        remote._keys = b"none were registered"
        with pytest.raises(Refused, match="keys"):
            remote.handle(wire.frame(wire.PREPARE, [b"\1\0"]))


KILLED = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service.client import ServiceClient
from tests.he.networks import network, random_image

folder, port, phase, step = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
with ServiceClient(("127.0.0.1", port), "cleartext", prepared_work=PreparedWork(folder)) as remote:
    if phase == "online":
        prepare(remote.client, remote, 1)
    count, handle = [0], remote.handle
    def handled(message):
        if count[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        reply = handle(message)
        if count[0] + 1 == step:
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += 2
        return reply
    remote.handle = handled
    prepare(remote.client, remote, 1) if phase == "prepare" else run(remote.client, remote, random_image(network()))
    print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["prepare", "online"])
def test_a_client_that_is_killed_at_any_round(tmp_path, phase):
    """Before each round and after it. Afterwards both sides agree on what is left, and nothing of it was used.

    The quota is one: half a pair that stayed would be in the way of the next.
    """
    with server(tmp_path, quota=Quota(prepared=1, sessions=100)) as service:
        for step in range(100):
            command = [
                sys.executable,
                "-c",
                KILLED,
                str(tmp_path / "client"),
                str(service.address[1]),
                phase,
                str(step),
            ]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode in (0, -signal.SIGKILL), done.stderr
            until(lambda: service.sessions == 0)
            with client(tmp_path, service) as remote:
                left = remote.prepared
                assert phase == "prepare" or left == 0, "it is gone before the first message"
                assert asked(remote, IMAGES[step % 4]) == ("prepared" if left else "waited")
            assert service.prepared_work.count("local") == 0 or not left
            if "done" in done.stdout:
                break
        assert step >= 3


@pytest.mark.slow
def test_a_server_that_is_killed_in_mid_preparation_and_in_mid_image(tmp_path):
    def interrupted(remote, process, exchange):
        message = exchange.send(remote.handle(next(exchange)))
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(Lost):
            remote.handle(message)
        exchange.close()

    with started(tmp_path) as (port, process):
        remote = ServiceClient(("127.0.0.1", port), "cleartext", prepared_work=PreparedWork(tmp_path / "client"))
        prepare(remote.client, remote, 2)
        interrupted(remote, process, remote.client.prepare(1))
    with remote:
        with started(tmp_path, port) as (_, process):
            until(lambda: reopened(remote), 20)
            assert remote.prepared == 2, "what was whole is there"
            interrupted(remote, process, remote.client.infer(IMAGES[0]))
        assert remote.prepared == 1
        with started(tmp_path, port):
            until(lambda: reopened(remote), 20)
            assert [asked(remote, image) for image in IMAGES[1:3]] == ["prepared", "waited"]
            assert len(list((tmp_path / "server").glob("*.prepared"))) == 0
