"""Rows of leveled networks: bytes are those of real messages, and extrapolated seconds have the parts of a circuit."""

import numpy as np
import pytest

from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.reproduce import leveled
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape

SMALL = (LinearShape(8, 8, 1, 2, 3, 2, 1), LinearShape.gemm(1, 32, 6), LinearShape.gemm(1, 6, 3))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setitem(leveled.SHAPES, "small", SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["packed", "lola"])
def test_bytes_are_those_of_a_run_and_steps_add_up(small, plan):
    counted, measured = leveled.leveled_counts("small", plan), leveled.leveled_latency("small", plan)
    assert counted["traffic"] == pytest.approx(measured["traffic"])
    found = leveled.leveled_steps("small", plan)
    names = {*leveled._planned("small", plan, 1)[0].circuit.layers, "client", "messages"}
    assert found.keys() == {"latency", *names}
    assert found["latency"] == pytest.approx(sum(found[name] for name in names))
    assert min(found.values()) >= 0


def test_a_wrong_result_ends_a_measurement(small, monkeypatch):
    monkeypatch.setattr(ExactNetwork, "evaluate", lambda self, image: np.zeros(3, dtype=object))
    with pytest.raises(RuleError, match="an encrypted result must be exact: got packed"):
        leveled.leveled_latency("small", "packed")
