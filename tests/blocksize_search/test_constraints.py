import pytest

from privcirnet.blocksize_search.activations import OPTIONS
from privcirnet.blocksize_search.constraints import constraints_for
from privcirnet.blocksize_search.latency import CostPrediction
from privcirnet.errors import RuleError

TABLE = {
    name: {b: CostPrediction(1.0 / b, sent=8.0 / b, memory=4) for b in (1, 2)}
    for name in ("stem", "a.conv1", "a.conv2")
}


def test_patterns_become_names():
    constraints = constraints_for(TABLE, ["a.*:2", "a.conv2:1"], [["a.*"]], {"sent": 9.0})
    assert constraints.pinned == {"a.conv1": 2, "a.conv2": 1}
    assert constraints.equal == [["a.conv1", "a.conv2"], []]
    (cap,) = constraints.caps
    assert (cap.name, cap.limit) == ("bytes of traffic", 9.0)
    assert cap.table["stem"] == {1: 8.0, 2: 4.0}
    assert [cap.name for cap in constraints_for(TABLE, limits={"sent": 2.0, "memory": 1.0, "online": 0.0}).caps] == [
        "bytes of traffic",
        "bytes of memory",
    ]


def test_activations_have_words_for_block_sizes_and_groups_of_their_own():
    acts = {name: dict.fromkeys(OPTIONS.values(), CostPrediction()) for name in ("a.act1", "a.act2")}
    constraints = constraints_for(TABLE | acts, ["a.*:2", "a.*:own", "a.act2:identity"], [["a.*"]])
    assert constraints.pinned == {"a.conv1": 2, "a.conv2": 2, "a.act1": 0, "a.act2": OPTIONS["identity"]}
    assert constraints.equal == [["a.conv1", "a.conv2"], ["a.act1", "a.act2"]]


@pytest.mark.parametrize(
    ("pinned", "equal", "message"),
    [
        (["stem"], [], "must be given as name:b: got stem; write for example stem:1"),
        (["stem:x"], [], "must be given as name:b: got stem:x"),
        (["stem:own"], [], "must match a searched layer: got stem; use some of none"),
        (["head:1"], [], r"must match a searched layer: got head; use some of stem, a.conv1, a.conv2"),
        ([], [["b.*"]], r"must match a searched layer: got b\.\*"),
    ],
)
def test_patterns_that_say_nothing(pinned, equal, message):
    with pytest.raises(RuleError, match=message):
        constraints_for(TABLE, pinned, equal)
