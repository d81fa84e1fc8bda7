"""The table of others' networks: some of it measured again, and what it promises."""

import re

import pytest

from benchmarks import network_coverage
from tests.conftest import ROOT

PROMISED = (
    *("resnet18", "mobilenetv2_100", "efficientnet_lite0", "regnetx_002", "repvgg_a0", "vgg11_bn", "densenet121"),
    *("deit_tiny_patch16_224", "torchvision/resnet18", "torchvision/mobilenet_v2"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050"])
def test_a_network_runs_encrypted(name):
    found = network_coverage.examined(name, "cleartext")
    assert (found.reason, tuple(found.steps)) == ("", network_coverage.STEPS)


def test_a_network_that_does_not_says_why():
    found = network_coverage.examined("nf_regnet_b0", "cleartext")
    assert found.steps == []
    assert found.reason.startswith("every operation must have a polynomial form: got stem.conv (ScaledStdConv2d)")


def test_the_table_has_every_network_and_most_run():
    rows = re.findall(r"^\| (\S+) \| \d+ \|(.*)$", (ROOT / "docs" / "coverage.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == set(network_coverage.SIDES)
    encrypted = {name for name, cells in rows if cells.count("yes") == len(network_coverage.STEPS)}
    assert encrypted.issuperset(PROMISED)
    assert len(encrypted) >= 15
