"""Uniform assignments, and assignments as values."""

import pytest

from privcirnet.blocksize_search.assignment import uniform_latency
from privcirnet.errors import RuleError


def test_uniform_latency():
    seconds = {"a": {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}, "b": {1: 3.0, 2: 1.5}}
    assert [uniform_latency(seconds, b) for b in (1, 2, 4, 8, 16)] == [11.0, 5.5, 3.5, 2.5, 2.5]


def test_uniform_latency_of_a_layer_that_admits_none():
    with pytest.raises(RuleError, match=r"got 2 for 'a' with \[4, 8\]; use at least 4"):
        uniform_latency({"a": {4: 1.0, 8: 0.5}}, 2)
