"""What a program wants of t: the least bits that do, and what asks for them."""

import math

import pytest

from privcirnet.he.planning.chooser import WIDE
from privcirnet.he.planning.noise_budget import Option, judge
from privcirnet.he.planning.requirements import requirements
from privcirnet.he.program import bounds
from tests.he.planning.case import DEFAULT, INTERVALS, NETWORK, SIZES, candidates, wants


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
@pytest.mark.parametrize("option", candidates(DEFAULT, WIDE), ids=lambda o: str(o.parameters))
def test_more_security_never_needs_a_smaller_modulus(masks: str, option: Option) -> None:
    needed = [wants(bits, masks).truncation_bits for bits in range(40)]
    assert needed == sorted(needed)
    assert needed[-1] > needed[0]
    verdicts = [judge(wants(bits, masks), option) for bits in range(40)]
    fitting = [v.fits for v in verdicts]
    assert fitting == sorted(fitting, reverse=True), "what fits with more bits fits with fewer"
    carried = [v.parameters.plain_modulus for v in verdicts if v.fits and v.parameters]
    assert carried == sorted(carried)
    refused = [v.parameters.plain_modulus for v in verdicts if not v.fits and v.parameters]
    assert refused == sorted(refused)


def test_needed_bits_are_the_least_that_do() -> None:
    for masks in ("uniform", "bounded"):
        for bits in (0, 7, 20.5, 39):
            asked = wants(bits, masks)
            assert (
                asked.reached(2**asked.truncation_bits - 1)
                >= bits
                > asked.reached(2 ** (asked.truncation_bits - 1) - 1)
            )
    for value, needed in {4: 4, 7: 4, 8: 5}.items():
        asked = wants(largest=value)
        assert asked.value_bits == needed
        assert 2 * value < 2**needed - 1
        assert 2 * value >= 2 ** (needed - 1) - 1
    assert wants(0, largest=1 << 50).needed_by == f"value bound of {wants().node}"
    assert wants(30).needed_by == "truncation failure"
    assert wants(30, "bounded").needed_by == "truncation hiding"


def test_the_largest_bound_is_named() -> None:
    asked = wants()
    assert asked.largest == max(bounds.largest(i) for i in INTERVALS.values())
    assert bounds.largest(INTERVALS[asked.node]) == asked.largest


def test_without_truncation_only_values_count() -> None:
    nodes = tuple(node for node in NETWORK.nodes[:2])
    for masks in ("uniform", "bounded"):
        asked = requirements(nodes, {n.name: INTERVALS[n.name] for n in nodes}, SIZES, masks, 1000)
        assert asked.reached(2**40) == math.inf
        assert asked.truncation_bits == 1
        assert asked.satisfied(2 * asked.largest + 1)
        assert not asked.satisfied(2 * asked.largest)
