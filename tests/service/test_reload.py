"""A reload takes what fits together, or nothing: the log says what is wrong, and clients are served as before."""

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

from privcirnet.errors import RuleError
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.service.access import ClientAccess, ServerAccess
from privcirnet.service.client import ServiceClient
from privcirnet.service.server import Reloaded
from tests.he.networks import network, random_image
from tests.service.authorities import Issued
from tests.service.running import ask, catalogue, serving, until

AUTHORITY = Issued("authority", signs=True)
OTHER = Issued("another", signs=True)
SERVER = Issued("server", AUTHORITY)
DEEP = b"[" * 200_000 + b"]" * 200_000
IMAGE = random_image(network())

UNFIT = {
    "another key": ("server.key", Issued("server", AUTHORITY).key, "a key must be its certificate's"),
    "no key": ("server.key", b"hello\n", "a key must be in PEM, without a password"),
    "locked": ("server.key", SERVER.locked(BestAvailableEncryption(b"x")), "a key must be in PEM, without a password"),
    "no certificate": ("server.crt", b"hello\n", "certificates must be in PEM"),
    "damaged": ("server.crt", SERVER.pem[:200] + b"\n-----END CERTIFICATE-----\n", "certificates must be in PEM"),
    "another's": ("server.crt", Issued("server", AUTHORITY).pem, "a key must be its certificate's"),
    "another's chain": ("server.crt", SERVER.pem + OTHER.pem, "each certificate of a chain must be signed by the next"),
    "no authority": ("clients.crt", b"", "certificates must be in PEM"),
    "expired": (
        "clients.crt",
        Issued("old", signs=True, hours=-1).pem,
        "a certificate must be in force: got .*clients",
    ),
    "a private key": ("clients.crt", AUTHORITY.key, "certificates must be in PEM"),
}


@pytest.fixture
def folders(tmp_path):
    """(the server's folder, its client's)."""
    server, client = tmp_path / "server", tmp_path / "client"
    SERVER.write(server, "server", AUTHORITY)
    (server / "clients.crt").write_bytes(AUTHORITY.pem)
    Issued("alice", AUTHORITY).write(client, "client")
    (client / "ca.crt").write_bytes(AUTHORITY.pem)
    return server, client


def connects(service, client):
    with ServiceClient(("localhost", service.address[1]), "cleartext", access=ClientAccess.of(client)) as remote:
        run(remote.client, remote, IMAGE)
    return True


@pytest.mark.parametrize(("file", "content", "why"), UNFIT.values(), ids=UNFIT.keys())
def test_files_that_do_not_fit_change_nothing(file, content, why, folders):
    server, client = folders
    access = ServerAccess.of(server)
    (server / file).write_bytes(content)
    with pytest.raises(RuleError, match=why):
        ServerAccess.of(server)
    reload = lambda before: Reloaded(before, ServerAccess.of(server))  # noqa: E731
    with serving(catalogue(only=Server(network(), "cleartext")), access=access, reload=reload) as service:
        service.reload()
        until(lambda: service.lines.of("nothing is reloaded"))
        assert why.partition(":")[0] in service.lines.of("nothing is reloaded")[0]["why"]
        assert not service.lines.of("reloaded")
        assert connects(service, client)


def test_what_has_expired_is_not_shown(folders):
    server, client = folders
    for folder, of in ((server, ServerAccess.of), (client, ClientAccess.of)):
        Issued("late", AUTHORITY, hours=-1).write(folder, folder.name)
        with pytest.raises(RuleError, match=rf"in force: got .*{folder.name}\.crt, which holds from .* UTC"):
            of(folder)


def test_a_client_s_key_is_its_certificate_s(folders):
    _, client = folders
    (client / "client.key").write_bytes(AUTHORITY.key)
    with pytest.raises(RuleError, match=r"client\.crt and client\.key of another one, in .*; put both of them there"):
        ClientAccess.of(client)


def test_an_authority_may_have_an_old_certificate_beside_its_new_one(folders):
    server, _ = folders
    (server / "clients.crt").write_bytes(Issued("old", signs=True, hours=-1).pem + AUTHORITY.pem)
    ServerAccess.of(server)


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), KeyError("name"), OSError("gone")])
def test_whatever_files_hold_is_one_line(error):
    def reload(before):
        raise error

    with serving(Server(network(), "cleartext"), reload=reload) as service:
        service.reload()
        until(lambda: service.lines.of("nothing is reloaded"))
        assert type(error).__name__ in service.lines.of("nothing is reloaded")[0]["why"]
        service.reload()
        until(lambda: len(service.lines.of("nothing is reloaded")) == 2)
        ask(service)


def test_deep_json_is_no_list_of_tokens(folders):
    server, _ = folders
    (server / "clients.crt").unlink()
    (server / "tokens.json").write_bytes(DEEP)
    with pytest.raises(RuleError, match=r"tokens\.json must map names to SHA-256 of tokens"):
        ServerAccess.of(server)
