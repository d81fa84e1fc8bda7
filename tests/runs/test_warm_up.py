"""An image that nobody asked for comes first: it leaves nothing in what is measured of the others."""

import numpy as np
import pytest

from privcirnet.artifact.summaries import plain
from privcirnet.he.protocol.parties.server import Server
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import RunOptions, rehearse
from tests.he.networks import network, random_image

IMAGES, LABELS = np.stack([random_image(network(), seed) for seed in range(2)]), np.array([1, 2])


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_measured_is_that_of_the_images(apart):
    cold, warm = (
        evaluate(Interactive(network()), IMAGES, RunOptions("cleartext", apart=apart, warm=warm))
        for warm in (False, True)
    )
    assert warm.wrong == [[], []], "reports are those of the images"
    first, second = (plain(found.summary(LABELS, LABELS)) for found in (cold, warm))
    assert "seconds_warm_up" not in first
    assert second["seconds_warm_up"] > 0
    counts = "rotations", "pmults", "rounds", "bytes_up", "bytes_down"
    assert [[layer[name] for name in counts] for layer in first["layers"]] == [
        [layer[name] for name in counts] for layer in second["layers"]
    ]
    assert all(first["cost"][name] == second["cost"][name] for name in ("bytes_up", "bytes_down"))


def test_a_rehearsal_tells_its_rounds():
    steps = []
    rehearse(Server(network(), "cleartext"), "cleartext", steps.append)
    assert steps[-1].images == 1
