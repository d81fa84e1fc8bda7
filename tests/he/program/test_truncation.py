"""How wrong or revealing truncation can be, by the formulas."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privcirnet.he.program import bounds, truncation
from privcirnet.he.program.operations import Truncate
from privcirnet.he.program.program import Node, Program
from tests.he.program.test_bounds import PARAMETERS, chain, conv


def truncated_twice() -> Program:
    same = (2, 4, 4)
    return chain(
        conv("a", "x"),
        Node("at", Truncate(2), ("a",), same, 0),
        conv("b", "at"),
        Node("bt", Truncate(3), ("b",), same, 0),
    )


def test_wrap_probability_is_the_sum_over_values() -> None:
    """A uniform mask r wraps y >= 0 for r in 0..y, that is y + 1 of t values, and y < 0 for |y| - 1."""
    made = truncated_twice()
    intervals = bounds.prove(made)
    largest = [np.maximum(np.abs(low), np.abs(high)) + 1 for low, high in (intervals["a"], intervals["b"])]
    expected = sum(int(v.sum()) for v in largest) / PARAMETERS.plain_modulus
    assert truncation.wrap_probability(made, bounds.largest_sizes(intervals)) == pytest.approx(expected, rel=1e-12)
    assert truncation.wrap_probability(chain(conv("a", "x")), bounds.largest_sizes(intervals)) == 0


def test_a_wrong_result_passes_only_if_its_other_bits_do() -> None:
    made = replace(truncated_twice(), output_bits=20)
    sizes = bounds.largest_sizes(intervals := bounds.prove(made))
    spare = {
        "unnoticed": (made, PARAMETERS.plain_bits - 21),
        "not known": (replace(made, output_bits=0), 0),
        "rounded": (replace(made, answer="rounded"), 126),
    }
    for program, bits in spare.values():
        facts = truncation.truncation_facts(program, intervals, sizes)
        assert facts["failure_per_image_log2"] - facts["unnoticed_per_image_log2"] == pytest.approx(bits)
    never = truncation.truncation_facts(replace(made, masks="bounded"), intervals, sizes)
    assert never["failure_per_image_log2"] is never["unnoticed_per_image_log2"] is None


def test_hiding_bits_formula() -> None:
    """A bounded mask has t - 2 B values: shifting it by up to 2 B moves 2 B / (t - 2 B) of its mass."""
    made = replace(truncated_twice(), masks="bounded")
    intervals, t = bounds.prove(made), PARAMETERS.plain_modulus
    ends = [2 * bounds.largest(intervals[name]) for name in ("a", "b")]
    assert truncation.hiding_bits(made, intervals) == pytest.approx(-math.log2(sum(32 * e / (t - e) for e in ends)))
    assert truncation.hiding_bits(chain(conv("a", "x")), intervals) == math.inf
