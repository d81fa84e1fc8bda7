"""The choice among sets, and the reasons that are given for it."""

import re

import pytest

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv.noise import MIN_NOISE_BUDGET, largest_plain_bits
from privcirnet.he.bfv.parameters import ParameterSet
from privcirnet.he.planning.parameter_choice import SETS, WIDE, choose, judge, sets_for
from privcirnet.he.rlwe.parameters import MAX_LOG_Q, check_security
from tests.he.planning.case import DEFAULT, FASTEST, LONG, candidates, choice, exhaustive, wants


def test_the_fastest_that_fits_is_chosen() -> None:
    chosen_at = {}
    for bits in range(0, 36, 2):
        try:
            made = choice(bits)
        except DoesNotFit:
            continue
        fitting = [o.seconds for o in candidates() if exhaustive(o, bits)]
        assert made.chosen.option.seconds == min(fitting)
        assert made.chosen is made.cheapest
        chosen_at[bits] = made.set
    assert chosen_at[0] == FASTEST
    assert len(set(chosen_at.values())) >= 3, "the test must see several sets chosen"


def test_exact_steps_take_the_shortest_of_the_fastest() -> None:
    """A shorter modulus sends less; without exact steps the longer one carries a larger t."""
    some = candidates(DEFAULT, SETS[3])
    assert some[0].seconds == some[1].seconds
    assert choose(wants(0), some).set == DEFAULT
    assert choose(wants(0, exact=1 << 20), some).set == SETS[3]


def test_the_error_is_that_of_the_set_that_comes_closest() -> None:
    """Security is a worse refusal than noise; of two with too little noise budget the one with more counts."""
    asked, some = wants(32), candidates(LONG, DEFAULT, SETS[1])
    left = [judge(asked, option).budget for option in some[1:]]
    assert left[0].left < left[1].left < MIN_NOISE_BUDGET
    for order in (some, some[::-1]):
        with pytest.raises(DoesNotFit, match=rf"got {left[1].left} bits with n = 8192, q of 43\+43\+43\+43\+42 bits"):
            choose(asked, order)


def test_a_set_can_be_insisted_on() -> None:
    asked = wants(8)
    insisted = choose(asked, candidates(), WIDE)
    assert insisted.set == WIDE
    assert insisted.cheapest.option.parameters == choice(8).set != WIDE
    assert re.match(r"n = 8192, q of .* bits would do in 0\.\d\d of the time; he.ring_degree=0", insisted.reason())
    with pytest.raises(DoesNotFit, match=r"got -\d+ bits with n = 8192.*; n = \d+, q of .*: he.ring_degree=0"):
        choose(wants(32), candidates(), DEFAULT)


def test_explanation_has_a_line_for_every_candidate() -> None:
    made = choice(26)
    needs, _, *rows = made.explain()
    assert re.match(rf"needed: t of {wants(26).truncation_bits} bits by truncation failure", needs)
    assert {verdict.option.parameters for verdict in made.verdicts} == {*SETS}
    for verdict, row in zip(made.verdicts, rows, strict=True):
        candidate = verdict.option.parameters
        assert row.startswith(f"{candidate} ")
        assert f"{candidate.log_q} of {MAX_LOG_Q[candidate.ring_degree]}" in row
        assert row.endswith("chosen" if verdict is made.chosen else verdict.binding or "fits")
    assert any("noise budget: " in row for row in rows)
    assert made.to_dict() == {"reason": made.reason(), "table": made.explain()}
    assert re.match(rf"{re.escape(str(made.set))}: the fastest that fits; n = 8192, q of .* does not", made.reason())
    assert choice(0).reason() == f"{FASTEST}: the fastest set, and it fits"


def test_the_known_sets_are_secure_and_of_use() -> None:
    """Each carries a modulus that no faster one does, or is shorter; the last carries the longest sums."""
    for candidate in SETS:
        check_security(candidate.ring_degree, candidate.coefficient_bits)
    carried = {s: largest_plain_bits(s.ring_degree, s.coefficient_bits, 1) for s in SETS}
    assert list(carried.values()) == [48, 54, 57, 35, 28, 57, 60, 60]
    long = {s: largest_plain_bits(s.ring_degree, s.coefficient_bits, 1 << 14) for s in SETS}
    assert [bits == 60 for bits in long.values()] == [False] * 7 + [True]


def test_sets_that_settings_allow() -> None:
    assert [sets_for(n) for n in (0, 8192, 16384)] == [SETS, SETS[:5], SETS[5:]]
    assert sets_for(4096, [36, 36, 37]) == (ParameterSet(4096, (36, 36, 37)),)
    with pytest.raises(RuleError, match="must be that of a known set: got 4096; use 8192, 16384"):
        sets_for(4096)
