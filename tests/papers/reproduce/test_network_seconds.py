"""Leveled inference, timed: results are checked, and steps that stand for others are counted as often as these."""

import numpy as np
import pytest

from papers.falcon2020.circuits import evaluator
from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.reproduce import network_seconds
from papers.reproduce.network_seconds import CLIENT, MESSAGES, LeveledBenchmark, seconds_by_steps
from tests.papers.falcon2020.conftest import Encrypted, encrypted_by
from tests.papers.falcon2020.exact_networks import image_of


@pytest.fixture(scope="module")
def encrypted() -> Encrypted:
    return encrypted_by("kernel")


def test_images_are_timed_and_checked(encrypted, monkeypatch):
    made = LeveledBenchmark(encrypted.plan, encrypted.parameters)
    for seed in range(3):
        made.run(image_of(encrypted.network, seed))
    assert (made.images, made.equal, len(made.seconds)) == (3, 3, 2)
    assert made.key_bytes == sum(map(len, encrypted.sent_keys))
    assert made.message_bytes[0] == sum(len(message) for row in encrypted.request for message in row)
    assert all(0 < each.server < each.image for each in made.seconds)
    monkeypatch.setattr(ExactNetwork, "evaluate", lambda self, image: np.zeros(3, dtype=object))
    made.run(encrypted.image)
    assert (made.images, made.equal) == (4, 3)
    made.close()


def test_each_step_counts_as_often_as_it_stands_there(encrypted, monkeypatch):
    """With a clock that passes a second at each look; all of it for each plain modulus."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(evaluator, "process_time", lambda: next(seconds))
    monkeypatch.setattr(network_seconds, "process_time", lambda: next(seconds))
    found = seconds_by_steps(encrypted.plan, encrypted.parameters)
    circuit, moduli, public = encrypted.plan.circuit, len(encrypted.parameters.moduli), encrypted.plan.public
    assert found.pop(CLIENT) == 1 + public.outputs * moduli
    assert found.pop(MESSAGES) == 1 + moduli + public.outputs * moduli
    assert found == {name: moduli * circuit.layers.count(name) for name in dict.fromkeys(circuit.layers)}
