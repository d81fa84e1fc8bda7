import pytest

from privcirnet.he.protocol.interface import Meter
from privcirnet.runs.evaluation import ImageTimings, PartyLaps, typical


@pytest.mark.parametrize(
    ("seconds", "found"), [([], 0), ([5], 5), ([5, 1], 1), ([9, 1, 2], 1.5), ([9, 1, 2, 30], 2), ([9, 3, 1, 2], 2)]
)
def test_the_first_is_left_out_if_there_are_others(seconds, found):
    assert typical(seconds) == found


def test_laps_are_what_was_added_since():
    laps, seconds = ImageTimings(), {"a": 100.0}
    laps.add(seconds)
    seconds |= {"a": 101.0, "b": 2.0}
    laps.add(seconds)
    seconds |= {"a": 104.0}
    laps.add(seconds, 0)
    seconds |= {"a": 105.0}
    laps.add(seconds, 2)
    assert laps.each == [{"a": 100.0}, {"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 0.0}]
    assert (laps.of("a"), laps.of("b"), laps.of("c"), laps.total) == (1.5, 1.0, 0.0, 2.5)


def test_work_ahead_is_shared_by_the_images_that_it_was_for():
    laps, images, ahead = PartyLaps(), Meter(), Meter()
    ahead.seconds["a"] = 50.0
    for prepared, seconds in ((4, 1.0), (4, 1.0), (4, 1.0), (4, 1.0), (6, 1.0)):
        images.seconds["a"] += seconds
        ahead.seconds["a"] += 8.0 if prepared == 6 else 0.0
        laps.add((images, ahead), prepared=prepared)
    assert [lap["a"] for lap in laps.ahead.each] == [12.5, 4.0]
    assert laps.of("a") == 1.0 + 4.0
