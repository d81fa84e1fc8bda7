import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.encodings import packing
from privcirnet.he.encodings.packing import Packing

EVEN = [2, 4, 6, 8, 10, 18, 32]


def word(placed: list[tuple[int, int]], length: int) -> list[int | None]:
    """A weight polynomial by units: channel or None for zero."""
    found: list[int | None] = [None] * length
    for channel, unit in placed:
        assert found[unit] is None
        found[unit] = channel
    return found


def padded_filters_are_in(ring: list[int | None], members: list[int], channels: int) -> bool:
    """Each 0^(C-1-i) W_i 0^(i) stands in the ring somewhere, read from any unit on."""
    for i in members:
        wanted = [None] * (channels - 1 - i) + [i] + [None] * i
        doubled = ring + ring
        starts = [s for s in range(len(ring)) if doubled[s : s + channels] == wanted]
        if len(starts) != 1:
            return False
    return True


def slow_is_exact(found: Packing, units: int, slack: bool) -> bool:
    """Multiply out on a line of half units; with slack the polynomial ends half a unit later."""
    end = 2 * units + slack
    for filters in found.filters:
        met: dict[int, list[tuple[int, int]]] = {}
        for group, o in filters:
            for other, p in enumerate(found.inputs):
                for half in (0, 1):
                    met.setdefault((2 * (o + p) + half) % end, []).append((group, other))
        for group, o in filters:
            first = 2 * (o + found.inputs[group])
            if first + 1 >= end or met[first] != [(group, group)] or met[first + 1] != [(group, group)]:
                return False
    return True


def test_the_paper_s_example() -> None:
    """Section IV-B: W_3 000 W_0 0 W_2 00 W_1 0."""
    offsets = packing.closed_form(4, 4)
    drawn = word([(c, o) for c, o in enumerate(offsets)], packing.closed_form_length(4, 4))
    assert drawn == [3, None, None, None, 0, None, 2, None, None, 1, None]


@pytest.mark.parametrize("c", EVEN)
def test_closed_form_is_the_formula(c: int) -> None:
    offsets = packing.closed_form(c, c)
    for i in range(c):
        assert offsets[i] == ((c + 2) * (c - 1 - i) if i >= c / 2 else c + i * (c + 1))
    assert packing.closed_form_length(c, c) == c + 1 + (c // 2 - 1) * (c + 2)


@pytest.mark.parametrize("c", EVEN)
def test_closed_form_and_superstring_are_right_and_as_long(c: int) -> None:
    members, length = list(range(c)), packing.closed_form_length(c, c)
    offsets = packing.closed_form(c, c)
    placed, ring = packing.superstring(members, c)
    assert ring == length
    for found in (sorted(enumerate(offsets), key=lambda pair: pair[1]), placed):
        assert padded_filters_are_in(word(found, length), members, c)
        both = Packing(tuple(members), (tuple(found),))
        assert packing.is_exact(both, length, whole=True)
        assert packing.is_exact(both, length, whole=False)
        assert not packing.is_exact(both, length - 1, whole=True)


@pytest.mark.parametrize(("channels", "filters"), [(4, 2), (8, 4), (8, 2), (12, 4), (12, 6), (30, 10)])
def test_divided_closed_form(channels: int, filters: int) -> None:
    parts = packing.divided(channels, filters)
    length = packing.closed_form_length(channels, filters)
    assert sorted(c for part in parts for c, _ in part) == list(range(channels))
    assert {len(part) for part in parts} == {filters}
    found = Packing(tuple(range(channels)), tuple(map(tuple, parts)))
    assert packing.is_exact(found, length, whole=False)
    for part in parts:
        assert padded_filters_are_in(word(part, length), [c for c, _ in part], channels)
        assert packing.superstring([c for c, _ in part], channels)[1] == length
    assert length <= (channels + 2) * filters / 2 - 1, "the paper's constraint"


@given(st.data())
def test_superstring_of_any_channels(data: st.DataObject) -> None:
    """Also odd numbers and any subset, where the paper has no closed form."""
    channels = data.draw(st.integers(1, 24))
    members = sorted(data.draw(st.sets(st.integers(0, channels - 1), min_size=1)))
    placed, length = packing.superstring(members, channels)
    length = max(length, channels)
    assert padded_filters_are_in(word(placed, length), members, channels)
    found = Packing(tuple(range(channels)), (tuple(placed),))
    assert packing.is_exact(found, length, whole=True)
    assert packing.is_exact(found, length, whole=False)


@pytest.mark.parametrize("channels", [2, 3, 4, 5, 6, 7])
def test_greedy_is_the_shortest_ring(channels: int) -> None:
    """Against all orders of all subsets."""
    for size in range(1, min(channels, 6) + 1):
        for members in itertools.combinations(range(channels), size):
            lengths = [
                sum(1 + max(a, channels - 1 - b) for a, b in zip(order, order[1:] + order[:1], strict=True))
                for order in itertools.permutations(members)
            ]
            assert packing.superstring(members, channels)[1] == min(lengths)


def test_superstring_serves_where_the_closed_form_can_t() -> None:
    for channels, filters in ((5, 5), (4, 2), (7, 7)):
        with pytest.raises(RuleError, match="an even number of filters, as many as channels"):
            packing.closed_form(channels, filters)
    for channels, filters in ((7, 4), (9, 3)):
        with pytest.raises(RuleError, match="even number of filters that divides"):
            packing.divided(channels, filters)
    assert packing.superstring(range(7), 7)[1] == 31, "an even 8 takes 39"
    found = packing.side_by_side(7, 18)
    assert found is not None
    assert len(found.filters) == 2
    assert packing.side_by_side(19, 18) is None


@settings(max_examples=40)
@given(st.integers(1, 40), st.booleans(), st.integers(1, 30))
def test_packings_are_exact(units: int, whole: bool, channels: int) -> None:
    found = packing.scattered(units, whole)
    assert packing.is_exact(found, units, whole)
    assert slow_is_exact(found, units, slack=not whole)
    fewer = packing.first_groups(found, max(1, len(found.inputs) // 2))
    assert slow_is_exact(fewer, units, slack=not whole)
    beside = packing.side_by_side(channels, units)
    if beside is not None:
        assert sorted(group for pairs in beside.filters for group, _ in pairs) == list(range(channels))
        assert slow_is_exact(beside, units, slack=not whole)


@given(st.data())
def test_the_check_is_right(data: st.DataObject) -> None:
    """Against multiplying out, on packings that are mostly wrong."""
    units, groups, whole = data.draw(st.integers(3, 14)), data.draw(st.integers(1, 3)), data.draw(st.booleans())
    unit = st.integers(0, units - 1)
    inputs = data.draw(st.lists(unit, min_size=groups, max_size=groups, unique=True))
    at = data.draw(st.lists(unit, min_size=groups, max_size=groups, unique=True))
    found = Packing(tuple(inputs), (tuple(enumerate(at)),))
    assert packing.is_exact(found, units, whole) == slow_is_exact(found, units, slack=not whole)


def test_scattered_carries_more_groups() -> None:
    """In 18 units, 15 x 15 maps at n = 4096: 6 channels with one weight polynomial; side by side 5."""
    assert len(packing.scattered(18, False).inputs) == 6
    assert [len(packing.side_by_side(c, 18).filters) for c in (5, 6)] == [1, 2]
    assert len(packing.scattered(64, False).inputs) == 13
    assert [len(packing.side_by_side(c, 64).filters) for c in (10, 11)] == [1, 2]


def test_both_parties_find_the_same() -> None:
    """Golden: another version of Python or of this package that finds something else can't talk to this one."""
    golden = packing.scattered(18, False)
    assert golden.inputs == (7, 6, 0, 15, 2, 14)
    assert golden.filters == (((5, 1), (3, 2), (1, 4), (2, 5), (0, 6), (4, 12)),)
    first = packing.scattered(40, False)
    packing.scattered.cache_clear()
    assert packing.scattered(40, False) == first
