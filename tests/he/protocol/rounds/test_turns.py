"""Operations of more than one trip, ahead and online: as many messages as both know, and whatever is kept serves once."""

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, trips
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.service.client import ServiceClient
from tests.he.broken import ends_at_any_turn, refuses_what_is_not_due
from tests.he.networks import network, random_image
from tests.he.parties import check, parties, strange
from tests.he.turns_toy import offsets
from tests.service.running import serving

__all__ = ["offsets"]
TOYS = 5, 6
"""Their positions."""


@pytest.mark.parametrize(("engine", "count"), [("cleartext", 3), ("kernel", 2)])
def test_both_parties_take_the_turns_that_both_know(engine: str, count: int, offsets: Program) -> None:
    client, session = parties(offsets, engine)
    ahead, most = prepare(client, session, count), schedule_of(offsets).sizes
    first, *_ = schedule_of(offsets).offline(count)
    shared = [t for t in ahead if t.position == first.position]
    assert len(shared) == len(first.trips) == 2, "exchanges of one trip have no part in the second message"
    assert {*TOYS} <= {*first.positions}
    for seed in range(count):
        traffic = check(offsets, client, session, random_image(offsets, seed), "prepared")
        assert [t.position for t in traffic if t.position in TOYS] == [5, 5, 6, 6]
        assert len(traffic) == schedule_of(offsets).rounds_online == schedule_of(network()).rounds_online + 4
        assert max(t.up for t in traffic + ahead) <= most.request
        assert max(t.down for t in traffic + ahead) <= most.reply


def test_an_image_without_prepared_work_has_some_made(offsets: Program) -> None:
    client, session = parties(offsets, "cleartext")
    for seed in range(2):
        traffic = check(offsets, client, session, random_image(offsets, seed), "waited")
        assert len(traffic) == schedule_of(offsets).rounds
    with pytest.raises(RuleError, match="a message must be about step"):
        session.handle(wire.frame(1, [b"x"]))
    check(offsets, client, session, random_image(offsets), "waited")


def test_through_a_service(offsets: Program) -> None:
    image = random_image(offsets)
    with serving(Server(offsets, "cleartext")) as service, ServiceClient(service.address, "cleartext") as remote:
        logits, _ = run(remote.client, remote, image)
        assert remote.client.waited
    expected = interpret(offsets, image)["head"].ravel()
    assert abs(logits.ravel() - expected).max() < 0.2 * abs(expected).max()


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_an_image_that_ends_at_any_turn(lost: str, offsets: Program) -> None:
    ends_at_any_turn(offsets, lost, TOYS)


def test_messages_that_are_not_due_end_the_image(offsets: Program) -> None:
    refuses_what_is_not_due(offsets, TOYS[0], range(len(strange(b"")) - 2))


@pytest.mark.parametrize(
    "turns", [("server", "client"), ("client", "client"), ("client", "server", "server", "client")]
)
def test_turns_alternate(turns: tuple) -> None:
    with pytest.raises(ValueError, match="turns must alternate, and the client's be first"):
        trips([MessageSpec(sender) for sender in turns])
