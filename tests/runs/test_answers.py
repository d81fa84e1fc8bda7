"""What a client tells of its progress: a bar over images moves with every round, prepared or not."""

from itertools import pairwise

import numpy as np
import pytest

from privcirnet.he.protocol.offline.store import MemoryStore
from privcirnet.runs.answers import InferenceStep, PreparedStock, answers
from tests.he.networks import network, random_image
from tests.he.parties import parties


@pytest.mark.parametrize("count", [0, 2])
def test_a_bar_ends_with_its_images(count):
    program = network()
    client, session = parties(program, "cleartext")
    store: MemoryStore = client._prepared.store
    images = [random_image(program, seed) for seed in range(3)]
    steps: list[InferenceStep] = []
    ahead = PreparedStock(count, store, keep=False, again=lambda: None)
    found = list(answers(client, session, images, steps.append, ahead))
    assert [answer.prepared for answer in found] == [count > 0] * 3
    assert all(a.images <= b.images for a, b in pairwise(steps))
    assert steps[-1].images == 3
    ends = [[step for step in steps if step.image == image][-1] for image in range(3)]
    assert [step.images for step in ends] == [1, 2, 3]
    assert np.allclose([step.bytes for step in ends], [sum(answer.bytes) for answer in found])
    before = [step for step in steps if step.name.startswith("preparation, ")]
    assert before
    assert count == 0 or {step.images for step in before} <= {0, 2}
