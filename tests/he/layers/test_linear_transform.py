from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.layers import bsgs


@given(st.sets(st.integers(-40, 40), min_size=1), st.sampled_from([1, 2, 4, 8, 16]))
def test_every_diagonal_is_a_giant_and_a_baby_step(steps: set[int], length: int) -> None:
    groups = bsgs.groups(steps, length)
    assert [g + b for g, babies in groups.items() for b in babies] == sorted(steps)
    assert all(not g % length and all(0 <= b < length for b in babies) for g, babies in groups.items())
    rotated = {b for babies in groups.values() for b in babies if b}, {g for g in groups if g}
    assert bsgs.rotations(steps, length) == rotated


def test_a_costly_giant_step_makes_more_baby_steps() -> None:
    steps = range(64)
    assert [bsgs.cheapest(steps, giant=giant) for giant in (0.01, 1, 5, 1000)] == [1, 8, 16, 64]
