import pytest
from torch import nn

from privcirnet.nn.circulant import block_size_of
from privcirnet.passes.convert import candidates, circulant_
from tests.nn.networks import assert_unchanged, snapshot


class Mixed(nn.Module):
    """A layer of every kind; it never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.good = nn.Conv2d(8, 16, 3)
        self.odd = nn.Linear(10, 3)
        self.grouped = nn.Conv2d(16, 16, 3, groups=4)
        self.tied, self.twin = nn.Linear(8, 8), nn.Linear(8, 8)
        self.twin.weight = self.tied.weight
        self.done = circulant_(nn.Sequential(nn.Linear(8, 8)), {"0": 2})[0]
        self.inner = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Conv1d(8, 8, 1))


def test_every_layer_gets_its_reason():
    model = Mixed()
    before = snapshot(model)
    assert candidates(model, 4) == {
        "good": "",
        "odd": "block size must divide both weight dimensions: 4 for (3, 10) at 'odd'",
        "grouped": "a circulant convolution must have one group: groups=4 at 'grouped'",
        "tied": "a circulant layer must not share its weight: tied.weight = twin.weight",
        "twin": "a circulant layer must not share its weight: tied.weight = twin.weight",
        "done": "a layer must still have its plain dense weight: 'done' with a parametrized weight of block size 2",
        "inner.0": "",
        "inner.2": "",
    }
    assert_unchanged(model, before)


@pytest.mark.parametrize(("b", "expected"), [(1, ["0", "1", "2"]), (2, ["1", "2"]), (4, ["2"]), (8, ["2"]), (16, [])])
def test_exactly_the_candidates_can_be_converted(b, expected):
    model = nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 8), nn.Linear(8, 8))
    names = [name for name, reason in candidates(model, b).items() if not reason]
    assert names == expected
    circulant_(model, dict.fromkeys(names, b))
    assert [block_size_of(model.get_submodule(name)) for name in names] == [b] * len(names)


def test_a_module_under_two_names_shares_its_weight_with_itself():
    layer = nn.Linear(4, 4)
    reasons = candidates(nn.Sequential(layer, layer), 2)
    assert list(reasons) == ["0", "1"]
    assert set(reasons.values()) == {"a circulant layer must not share its weight: 0.weight = 1.weight"}
