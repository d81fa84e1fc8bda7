"""A client whose server is lost in the middle of an image: the right answer of another replica, and nothing used twice."""

import re
import time
from collections import Counter

import pytest

from privcirnet.errors import Lost, RuleError
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.runs.answers import requests
from privcirnet.runs.compiled import infer
from privcirnet.runs.parties import RunOptions
from privcirnet.service.client import AFFINITY, Retries, ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.quotas import Quota
from privcirnet.service.refusals import NoService, Refused
from tests.he.networks import network
from tests.service.relay import relaying
from tests.service.running import serving
from tests.service.test_faults import ANSWER, OTHER, right

WHEN = pytest.mark.parametrize("when", ["before it is sent", "after its reply"])
"""The connection is cut about a message: the server has not seen it, or the client does not see the reply."""

_SAME = wire.AGREE, wire.PREPARE
"""Messages that say what is wanted: they have nothing random."""


def retries(told, most=1):
    return Retries(most, told.append, lambda seconds: time.sleep(min(seconds, 0.1)))


def cut_at(remote, relay, number, when, target):
    """Cut the relay at the message of a number, once; return a list of the messages that were sent."""
    sent, original = [], remote.handle

    def handle(message):
        sent.append(bytes(message))
        if len(sent) != number:
            return original(message)
        if when == "after its reply":
            original(message)
        relay.cut(target)
        if when == "after its reply":
            raise Lost("a peer must stay until both are done", got="a cut", remedy="connect again")
        return original(message)

    remote.handle = handle
    return sent


def asked(remote, image=OTHER):
    (((_, (answer,)),)) = requests(remote.party, remote, [image], persist=remote.persist)
    return answer._replace(logits=answer.logits.reshape(ANSWER.shape))


def length_of(service, engine, prepared) -> int:
    """How many messages an image takes."""
    with ServiceClient(service.address, engine) as remote:
        if prepared:
            prepare(remote.client, remote)
        return len(asked(remote).traffic)


@WHEN
@pytest.mark.parametrize("prepared", [False, True], ids=["waited", "prepared"])
@pytest.mark.parametrize("engine", ["cleartext", pytest.param("kernel", marks=pytest.mark.slow)])
def test_the_proxy_is_cut_at_any_message(drawn, engine, prepared, when):
    """The other replica answers an image that begins anew, with fresh randomness; a prepared one that began is gone."""
    server = Server(network(), engine)
    with serving(server) as first, serving(server) as second:
        length = length_of(first, engine, prepared)
        for number in range(1, length + 1):
            told = []
            with relaying(first.address) as relay:
                with ServiceClient(relay.address, engine, retries=retries(told, 5)) as remote:
                    if prepared:
                        prepare(remote.client, remote)
                    serials = remote.store.serials()
                    sent = cut_at(remote, relay, number, when, second.address)
                    answer = asked(remote)
            assert right(answer.logits), number
            assert told or number <= (1 if prepared else 2), "what has not begun yet takes another session at once"
            soon = r"comes again in 0\.0 s" if prepared else r"comes again in [01]\.\d s"  # a preparation begins anew
            assert all(re.match(rf"{soon} \(1 of 5\): ", line) for line in told[:1])
            assert not remote.store.serials() or serials != remote.store.serials()
            if engine != "cleartext":  # which sends the image as it is
                drawn_anew = [
                    {m for m in some if wire.begins(m) not in _SAME} for some in (sent[:number], sent[number:-1])
                ]
                assert not set.intersection(*drawn_anew), "what was sent was not drawn again"
        assert length > 1
        assert Counter(drawn).most_common(1)[0][1] == 1, "something was used twice"
        for service in (first, second):
            assert not service.lines.of("the server failed")
            keys = [line["keys"] for line in service.audited.of("keys registered")]
            assert len(set(keys)) == len(keys), "the same keys twice at a replica"
        assert {*keys} <= {line["keys"] for line in first.audited.of("keys registered")}, "other keys"


def test_a_preparation_is_cut(drawn):
    """It is given up whole, and made again at the other replica."""
    server, told = Server(network(), "cleartext"), []
    with serving(server) as first, serving(server) as second, relaying(first.address) as relay:
        with ServiceClient(relay.address, "cleartext", retries=retries(told, 5)) as remote:
            cut_at(remote, relay, 3, "after its reply", second.address)
            found = infer(remote, [OTHER], RunOptions("cleartext", prepare=1))
            assert right(found.answers[0].logits.reshape(ANSWER.shape))
            assert found.answers[0].prepared
            assert told
        assert len(second.audited.of("prepared")) == 1
    assert Counter(drawn).most_common(1)[0][1] == 1


def test_without_retries():
    with serving(Server(network(), "cleartext")) as service, relaying(service.address) as relay:
        with ServiceClient(relay.address, "cleartext") as remote:
            cut_at(remote, relay, 3, "before it is sent", None)
            with pytest.raises(Lost):
                asked(remote)


def test_too_many_failures_end_with_the_last():
    told = []
    with serving(Server(network(), "cleartext")) as service, relaying(service.address) as relay:
        with ServiceClient(relay.address, "cleartext", retries=retries(told, 3)) as remote:
            relay.close()
            with pytest.raises(NoService, match="a server must listen at its address"):
                asked(remote)
    assert [line[: line.index(":")].split(" (")[1] for line in told] == ["1 of 3)", "2 of 3)", "3 of 3)"]


def test_an_address_where_nothing_listens_is_tried_once():
    told = []
    with relaying(("127.0.0.1", 1)) as relay:
        relay._listener.close()
        with pytest.raises(NoService):
            ServiceClient(relay.address, retries=retries(told))
    assert not told


def test_a_full_server_is_asked_again():
    """In as many seconds as it said; without an end to it, its refusal is what the client says."""
    with serving(Server(network(), "cleartext"), limits=ServiceLimits(sessions=1)) as service:
        told, slept = [], []
        with ServiceClient(service.address, "cleartext") as first:

            def sleep(seconds):
                slept.append(seconds)
                if len(slept) == 2:
                    first.close()

            with ServiceClient(service.address, "cleartext", retries=Retries(30, told.append, sleep)) as second:
                assert right(asked(second).logits)
            assert all(10 <= seconds <= 13.75 for seconds in slept)
            assert "a server has at most 1 sessions at once" in told[0]
        with ServiceClient(service.address, "cleartext"), pytest.raises(Refused, match="at most 1 sessions at once"):
            ServiceClient(service.address, "cleartext", retries=retries([], 1))


def test_a_draining_server_is_left_at_once():
    server, told, slept = Server(network(), "cleartext"), [], []
    with serving(server) as first, serving(server) as second, relaying(first.address) as relay:
        with ServiceClient(relay.address, "cleartext", retries=Retries(2, told.append, slept.append)) as remote:
            assert right(asked(remote).logits)
            relay.target = second.address
            first.stop()
            assert right(asked(remote).logits)
    assert slept[0] == 0.0
    assert "a server must stay up for a new image" in told[0] or "a peer must stay" in told[0]


def test_what_would_not_change_is_not_asked_again():
    told = []
    with serving(Server(network(), "cleartext")) as service:
        service.books.quotas.change(Quota(images=1), {})
        with ServiceClient(service.address, "cleartext", retries=retries(told)) as remote:
            asked(remote)
            with pytest.raises(Refused, match="a client may begin 1 images in all"):
                asked(remote)
    assert not told


def test_a_malformed_reply_is_not_asked_for_again():
    """The server must not learn from a second request what the client made of a reply (SECURITY.md)."""
    told = []
    with serving(Server(network(), "cleartext")) as service:
        with ServiceClient(service.address, "cleartext", retries=retries(told)) as remote:
            original = remote.handle
            remote.handle = lambda message: original(message)[:-1]
            with pytest.raises(RuleError, match="a message must"):
                asked(remote)
    assert not told


def test_affinity(tmp_path):
    """It is a client's own, with keys or without, in later runs with the same folder too; it does not tell the owner."""
    shown = []
    with serving(Server(network(), "cleartext")) as service:
        name_of = type(service._calls.access).name_of

        def name(access, context):
            shown.append(dict(context.invocation_metadata())[AFFINITY])
            return name_of(access, context)

        def shown_by(work, prepares):
            shown.clear()
            with ServiceClient(service.address, "cleartext", prepared_work=work) as remote:
                if prepares:
                    prepare(remote.client, remote)
                assert (remote.bytes_keys > 0) == prepares
                asked(remote)
            work.close()
            (found,) = set(shown)
            assert found not in (work.owner.hex(), work.owner.hex()[: len(found)])
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(service._calls.access), "name_of", name)
            first = shown_by(PreparedWork(tmp_path), prepares=True)
            assert shown_by(PreparedWork(), prepares=True) != first
    assert len(first) == 32
