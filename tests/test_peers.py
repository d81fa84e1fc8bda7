"""What the peers' scripts share: their loop over images, and what a result says of it."""

import importlib

import pytest

from tests.conftest import ROOT


@pytest.fixture
def peer(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "peers")
    return importlib.import_module("peer")


def test_images_are_run_in_turn_and_counted(peer):
    done = peer.timed([1, 2, 3], lambda image: [image, -image])
    assert done.outputs == [[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]]
    assert len(done.seconds) == len(done.cpu) == 3
    assert min(done.seconds) >= 0


def test_a_result_s_facts_follow_from_the_logits(peer):
    done = peer.Timed([[0.0, 1.0], [3.0, 2.0], [0.0, 5.0]], [9.0, 1.0, 2.0], [8.0, 0.5, 0.7])
    found = done.facts(clear=[[0.0, 2.0], [3.5, 2.0], [6.0, 5.0]], labels=[1, 1, 1])
    assert found == {
        "seconds": 1.5,  # the first image is left out
        "seconds_first": 9.0,
        "seconds_all": [9.0, 1.0, 2.0],
        "cpu_seconds": 0.6,
        "images": 3,
        "same_class": 2,
        "correct": 2,
        "largest_error": 6.0,
    }
    assert peer.Timed([[1.0]], [4.0], [3.0]).facts([[1.0]], [0])["seconds"] == 4.0
