import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.coefficients import depthwise_packing
from papers.coefficients.depthwise_packing import Packing


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


def is_exact(found: Packing, units: int, whole: bool) -> bool:
    """Multiply out on a line of half units; a polynomial that is not whole units long ends half a unit later."""
    end = 2 * units + (not whole)
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


@given(st.data())
def test_superstring_of_any_channels(data: st.DataObject) -> None:
    """Also odd numbers and any subset, where the paper has no closed form."""
    channels = data.draw(st.integers(1, 24))
    members = sorted(data.draw(st.sets(st.integers(0, channels - 1), min_size=1)))
    placed, length = depthwise_packing.superstring(members, channels)
    length = max(length, channels)
    assert padded_filters_are_in(word(placed, length), members, channels)
    found = Packing(tuple(range(channels)), (tuple(placed),))
    assert is_exact(found, length, whole=True)
    assert is_exact(found, length, whole=False)


@pytest.mark.parametrize("channels", [2, 3, 4, 5, 6, 7])
def test_greedy_is_the_shortest_ring(channels: int) -> None:
    """Against all orders of all subsets."""
    for size in range(1, min(channels, 6) + 1):
        for members in itertools.combinations(range(channels), size):
            lengths = [
                sum(1 + max(a, channels - 1 - b) for a, b in zip(order, order[1:] + order[:1], strict=True))
                for order in itertools.permutations(members)
            ]
            assert depthwise_packing.superstring(members, channels)[1] == min(lengths)


@pytest.mark.slow
@given(st.integers(1, 40), st.booleans(), st.integers(1, 30))
def test_packings_are_exact(units: int, whole: bool, channels: int) -> None:
    found = depthwise_packing.scattered(units, whole)
    assert is_exact(found, units, whole)
    fewer = depthwise_packing.first_groups(found, max(1, len(found.inputs) // 2))
    assert is_exact(fewer, units, whole)
    beside = depthwise_packing.side_by_side(channels, units)
    if beside is not None:
        assert sorted(group for pairs in beside.filters for group, _ in pairs) == list(range(channels))
        assert is_exact(beside, units, whole)


def test_both_parties_find_the_same() -> None:
    """Golden: another version of Python or of this package that finds something else can't talk to this one."""
    golden = depthwise_packing.scattered(18, False)
    assert golden.inputs == (7, 6, 0, 15, 2, 14)
    assert golden.filters == (((5, 1), (3, 2), (1, 4), (2, 5), (0, 6), (4, 12)),)
    first = depthwise_packing.scattered(40, False)
    depthwise_packing.scattered.cache_clear()
    assert depthwise_packing.scattered(40, False) == first
    assert [len(depthwise_packing.side_by_side(c, 64).filters) for c in (10, 11)] == [1, 2]
    assert depthwise_packing.side_by_side(19, 18) is None
