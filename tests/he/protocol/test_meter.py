from collections import Counter

from privcirnet.he.protocol.meter import Meter


def test_seconds_and_counts_add_up() -> None:
    meter, counter = Meter(), Counter(rotate=5)
    for _ in range(2):
        with meter.time("a"), meter.count("a", counter):
            counter["rotate"] += 3
            counter["pmult"] += 1
    assert meter.counts["a"] == Counter(rotate=6, pmult=2)
    assert meter.seconds["a"] > 0
    assert not meter.counts["b"]
