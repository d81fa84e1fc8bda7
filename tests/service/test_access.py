"""Who gets in: certificates, tokens, TLS 1.3 alone; and what a stranger gets."""

import hashlib
import json
import shutil
import socket
import ssl

import pytest

from privcirnet.errors import Lost, RuleError
from privcirnet.he.protocol.parties.server import Server
from privcirnet.service.access import ClientAccess, ServerAccess
from privcirnet.service.certificates import make_trial
from privcirnet.service.client import ServiceClient
from privcirnet.service.refusals import Refused
from privcirnet.service.server import Reloaded
from tests.he.networks import network, random_image
from tests.service.running import ask, catalogue, serving, until

IMAGE = random_image(network())


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """(the server's folder, the client's, another authority's client's)."""
    folder = tmp_path_factory.mktemp("trial")
    server, client = make_trial(folder / "one", ["127.0.0.1", "localhost"])
    _, other = make_trial(folder / "other", ["127.0.0.1"])
    return server, client, other


@pytest.fixture(scope="module")
def tokens(trial, tmp_path_factory):
    """(a server's folder with the digest of one token, the folder of the client that has it, that of one with another)."""
    folder = tmp_path_factory.mktemp("tokens")
    digest = hashlib.sha256(b"0123abcd").hexdigest()
    for name, token in {"server": None, "client": "0123abcd", "other": "0123abce"}.items():
        shutil.copytree(trial[0] if token is None else trial[1], folder / name)
        if token:
            (folder / name / "client.token").write_text(token + "\n")
            (folder / name / "client.token").chmod(0o600)
    (folder / "server" / "clients.crt").unlink()
    (folder / "server" / "tokens.json").write_text(json.dumps({"alice": digest}))
    return folder / "server", folder / "client", folder / "other"


@pytest.mark.parametrize(("kind", "name"), [("trial", "trial"), ("tokens", "alice")])
def test_a_known_client_is_served_under_its_name(kind, name, request):
    server, client, _ = request.getfixturevalue(kind)
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        ask(service, access=ClientAccess.of(client))
    assert [line["client"] for line in service.audited.of("image")] == [name]


def test_certificates_are_renewed_without_a_restart(trial, tmp_path):
    """Who shows the old authority's certificate gets nothing any more, and does not know the server."""
    folder = tmp_path / "server"
    shutil.copytree(trial[0], folder)
    access = {"old": ClientAccess.of(trial[1])}
    offered = catalogue(only=Server(network(), "cleartext"))

    def connect(which):
        ask(service, access=access[which])

    reload = lambda before: Reloaded(before, ServerAccess.of(folder))  # noqa: E731
    with serving(offered, access=ServerAccess.of(folder), reload=reload) as service:
        connect("old")
        renewed, client = make_trial(tmp_path / "renewed", ["127.0.0.1"])
        access["new"] = ClientAccess.of(client)
        shutil.copytree(renewed, folder, dirs_exist_ok=True)
        connect("old")
        service.reload()
        until(lambda: service.lines.of("reloaded"))
        connect("new")
        with pytest.raises(Lost):
            connect("old")
        (folder / "clients.crt").unlink()
        (folder / "tokens.json").write_text("{}")
        service.reload()
        until(lambda: service.lines.of("nothing is reloaded"))
        assert "must show who they are as when it began" in service.lines.of("nothing is reloaded")[0]["why"]
        connect("new")


def test_a_certificate_of_another_authority_gets_nothing_but_an_end(trial):
    """The client trusts the server; its own certificate is another authority's."""
    server, client, other = trial
    mixed = other.parent / "mixed"
    shutil.copytree(other, mixed, dirs_exist_ok=True)
    shutil.copy(client / "ca.crt", mixed / "ca.crt")
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        with pytest.raises(Lost):
            ServiceClient(service.address, "cleartext", access=ClientAccess.of(mixed))
        assert not service.lines
        ask(service, access=ClientAccess.of(client))


def test_a_server_of_another_authority_is_not_talked_to(trial):
    server, _, other = trial
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        with pytest.raises(Lost, match="server and client must have certificates of the same authority"):
            ServiceClient(service.address, "cleartext", access=ClientAccess.of(other))


def test_another_token_or_none_is_refused(tokens, trial):
    server, _, other = tokens
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        for folder in (other, trial[1]):
            with pytest.raises(Refused, match=r"a client must be known: got (another|no bearer) token"):
                ServiceClient(service.address, "cleartext", access=ClientAccess.of(folder))
        assert not service.audited
        assert "0123" not in "".join(service.lines)


def test_plain_text_is_not_understood_where_tls_is(trial):
    server, client, _ = trial
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        with pytest.raises(Lost):
            ServiceClient(service.address, "cleartext")
    with serving(Server(network(), "cleartext")) as service:
        with pytest.raises(Lost):
            ServiceClient(service.address, "cleartext", access=ClientAccess.of(client))


def test_a_grpc_that_was_loaded_too_early_is_not_trusted(subprocess_python):
    program = (
        "import os; os.environ.pop('GRPC_SSL_CIPHER_SUITES', None)\nimport grpc\nfrom privcirnet.service.access import ServerAccess\nfrom pathlib import Path\n"
        "try:\n    ServerAccess.of(Path('x'))\nexcept ValueError as error:\n    print(error)"
    )
    assert subprocess_python(program).startswith("TLS must be 1.3: got gRPC loaded already")


@pytest.mark.parametrize(("version", "served"), [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)])
def test_tls_is_13(trial, version, served):
    """OpenSSL as a client, with the right certificates and one version."""
    server, client, _ = trial
    context = ssl.create_default_context(cafile=str(client / "ca.crt"))
    context.load_cert_chain(client / "client.crt", client / "client.key")
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = version
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        with socket.create_connection(service.address) as bare:
            if not served:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    context.wrap_socket(bare, server_hostname="127.0.0.1")
                return
            with context.wrap_socket(bare, server_hostname="127.0.0.1") as secured:
                assert secured.version() == "TLSv1.3"


def test_keys_and_tokens_that_everyone_can_read_are_refused(trial, tokens, tmp_path):
    for folder, name, load in (
        (trial[0], "server.key", ServerAccess.of),
        (trial[1], "client.key", ClientAccess.of),
        (tokens[1], "client.token", ClientAccess.of),
    ):
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        (copy / name).chmod(0o644)
        with pytest.raises(RuleError, match=r"a secret must not be readable by everyone: got .*; chmod 600"):
            load(copy)


def test_a_trial_is_the_owners_alone(trial):
    for folder in trial[:2]:
        assert folder.stat().st_mode & 0o077 == 0
        assert not [path for path in folder.iterdir() if path.stat().st_mode & 0o077]
    assert not [path for path in trial[0].parent.rglob("*.key") if path.name not in ("server.key", "client.key")]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"alice": 1}',
        '{"alice": "ab"}',
        '{"": "' + "a" * 64 + '"}',
        '{"a": "%s", "b": "%s"}' % (("a" * 64,) * 2),
    ],
)
def test_tokens_that_are_none(tokens, tmp_path, content):
    shutil.copytree(tokens[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokens.json").write_text(content)
    with pytest.raises(RuleError, match=r"tokens\.json must map names to SHA-256 of tokens"):
        ServerAccess.of(tmp_path)


def test_a_folder_says_in_one_way_who_its_clients_are(trial, tokens, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(trial[0], both)
    shutil.copy(tokens[0] / "tokens.json", both)
    with pytest.raises(RuleError, match=r"must have clients\.crt or tokens\.json: got both"):
        ServerAccess.of(both)
