"""What a search is told of a residual network on bootstrapped CKKS."""

import json

import pytest

from privcirnet.blocksize_search.ckks import ckks_figures
from privcirnet.he.ckks.program import predicted
from tests.passes.lower.test_ckks import program_of, resnet20


@pytest.fixture(scope="module")
def figures():
    return ckks_figures(program_of(resnet20(), 8, -8), (1, 2, 4, 8))


def test_the_layers_together_take_what_the_network_takes(figures):
    seconds = predicted(figures.rehearsed.circuit, figures.rehearsed.counting)
    assert sum(row[1].server for row in figures.table.values()) == pytest.approx(sum(seconds.values()))
    assert len(figures.table) == 16
    facts = json.loads(json.dumps(figures.facts()))
    assert facts["seconds_layers"] + facts["seconds_bootstrapping"] == pytest.approx(sum(seconds.values()))
    assert (facts["bootstrappings"], facts["depth_squares"]) == (5, 13)
    assert facts["diagonals"] == sum(met.products for met in figures.rehearsed.counting.maps) - 5 * 142


def test_no_block_size_is_faster_than_dense_weights(figures):
    """They run as dense ones."""
    for row in figures.table.values():
        assert len({*row.values()}) == 1
    assert [*figures.table["stem"]] == [1]
    assert [*figures.table["layer2.0.conv1"]] == [1, 2, 4]
    bootstrapped = figures.table["layer1.0.conv2"][1].server
    assert bootstrapped > 10 * figures.table["layer1.0.conv1"][1].server, "it has the bootstrapping of its sum"
    assert all(row[1].memory > 0 for row in figures.table.values())
