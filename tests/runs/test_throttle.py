"""A link in software: what a message and its reply are held up by."""

from functools import partial

import numpy as np
import pytest

from privcirnet.config import InferConfig
from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.protocol.parties.session import run
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import RunOptions, Throttled, throttled
from tests.he.networks import network, random_image
from tests.he.parties import parties


@pytest.mark.parametrize("name", ["lan", "wan44", "wan"])
def test_messages_are_held_up_as_on_the_link(name: str) -> None:
    """Every byte both ways, and a round trip for each round; the result is the same."""
    client, session, waited = *parties(network(), "cleartext"), list[float]()
    image, link = random_image(network()), LINKS[name]
    logits, traffic = run(client, Throttled(session, link, waited.append), image)
    wanted, _ = run(client, session, image)
    assert np.abs(logits - wanted).max() <= np.abs(wanted).max()
    sent = sum(t.up + t.down for t in traffic)
    assert sum(waited) == pytest.approx(sent / link.bandwidth + len(traffic) * link.round_trip)
    assert len(waited) == 2 * len(traffic)


def test_without_a_link_nothing_is_in_between() -> None:
    _, session = parties(network(), "cleartext")
    assert throttled(session, "") is session
    assert throttled(session, "wan") == Throttled(session, LINKS["wan"])


def test_a_throttled_evaluation_predicts_no_link(monkeypatch) -> None:
    """Its seconds have the link's already."""
    waited, program = list[float](), network()
    monkeypatch.setattr("privcirnet.runs.parties.Throttled", partial(Throttled, wait=waited.append))
    images = random_image(program)[None]
    found = evaluate(Interactive(program), images, RunOptions("cleartext", throttle="wan")).summary(None, np.zeros(1))
    assert (found.throttle, found.cost.links, found.phases.offline.links) == ("wan", {}, {})
    assert sum(waited) == pytest.approx(found.cost.bytes / 9e6 + found.cost.rounds * 80e-3)


@pytest.mark.parametrize("name", ["local", "dsl"])
def test_unknown_links(name: str) -> None:
    with pytest.raises(RuleError, match=rf"throttle must be a known one: got '{name}'; use one of lan, wan44, wan"):
        InferConfig(throttle=name)


def test_the_page_is_not_throttled() -> None:
    with pytest.raises(RuleError, match="throttle is not for the page: got wan"):
        InferConfig(throttle="wan", ui=True)
