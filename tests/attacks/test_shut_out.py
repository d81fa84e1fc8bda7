"""Whoever is shut out by a reload is out at its next request, in sessions that are open too; nobody holds every place."""

from contextlib import ExitStack

import pytest

from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service.access import PLAIN_SERVER, ClientAccess, ServerAccess
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.quotas import Quota
from privcirnet.service.refusals import Refused, stranger
from privcirnet.service.server import Reloaded
from tests.he.networks import network, random_image
from tests.service.running import serving, until

IMAGE = random_image(network())
OUT = Quota(), {"alice": Quota(sessions=0)}
SHUT = r"a client must have a quota of sessions: got 0; ask whoever runs the server"


@pytest.fixture
def known(monkeypatch):
    """Names of clients that are let in, each of which is its own token."""
    found = {"alice", "bob", "carol"}

    def name_of(access, context):
        (name,) = [value for key, value in context.invocation_metadata() if key == "authorization"]
        if name not in found:
            raise stranger("another token")
        return name

    monkeypatch.setattr(ServerAccess, "name_of", name_of)
    return found


def client(service, name):
    return ServiceClient(service.address, "cleartext", access=ClientAccess(None, (("authorization", name),)))


def reloading(quotas=None, **more):
    return serving(Server(network(), "cleartext"), reload=lambda before: Reloaded(before, PLAIN_SERVER, quotas), **more)


def reload(service):
    service.reload()
    until(lambda: service.lines.of("reloaded"))


@pytest.mark.parametrize("then", ["an image", "the rest of an image", "a preparation", "the rest of a preparation"])
def test_an_open_session_ends_at_its_next_request(known, then):
    with reloading(OUT) as service, client(service, "alice") as alice, client(service, "bob") as bob:
        run(alice.client, alice, IMAGE)
        exchange = alice.client.prepare(1) if "preparation" in then else alice.client.infer(IMAGE)
        message = next(exchange)
        if "rest" in then:
            message = exchange.send(alice.handle(message))
        before = len(service.audited.of("image begun") + service.audited.of("preparation begun"))
        reload(service)
        with pytest.raises(Refused, match=SHUT):
            alice.handle(message)
        until(lambda: service.sessions == 1)
        assert len(service.audited.of("image begun") + service.audited.of("preparation begun")) == before
        run(bob.client, bob, IMAGE)


def test_it_gets_nothing_else_either(known):
    with reloading(OUT) as service, client(service, "alice") as alice:
        reload(service)
        for call in (lambda: alice._chosen(""), alice._described, alice._found, alice.reopen):
            with pytest.raises(Refused, match=SHUT):
                call()
        alice._found = lambda: False
        with pytest.raises(Refused, match=SHUT):
            alice._register()


def test_a_token_that_was_taken_away_ends_its_sessions(known):
    with serving(Server(network(), "cleartext")) as service, client(service, "alice") as alice:
        run(alice.client, alice, IMAGE)
        known.remove("alice")
        with pytest.raises(Refused, match="a client must be known: got another token"):
            prepare(alice.client, alice, 1)
        until(lambda: service.sessions == 0)


@pytest.mark.parametrize(("places", "most"), [(4, 3), (2, 1), (1, 1)])
def test_one_client_leaves_a_place(known, places, most):
    """By default; where there is but one place, it is for whoever comes first."""
    with serving(Server(network(), "cleartext"), ServiceLimits(sessions=places)) as service, ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(client(service, "alice"))
        with pytest.raises(Refused, match=f"a client has at most {most} sessions at once"):
            client(service, "alice")
        if places > 1:
            bob = stack.enter_context(client(service, "bob"))
            run(bob.client, bob, IMAGE)
